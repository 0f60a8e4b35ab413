"""`%gpu_fit` as typed, in an IPython shell over a simulated machine, with PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.programs.runner import Runner


def test_a_model_an_optimizer_and_a_batch(run: Runner) -> None:
    (shown, wrong), *_ = run("fitting_typed.typed", ["%gpu_fit model optimizer batch --loss nn.MSELoss()"])
    lines = shown.split("\n")
    assert [line.split("  ")[0] for line in lines[:6]] == [
        "parameters",
        "gradients",
        "optimizer state",
        "activations",
        "temporary",
        "peak",
    ]
    assert lines[6].startswith(
        f"{lines[5].split('  ')[-1].strip()} and 0.5 GiB for CUDA itself: fits on SIMULATED GPU 1 (79.1"
    )
    assert "SIMULATED GPU 0 (9.1 GiB free)" in lines[6]
    assert "; batch up to " in lines[6]
    assert len(lines) == 7
    assert not wrong


def test_the_same_as_html(run: Runner) -> None:
    page = run("fitting_typed.html")
    assert "<td>optimizer state</td>" in page
    assert "gm-bar" in page
    assert "fits on" in page


@pytest.mark.parametrize(
    "line",
    [
        "%gpu_fit batch optimizer model",
        "%gpu_fit model, optimizer, (x, y) --loss nn.functional.mse_loss",
        "%gpu_fit model optimizer x y --loss lambda out, target: (out - target).square().mean()",
        "%gpu_fit things['model'] things['optimizer'] state.batch",
        "%gpu_fit model optimizer loader --loss nn.functional.mse_loss  # a comment",
        "%gpu_fit model x --eval",
        "%gpu_fit model optimizer batch --amp --dtype float16",
        "%gpu_fit model optimizer batch --dtype bfloat16 --batch 64",
        "%gpu_fit train_step(batch)",
        "%gpu_fit train_step(batch, scale=2.0);",
        "%gpu_fit train_step((x.clone(), y))",
        "%gpu_fit trainer.step(batch)",
    ],
)
def test_ways_to_type_it(run: Runner, line: str) -> None:
    (shown, wrong), *_ = run("fitting_typed.typed", [line])
    assert "peak" in shown
    assert "fits on" in shown
    assert not wrong


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "%gpu_fit",
            "There is no model; give a model, an optimizer and a batch: %gpu_fit model optimizer batch;",
        ),
        ("%gpu_fit modl optimizer batch", "modl is not a variable here; did you mean model?"),
        ("%gpu_fit model optimizer x[", "x[ is not an expression: name them as in Python"),
        ("%gpu_fit model optimizer next(iter(loader))", "next(iter(loader)) calls a function: assign"),
        ("%gpu_fit nothing.there(x)", "nothing is not a variable here"),
        ("%gpu_fit x(y)", "x is no function."),
        ("%gpu_fit print", "There is no model in a builtin_function_or_method; give a model, an optimizer"),
        ("%gpu_fit print(batch)", "print(batch) computes nothing with tensors: give the call of a function"),
        ("%gpu_fit len([x, y])", "len([x, y]) computes nothing with tensors: give the call of a function"),
        ("%gpu_fit exits(batch)", "The step raises SystemExit: 1, in line "),
        (
            "%gpu_fit model optimizer batch --dtype int8",
            "--dtype is bfloat16, float16, float32 or float64, and not",
        ),
        ("%gpu_fit model optimizer batch --batch many", "--batch is a number of items, and not many."),
        ("%gpu_fit model optimizer batch --los x", "--loss"),
        ("%gpu_fit model optimizer batch --loss 3", "--loss is a function or a module, and not an int."),
        (
            "%gpu_fit model optimizer batch --loss nn.MSELoss",
            "--loss is the class MSELoss, and not a function",
        ),
        ("%gpu_fit model optimizer", "There is no batch: %gpu_fit model optimizer batch."),
        ("%gpu_fit model optimizer x --eval", "--eval is the forward alone: leave the optimizer out."),
        ("%gpu_fit model model x", "There are two models, and a step has one; --loss names a loss."),
        ("%gpu_fit model optimizer x", "The loss is the sum of the output: --loss names another one."),
        ("%gpu_fit train_step(batch) --amp", "--amp is for a model: the function itself says how it trains."),
    ],
)
def test_what_is_wrong_is_one_line(run: Runner, line: str, said: str) -> None:
    (shown, wrong), *_ = run("fitting_typed.typed", [line])
    text = f"{shown}{wrong}"
    assert said in text
    assert "Traceback" not in text


FULL = """class Full(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(64, 8)
    def forward(self, x, scale=1.0):
        if is_full:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return self.inner(x) * scale
def full_step(batch, scale=1.0):
    full(batch[0] * scale).sum().backward()
full, is_full = Full(), True
of_full = torch.optim.Adam(full.parameters())
fulls, named = {"a model": full}, {"x": x}
"""


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("loss = full(x).sum()", "full of_full x"),
        ("full.eval(); full(x)", "full x --eval"),
        ("full(**named)", "full of_full named"),
        ("out = fulls['a model'](state.batch)", "fulls['a model'] of_full state.batch"),
        ("full(x=x)", "full(x=x)"),
        ("full(x, 2.0)", "full(x, 2.0)"),
        ("full(x + 1)", "full(x + 1)"),
        ("full.eval()(x)", "full.eval()(x)"),
        ("for pair in [batch]:\n    é = full_step(\n        pair, scale=2.0)", "full_step(pair, scale=2.0)"),
        ("%%on_gpu cpu\n\nfull(\n    x)", "full of_full x"),
        (
            "try:\n    full(x)\nexcept RuntimeError as error:\n    raise ValueError from error",
            "full of_full x",
        ),
    ],
)
def test_an_error_for_want_of_memory_ends_with_a_line_that_works(run: Runner, cell: str, line: str) -> None:
    _, (shown, _), _, (predicted, wrong) = run(
        "fitting_typed.typed", [FULL, cell, "is_full = False", f"%gpu_fit {line}"]
    )
    assert shown.splitlines()[-1] == f"To predict the memory of this step: %gpu_fit {line}"
    assert "peak" in predicted
    assert not wrong


@pytest.mark.parametrize(
    "cell",
    [
        "raise torch.OutOfMemoryError('CUDA out of memory.')",
        "exec('full(x)')",  # whose source is nowhere
        "[full(one) for one in [x]]",  # whose variable ends with it
        # The backward computes the model's forward again, and is no step by itself.
        "is_full = False\nfrom torch.utils.checkpoint import checkpoint\n"
        "loss = checkpoint(full, x.requires_grad_(), use_reentrant=False).sum()\n"
        "is_full = True\nloss.backward()",
    ],
)
def test_without_a_call_of_a_model_in_the_cell_there_is_no_line(run: Runner, cell: str) -> None:
    _, (shown, _) = run("fitting_typed.typed", [FULL, cell])
    assert "Out of memory" in shown
    assert "To predict" not in shown


def test_where_no_gpu_has_room_it_says_what_would_fit(run: Runner) -> None:
    (shown, _), (none, _) = run(
        "fitting_typed.typed",
        ["%gpu_fit model optimizer batch --batch 4000000", "%gpu_fit huge optimizer_of_huge x"],
    )
    assert (
        "fits on no GPU of this process: SIMULATED GPU 1 has 79.1 GiB free, the most; batch up to " in shown
    )
    assert shown.split("\n")[6].endswith(" would fit.")
    assert none.split("\n")[6].endswith("; not even a batch of 1 would.")


def test_unknown_free_memory_gives_no_verdict(run: Runner) -> None:
    _, (shown, _) = run("fitting_typed.typed", ["%gpus 0,1", "%gpu_fit model optimizer batch"], "hides")
    assert "no verdict, as the free memory of GPU 0 is not known." in shown


def test_unknown_gpus_give_no_verdict(run: Runner) -> None:
    """Without memory it is not known whether the GPUs are alike, and so not which one CUDA counts first."""
    (shown, _), *_ = run("fitting_typed.typed", ["%gpu_fit model optimizer batch"], "hides")
    assert "no verdict, as it is not known which GPUs this process sees: %gpus 0 chooses one." in shown


def test_without_a_gpu_there_is_no_verdict(run: Runner) -> None:
    _, (shown, _) = run("fitting_typed.typed", ["%gpus none", "%gpu_fit model optimizer batch"])
    assert "no verdict, as this process sees no GPU." in shown


def test_a_context_that_is_there_is_not_counted_again(run: Runner) -> None:
    (shown, _), *_ = run("fitting_typed.typed", ["%gpu_fit model optimizer batch"], "has started")
    assert "for CUDA itself" not in shown


def test_tab_offers_options_and_variables(run: Runner) -> None:
    found = run(
        "fitting_typed.completed",
        ["%gpu_fit mod", "%gpu_fit model --d", "%gpu_fit model --dtype b"],
    )
    assert found == [
        ["%gpu_fit model"],
        ["%gpu_fit model --dtype"],
        ["%gpu_fit model --dtype bfloat16"],
    ]
