"""The memory that is predicted for PyTorch's steps, beside that of real ones; and that predicting changes nothing."""

from __future__ import annotations

import re

import pytest

from gpu_magic.frameworks.private import PRIVATE
from tests.programs.runner import PROGRAMS, Runner, devices

MODELS = ["linear", "cnn", "lstm", "transformer", "checkpointed", "mixed_precision", "frozen", "sgd"]
MODELS += ["hugging_face"]


@pytest.mark.timeout(180)  # real steps under PyTorch's profiler
@pytest.mark.parametrize("model", [*MODELS, "accumulation"])
def test_the_peak_is_that_of_a_real_step(run: Runner, model: str) -> None:
    found = run("fit_models.accumulation") if model == "accumulation" else run("fit_models.prediction", model)
    assert found["real"] > 10 << 20  # so much that blocks of 512 bytes do not matter
    assert abs(found["predicted"] / found["real"] - 1) < 0.05, found


def test_the_parts_are_what_is_there(run: Runner) -> None:
    """At the peak, in the optimizer's step, which a large optimizer and a small batch have."""
    found = run("fit_steps.parts")
    real, peak = found.pop("real parameters"), found.pop("all")
    assert found["parameters"] == found["gradients"] == real
    assert found["optimizer state"] == 2 * real
    assert sum(found.values()) == peak


def test_a_forward_alone_has_no_gradients(run: Runner) -> None:
    found = run("fit_steps.forward_alone")
    assert found["gradients"] == found["state"] == 0
    assert abs(found["predicted"] / found["real"] - 1) < 0.05, found


def test_an_optimizer_with_state_is_one_without(run: Runner) -> None:
    assert len(set(run("fit_steps.optimizers"))) == 1


def test_attention_with_dropout_keeps_no_square(run: Runner) -> None:
    few, many = run("fit_steps.attention_with_dropout")
    assert many < 4.1 * few


def test_another_size_and_another_dtype(run: Runner) -> None:
    found = run("fit_steps.other_sizes")
    assert found["given"] == found["made"]
    whole, half = found["halves"]
    assert abs(half - whole / 2) <= 4 * 512  # each in blocks


def test_a_step_can_change_its_models_dtype(run: Runner) -> None:
    found = run("fit_steps.cast_in_the_step")
    assert len(set(found["parameters"])) == 1
    assert found["now"] == "torch.float32"


def test_the_largest_batch_fits_and_one_more_does_not(run: Runner) -> None:
    found = run("fit_steps.largest_batch")
    assert found["size"] > 100
    assert found["fits"][0] is True
    assert found["fits"][1] is ("at least" in found["verdict"])  # on a slow machine


@pytest.mark.parametrize("way", ["items", "list", "indices"])
def test_a_step_that_goes_through_its_batch_is_predicted_in_a_time(run: Runner, way: str) -> None:
    """The larger batches that are tried would take hours."""
    found = run("fit_steps.one_by_one", way)
    assert found["largest"] >= 8
    assert "at least" in found["verdict"]


def test_nothing_but_the_answer_is_said(run: Runner) -> None:
    """PyTorch logs each error of a fake tensor, and warns of `float`."""
    found = run("fit_steps.quiet")
    assert found["said"] == [""]
    assert found["error"].startswith("The step raises RuntimeError: ")
    assert found["printed"] == ["1.0"]


FUNCTIONS = "autocast scaler logging closure partial scheduler cuda_calls compiled checkpoint class own_dataset decorator"


@pytest.mark.parametrize("function", [f"with_{name}" for name in FUNCTIONS.split()])
def test_a_function_is_followed_and_changes_nothing(run: Runner, function: str) -> None:
    found = run("fit_steps.followed", function)
    assert found["ended"] == ""
    assert found["changed"] == []
    assert not found["started"]
    assert found["parts"]["parameters"] > 0
    assert found["parts"]["gradients"] > 0
    assert found["parts"]["optimizer state"] > 0


def test_a_model_stays_as_it_is(run: Runner) -> None:
    found = run("fit_steps.model_alone")
    assert (found["ended"], found["changed"], found["started"]) == ("", [], False)


