"""The memory that is predicted for steps, beside that of real ones; and that predicting changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpu_magic.frameworks.private import PRIVATE

if TYPE_CHECKING:
    from tests.programs.runner import Runner

MODELS = "cnn lstm transformer checkpointed mixed_precision frozen hugging_face".split()


@pytest.mark.timeout(180)  # real steps under PyTorch's profiler
@pytest.mark.parametrize(
    "step", [*(f"prediction {name}" for name in MODELS), "accumulation", "forward_alone"]
)
def test_the_peak_is_that_of_a_real_step(run: Runner, step: str) -> None:
    found = run(*f"fit_models.{step}".split())
    assert found["real"] > 10 << 20  # so much that blocks of 512 bytes do not matter
    assert abs(found["predicted"] / found["real"] - 1) < 0.05, found


@pytest.mark.parametrize("file", ["fit_steps", "fit_jax"])
def test_what_is_predicted_is_what_it_is_to_be(run: Runner, file: str) -> None:
    for about, (found, expected) in run(f"{file}.figures").items():
        assert found == expected, about


def test_the_largest_batch_fits_and_one_more_does_not(run: Runner) -> None:
    found = run("fit_steps.largest_batch")
    assert found["size"] > 100
    assert found["fits"][0] is True
    assert found["fits"][1] is ("at least" in found["verdict"])  # on a slow machine


FOUND = {
    "one_by_one": [[True, True]] * 3,
    "quiet": ["", "The step raises RuntimeError", "1.0"],
    "interrupted": [*[["interrupted", []]] * 2, 0],
    "interrupted_anywhere": [],
    "in_another_thread": ["Parameter", "torch.float64", "cuda"],
    "starts_no_cuda": 0,
    "in_a_forked_process": {
        "same": True,
        "forked": True,
        "ended": [
            "FitError The process that predicts has ended without an answer; the kernel goes on.",
            "KeyboardInterrupt ",
        ],
        "left": [],
    },
    "kept_alive": [[[], False], [[], False], [[], True]],
}


@pytest.mark.parametrize("program", FOUND)
def test_nothing_but_the_answer_is_there(run: Runner, program: str) -> None:
    assert run(f"fit_steps.{program}") == FOUND[program]


FUNCTIONS = "autocast scaler logging closure partial scheduler cuda_calls compiled checkpoint class own_dataset decorator"


def test_a_model_and_functions_are_followed_and_stay_as_they_are(run: Runner) -> None:
    for name, (parts, how) in run("fit_steps.followed", [f"with_{one}" for one in FUNCTIONS.split()]).items():
        assert how == {"ended": "", "changed": [], "started": False}, name
        assert min(parts[part] for part in ("parameters", "gradients", "optimizer state")) > 0, name


# Bodies of functions, why they cannot be predicted, and where.
REFUSED = {
    "loss = model(x).sum()\nif loss > 0: update(loss)": ("it needs what a tensor holds", "3 of step"),
    "loss = model(x).sum()\nif loss.item() > 0: update(loss)": (
        "it decides by a number that a tensor holds",
        "3 of step: if loss.item() > 0: update(loss)",
    ),
    "return x.nonzero()": ("the shape of what nonzero() returns depends on data", "2 of step"),
    "for inputs, targets in loader: model(inputs + table.sum())": ("it decides by a number", "2 of step"),
    "return model(x).detach().numpy()": ("cannot be predicted: it needs what a tensor holds", "2 of step"),
    "return model(x[:, :3])": ("The step raises RuntimeError", " of forward: x = self.first(x)"),
    "return held['model'](x).sum().backward()": (
        "it trains a parameter of what cannot be copied",
        " of forward: x = ",
    ),
    "model(x)\nraise SystemExit(3)": ("The step raises SystemExit: 3", "3 of step"),
    "return len(x)": ("computes nothing with tensors", ""),
}


def test_what_cannot_be_predicted_names_the_line_and_changes_nothing(run: Runner) -> None:
    for body, (ended, changed) in zip(REFUSED, run("fit_steps.refused", list(REFUSED)), strict=True):
        why, where = REFUSED[body]
        assert (why in ended, where in ended, changed) == (True, True, []), ended
        assert ("in line " in ended) == bool(where)


@pytest.mark.parametrize(
    "name",
    # PyTorch itself cannot do without those that end with "hooks".
    [one for one in sorted(PRIVATE) if "%gpu_fit" in PRIVATE[one][1] and not one.endswith("hooks")],
)
def test_without_a_private_name_one_line_says_so(run: Runner, name: str) -> None:
    told = run("fit_steps.without", name)
    is_needed = "predicts no step" in PRIVATE[name][1]
    assert ("has no fake tensors" in told) if is_needed else told == "True"


BAD = {
    "fit(x)": "There is no model of PyTorch; try %gpu_fit model optimizer batch.",
    "fit(model, optimizer)": "There is no batch; try %gpu_fit model optimizer batch.",
    "fit(of_keras, x)": "Model is a model of Keras; %gpu_fit predicts those of PyTorch.",
    "fit(model, other, x)": "A step has one model and one optimizer; --loss names a loss.",
    "fit(model, 3, x)": "There is no tensor in an int; try %gpu_fit model optimizer batch.",
    "fit(other, optimizer, x)": "The optimizer has no parameter of this model",
    "fit(model, x, dtype='bf16')": "dtype is one of float16, bfloat16, float32, float64, and not bf16.",
    "fit(model, x, amp=True, dtype='float32')": "dtype is one of float16, bfloat16, and not float32.",
    "fit(model, x, loss=nn.MSELoss)": "loss is a class; try MSELoss().",
    "fit(with_closure, batch, amp=True)": "--loss, --eval, --amp and --dtype are for a model",
    "fit(model, (x, y[:5]), loss=nn.MSELoss(), batch_size=4)": "--batch needs a batch whose tensors have a common",
    "fit(model, x, batch_size=0)": "--batch 0 is not a number of items; try --batch 64.",
    "fit(model, torch.optim.LBFGS(model.parameters()), x)": "closure",
    "fit(model, torch.optim.ASGD(model.parameters()), x)": "ASGD decides by what tensors hold; try it without the",
    "fit(nn.Flatten(), x)": "No output of the model depends on a parameter that is trained; try --eval.",
    "fit(nn.LazyLinear(4), x)": "The step raises",
    "fit(nn.DataParallel(model), x)": "DataParallel spreads a step over GPUs: predict model.module",
    "fit(model, DataLoader([], 4))": "Give a batch in place of this DataLoader",
    "fit(model, DataLoader(Stream(), 4))": "Give a batch in place of this DataLoader",
}


def test_bad_input_is_one_line(run: Runner) -> None:
    for call, found in zip(BAD, run("fit_steps.bad_input", list(BAD)), strict=True):
        assert BAD[call] in found, call
        assert "\n" not in found


def test_a_step_of_jax_that_cannot_be_traced_is_one_line(run: Runner) -> None:
    *decides, exits = run("fit_jax.refused")
    assert {one.rpartition(" of ")[2] for one in decides} == {"decides: return x if x.sum() > 0 else -x"}
    assert exits.startswith("The step raises SystemExit: 4, in line ")
    assert "\n" not in "".join([*decides, exits])
