"""The memory that is predicted for PyTorch's steps, beside that of real ones; and that predicting touches nothing."""

from __future__ import annotations

import csv
import re

import pytest

from tests.programs.runner import PROGRAMS, Runner, devices

CLOSE = 0.05
MODELS = [
    "linear",
    "cnn",
    "lstm",
    "transformer",
    "checkpointed",
    "mixed_precision",
    "frozen",
    "sgd",
    "hugging_face",
]


@pytest.mark.parametrize("model", MODELS)
def test_the_peak_is_that_of_a_real_step(run: Runner, model: str) -> None:
    found = run("fitting_torch.prediction", model)
    assert found["real"] > 10 << 20  # so much that blocks of 512 bytes do not matter
    assert abs(found["predicted"] / found["real"] - 1) < CLOSE, found


def test_the_peak_of_a_function_that_accumulates_gradients(run: Runner) -> None:
    found = run("fitting_torch.accumulation")
    assert abs(found["predicted"] / found["real"] - 1) < CLOSE, found


def test_the_parts_are_what_is_there(run: Runner) -> None:
    """At the peak, in the optimizer's step, which a large optimizer and a small batch have."""
    found = run("fitting_more.parts")
    assert found["parameters"] == found["real parameters"]
    assert found["gradients"] == found["real parameters"]
    assert found["optimizer state"] == 2 * found["real parameters"]
    assert found["sum"] == found["peak"]


def test_a_forward_alone_has_no_gradients(run: Runner) -> None:
    found = run("fitting_more.forward_alone")
    assert found["gradients"] == found["optimizer_state"] == 0
    assert abs(found["predicted"] / found["real"] - 1) < CLOSE, found


def test_the_largest_batch_fits_and_one_more_does_not(run: Runner) -> None:
    found = run("fitting_more.largest_batch")
    assert found["at the largest"] is True
    assert found["with one more"] is False
    assert found["real"] <= found["available"] < found["real with more"]


def test_the_largest_batch_of_a_model_whose_optimizer_takes_the_most(run: Runner) -> None:
    found = run("fitting_more.largest_beside_optimizer")
    assert found["fits"] == [True, False]
    assert found["verdict"].endswith(f"; batch up to {found['size']}.")


def test_the_search_for_the_largest_has_the_peaks_that_one_is_told(run: Runner) -> None:
    for size, (searched, told) in run("fitting_more.sizes_beside_optimizer").items():
        assert searched == told, size


def test_the_largest_batch_of_a_small_model_is_at_least_what_is_looked_for(run: Runner) -> None:
    found = run("fitting_more.largest_of_a_small_model")
    assert found["size"] == 1 << 24
    assert "; batch up to at least 16777216." in found["text"]
    assert "; batch up to at least 16777216." in found["html"]


def test_a_batch_of_another_size_is_that_of_a_real_one(run: Runner) -> None:
    found = run("fitting_more.another_size")
    assert found["resized"] == found["made so"]


def test_bfloat16_halves_what_the_model_takes(run: Runner) -> None:
    found = run("fitting_more.cast")
    assert abs(found["bfloat16"] - found["float32"] / 2) <= 4 * 512  # each in blocks


def test_a_dtype_is_its_name_or_pytorchs_own(run: Runner) -> None:
    assert run("fitting_more.dtypes") == {"same": True, "other": False, "mixed": True}


def test_arrays_that_a_model_takes_are_followed(run: Runner) -> None:
    of_arrays, of_tensors = run("fitting_more.arrays_that_a_model_takes")
    assert of_arrays == of_tensors > 0


@pytest.mark.parametrize("how", ["model", "function", "error", "data", "interrupt"])
def test_nothing_is_touched(run: Runner, how: str) -> None:
    found = run("fitting_untouched.touched", how)
    assert (
        re.sub(r"line \d+", "line N", found.pop("ended"))
        == {
            "model": "",
            "function": "",
            "error": "The step raises RuntimeError: a and b must have same reduction dim, but got [16, 8] X [32, 64], "
            "in line N of forward: x = self.first(x)",
            "data": "The step can't be followed without being run: it decides by a number that a tensor holds, "
            "in line N of decide: if loss.item() > 1:",
            "interrupt": "interrupted",
        }[how]
    )
    assert found == {"changed": [], "started": False}