@pytest.mark.parametrize(
    ("function", "why", "line"),
    [
        ("by_bool", "it needs what a tensor holds", "if loss > 0:"),
        ("by_item", "it decides by a number that a tensor holds", "if loss.item() > 0:"),
        ("by_shape", "the shape of what nonzero() returns depends on data", "return x.nonzero()"),
        ("not_copied", "it trains a parameter of what cannot be copied", "x = self.first(x)"),
        ("over_loader", "it decides by a number that a tensor holds", "for inputs, targets in loader:"),
        ("leaving", "cannot be predicted: it needs what a tensor holds", "return model(x).detach().numpy()"),
        ("wrong_width", "The step raises RuntimeError", "x = self.first(x)"),
        ("exits", "The step raises SystemExit: 3", "raise SystemExit(3)"),
        ("no_tensors", "computes nothing with tensors", ""),
    ],
)
def test_what_cannot_be_predicted_names_the_line(run: Runner, function: str, why: str, line: str) -> None:
    found = run("fit_steps.refused", function)
    assert why in found["ended"]
    assert found["changed"] == []
    if line:
        number = re.search(r"in line (\d+) of ", found["ended"])
        assert number
        assert line in found["ended"]
        assert line in (PROGRAMS / "fit_steps.py").read_text().splitlines()[int(number[1]) - 1]


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_an_interrupt_is_heard_and_changes_nothing(run: Runner, where: str) -> None:
    found = run("fit_steps.interrupted_in", where)
    assert (found["ended"], found["changed"]) == ("interrupted", [])


def test_an_interrupt_at_any_moment_changes_nothing(run: Runner) -> None:
    assert run("fit_steps.interrupted_anywhere", 12) == []


def test_other_threads_have_pytorch_as_it_is(run: Runner) -> None:
    assert run("fit_steps.in_another_thread") == ["Parameter", "torch.float64", "cuda"]


def test_the_user_s_code_is_interrupted_where_it_is(run: Runner) -> None:
    assert run("fit_steps.sleeping_is_interrupted") < 30


def test_the_driver_is_not_asked_for_a_gpu(run: Runner) -> None:
    assert run("fit_steps.starts_no_cuda") == 0


@pytest.mark.parametrize("how", ["model", "function", "error"])
def test_nothing_is_kept_alive(run: Runner, how: str) -> None:
    assert run("fit_steps.kept_alive", how) == {"alive": [], "failed": how == "error"}


def test_what_is_on_a_gpu_already_is_known(pretend: dict[str, str]) -> None:
    """The prediction is the same wherever the model is; what it takes there now is not needed twice."""
    found = Runner(devices(pretend))("fit_on_gpu.there")
    assert found["same"]
    assert found["present"] == {"1": found["held"]}


def test_batches_of_all_kinds_are_found_and_resized(run: Runner) -> None:
    found = run("fit_steps.batches")
    small, large, _, parameters = found["a dict"]
    assert large > 2 * small
    assert found == {kind: [small, large, 4096, parameters] for kind in found}


def test_a_batch_of_rows_of_a_dataset_is_not_the_dataset(run: Runner) -> None:
    own, rows, columns = run("fit_steps.rows_of_a_dataset")
    assert own == rows == columns


def test_another_module_of_a_frameworks_name_is_none(run: Runner) -> None:
    assert run("fit_steps.without_frameworks") == [
        True,
        "%gpu_fit predicts steps of PyTorch and of JAX, and neither is imported.",
    ]


@pytest.mark.parametrize(
    "name",
    # PyTorch itself cannot do without those that end with "hooks".
    [one for one in sorted(PRIVATE) if "%gpu_fit" in PRIVATE[one][1] and not one.endswith("hooks")],
)
def test_without_a_private_name_one_line_says_so(run: Runner, name: str) -> None:
    told = run("fit_steps.without", name)
    is_needed = "predicts no step" in PRIVATE[name][1]
    assert ("has no fake tensors" in told) if is_needed else told == "True"


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("nothing", "There is no model of PyTorch; try %gpu_fit model optimizer batch."),
        ("no batch", "There is no batch; try %gpu_fit model optimizer batch."),
        ("keras", "Model is a model of Keras; %gpu_fit predicts those of PyTorch."),
        ("two models", "A step has one model and one optimizer; --loss names a loss."),
        ("a number", "There is no tensor in an int; try %gpu_fit model optimizer batch."),
        ("another's optimizer", "The optimizer has no parameter of this model"),
        ("a dtype", "dtype is one of float16, bfloat16, float32, float64, and not bf16."),
        ("amp", "dtype is one of float16, bfloat16, and not float32."),
        ("a loss's class", "loss is a class; try MSELoss()."),
        ("options", "--loss, --eval, --amp and --dtype are for a model"),
        ("no size", "--batch needs a batch whose tensors have a common dimension 0."),
        ("a closure", "closure"),
        ("decides", "ASGD decides by what tensors hold; try it without the optimizer"),
        ("not trained", "No output of the model depends on a parameter that is trained; try --eval."),
        ("lazy", "The step raises"),
        ("parallel", "DataParallel spreads a step over GPUs: predict model.module"),
        ("empty loader", "Give a batch in place of this DataLoader"),
        ("loader of a stream", "Give a batch in place of this DataLoader"),
    ],
)
def test_bad_input_is_one_line(run: Runner, case: str, said: str) -> None:
    found = run("fit_steps.bad_input", case)
    assert said in found
    assert "\n" not in found
