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


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nothing", "There is no model in a Tensor; give a model, an optimizer and a batch: %gpu_fit"),
        ("two models", "There are two models, and a step has one; --loss names a loss."),
        ("a number", "an int is neither a model, an optimizer nor a batch of PyTorch's tensors."),
        ("no batch", "There is no batch: %gpu_fit model optimizer batch."),
        (
            "another's optimizer",
            "The optimizer has no parameter of this model: was the model made again after it?",
        ),
        ("a dtype", "--dtype int8 is not one of float16, bfloat16, float32, float64."),
        ("a size", "--batch is a number of items, and not 0."),
        (
            "no common size",
            "--batch needs a batch whose tensors have a common dimension 0, and this one has none.",
        ),
        ("eval with an optimizer", "--eval is the forward alone: leave the optimizer out."),
        ("a lazy module", "can't be copied without its data: it has no shape yet; call the model once"),
        (
            "nothing to train",
            "Nothing that the model returns depends on a parameter that is trained; try --eval.",
        ),
        ("options of a function", "--amp is for a model: the function itself says how it trains."),
        ("no targets", "The loss needs targets, and the batch has none: make it batch = (inputs, targets)."),
        (
            "a closure",
            "LBFGS evaluates the loss again in its step, as often as numbers decide, which can't be followed: "
            "leave it out, %gpu_fit model batch, and add the copies of the parameters that LBFGS keeps.",
        ),
        (
            "numbers",
            "Adafactor decides by what tensors hold; leave it out, and it is forward and backward alone, in line ",
        ),
        ("numbers", " of torch/optim/_adafactor.py: "),
        ("a model of transformers' optimizer", " of _get_lr in transformers/optimization.py: "),
        (
            "a broken dataset",
            "The DataLoader has no first batch: it raises ValueError: no such file, in line ",
        ),
        ("a dataset that exits", 'of __getitem__: raise self.error("no such file")'),
        ("an empty dataset", "The DataLoader is empty, as its dataset has no items: give one with a batch"),
        (
            "print",
            "print() computes nothing with tensors: give the call of a function that does, train_step(",
        ),
        ("no tensors", "The function computes nothing with tensors: give the call of a function that does"),
        ("exit", "The step raises SystemExit: 3, in line "),
        ("generator's exit", "The step raises GeneratorExit, in line "),
        (
            "DataParallel",
            "DataParallel splits each batch over its GPUs; use the model in it, model.module, with",
        ),
        (
            "DistributedDataParallel",
            "DistributedDataParallel talks to other processes; use the model in it, model.module, and add a copy "
            "of its gradients",
        ),
        ("in a function", "DataParallel splits each batch over its GPUs; use the model in it, model.module"),
        ("fully_shard", "fully_shard talks to other processes; use the model as it was before fully_shard"),
    ],
)
def test_bad_input_is_one_line(run: Runner, given: str, said: str) -> None:
    found = run("fitting_more.refused", given)
    assert said in found
    assert "\n" not in found


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