@pytest.mark.parametrize(
    "how",
    [
        "model",
        "training",
        "eval",
        "function",
        "error",
        "function's error",
        "error of an error",
        "interrupt",
    ],
)
def test_nothing_is_kept_alive(run: Runner, how: str) -> None:
    failed = "error" in how or how == "interrupt"
    assert run("fitting_untouched.kept_alive", how) == {"alive": [], "failed": failed}


@pytest.mark.parametrize(
    ("function", "why", "line"),
    [
        ("by_bool", "it needs what a tensor holds", "if loss > 0:"),
        ("by_item", "it decides by a number that a tensor holds", "if loss.item() > 0:"),
        ("as_index", "it decides by a number that a tensor holds", "return x[: x.sum().item()]"),
        ("by_shape", "the shape of what nonzero() returns depends on data", "return x.nonzero()"),
        ("leaving", "numpy() takes a tensor's data out of PyTorch", "return x.numpy()"),
        (
            "advancing",
            "it uses a generator, which can't be copied and would be advanced; use what it yields: "
            "batch = next(it)",
            'return model(next(items)["x"])',
        ),
        ("saving", "it would write to model.pt", 'torch.save(x, "model.pt")'),
        (
            "writing",
            "it would write to log.txt",
            'open("log.txt", "a").write("x")  # noqa: PTH123, SIM115 - it is what is tested',
        ),
        (
            "reading",
            f"it reads the open file {csv.__file__[:60]}, or moves in it: read it "
            "before, and use what it holds",
            "return x, read.readline()",
        ),
        (
            "loading",
            "it goes over a DataLoader: give it one batch, batch = next(iter(loader))",
            "for part, _ in loader:",
        ),
    ],
)
def test_what_cannot_be_followed_is_one_line(run: Runner, function: str, why: str, line: str) -> None:
    found = run("fitting_functions.why_not", function)
    source = (PROGRAMS / "fitting_functions.py").read_text().splitlines()
    begin = next(number for number, text in enumerate(source) if text.startswith(f"def {function}("))
    number = next(number for number in range(begin, len(source)) if source[number].strip() == line) + 1
    where = f"in line {number} of {function}: {line}"
    assert found["said"] == f"The step can't be followed without being run: {why}, {where}"
    assert not found["written"]


@pytest.mark.parametrize(
    "function",
    [
        "with_autocast",
        "with_scaler",
        "with_logging",
        "with_closure",
        "with_scheduler",
        "with_clipping",
        "with_cuda_calls",
        "with_compiled",
        "with_checkpoint_reentrant",
        "with_class",
        "with_ema",
        "with_partial",
        "with_numpy",
    ],
)
def test_functions_as_people_write_them_are_followed(run: Runner, function: str) -> None:
    found = run("fitting_functions.followed", function)
    assert found["parts"]["parameters"] > 0
    assert found["parts"]["activations"] > 0
    assert found["changed"] == []


@pytest.mark.parametrize(
    "function", ["with_logging", "with_files", "with_loggers", "with_bars", "with_display"]
)
def test_what_a_function_shows_and_writes_is_swallowed(run: Runner, function: str) -> None:
    found = run("fitting_functions.shown", function)
    assert found["parts"]["gradients"] > 0
    assert found["shown"] == ""
    assert found["changed"] == []
    assert found["files"] == [0, 0, "before", 0, 0]


def test_anomaly_detection_is_off_meanwhile(run: Runner) -> None:
    found = run("fitting_more.with_anomalies")
    assert found.pop("within") > 0
    assert found == {"same": True, "stays": [True, False]}


def test_a_function_that_moves_a_model_is_no_function_without_tensors(run: Runner) -> None:
    assert run("fitting_more.moved")["parameters"] > 0


def test_what_is_on_a_gpu_already_is_known(pretend: dict[str, str]) -> None:
    """The prediction is the same wherever the model is; what it takes there now is not needed twice."""
    found = Runner(devices(pretend))("fitting_on_gpu.there")
    steps = found["present"].pop("pretend:1")
    assert 0 <= steps <= 4 * 4  # PyTorch's counts of steps
    assert found.pop("with the batch") == {"pretend:1": steps}
    assert found == {"same": True, "present": {}, "of the cpu": {}, "devices": ["pretend:1", "pretend:1"]}
