"""`%gpu_fit` as typed, in an IPython shell over a simulated machine, with PyTorch; and the line after an error."""

from __future__ import annotations

import contextlib
import io
import os
from typing import TYPE_CHECKING

import pynvml
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from gpu_magic.testing import simulate
from tests.programs.runner import ELSEWHERE

if TYPE_CHECKING:
    from tests.programs.runner import Runner

if ELSEWHERE:
    import torch
    import torch._dynamo  # which the first optimizer imports: two seconds, once for all programs here

    # One that is built for CUDA predicts in a forked process: there the pretend accelerator bars autograd.
    torch.version.cuda = None

SETUP = """
import torch
from torch import nn
from types import SimpleNamespace
model = nn.Sequential(nn.Linear(64, 4096), nn.ReLU(), nn.Linear(4096, 8))
optimizer = torch.optim.AdamW(model.parameters())
x, y = torch.randn(32, 64), torch.randn(32, 8)
batch = x, y
things, state = {"model": model, "optimizer": optimizer}, SimpleNamespace(batch=x)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 4, shuffle=True, num_workers=2)
with torch.device("meta"):
    huge = nn.Linear(64, 100_000_000)
optimizer_of_huge = torch.optim.AdamW(huge.parameters())

def train_step(batch, scale=1.0):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(batch[0]), batch[1]) * scale
    loss.backward()
    optimizer.step()
    print("loss", loss.item())

def exits(batch):
    model(batch[0])
    raise SystemExit(1)

class Trainer:
    def step(self, batch):
        train_step(batch)

trainer = Trainer()
"""


@contextlib.contextmanager
def shell_on(machine):
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    with simulate("2xA100-80GB", clock=lambda: 0.0) as there:
        there.gpus[0].run("train.py", "maria", 70 << 30, work=90)
        if machine == "hides":
            for gpu in there.gpus:
                gpu.fail("nvmlDeviceGetMemoryInfo_v2", pynvml.NVML_ERROR_NOT_SUPPORTED)
                gpu.fail("nvmlDeviceGetMemoryInfo", pynvml.NVML_ERROR_NOT_SUPPORTED)
        if machine == "has started":
            for gpu in there.gpus:
                gpu.run("python", "me", 1 << 29, pid=os.getpid())
        shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
        shell.run_cell("%load_ext gpu_magic")
        shell.run_cell(SETUP).raise_error()
        yield shell


def typed(lines, machine=""):
    """Return what was shown for each line, and what went wrong."""
    found = []
    with shell_on(machine) as shell:
        for line in lines:
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                shell.run_cell(line, store_history=True)
            found.append([out.getvalue().strip(), err.getvalue().strip()])
    return found


def completed(lines):
    with shell_on("") as shell, provisionalcompleter():
        return [
            [
                line[: one.start] + one.text + line[one.end :]
                for one in shell.Completer.completions(line, len(line))
            ]
            for line in lines
        ]


GOOD = [
    "%gpu_fit batch optimizer model",
    "%gpu_fit model, optimizer, (x, y) --loss nn.functional.mse_loss",
    "%gpu_fit model optimizer x y --loss lambda out, target: (out - target).square().mean()",
    "%gpu_fit things['model'] things['optimizer'] state.batch",
    "%gpu_fit model optimizer loader --loss nn.MSELoss() --amp --dtype='bfloat16'",
    "%gpu_fit model optimizer x --eval",
    "%gpu_fit model optimizer batch --batch 64;",
    "%gpu_fit train_step(batch, scale=2.0)",
    "%gpu_fit trainer.step(batch)",
    "%gpu_fit train_step(*[batch])",
]
BAD = {
    "%gpu_fit": "No PyTorch model is named. Try %gpu_fit model optimizer batch",
    "%gpu_fit modl optimizer batch": "modl is not a variable here. Did you mean model?",
    "%gpu_fit model optimizer x[": "x[ is not an expression",
    "%gpu_fit model optimizer next(iter(loader))": "next(iter(loader)) calls a function. Assign",
    "%gpu_fit model things['no']": "things['no'] raises KeyError",
    "%gpu_fit x(y)": "x is not a function.",
    "%gpu_fit train_step": "train_step is a function. Try %gpu_fit train_step(batch)",
    "%gpu_fit train_step(await x)": "cannot be called: 'await' outside",
    "%gpu_fit exits(batch)": "The step raises SystemExit: 1, in line ",
    "%gpu_fit model optimizer batch --dtype int8": "--dtype is bfloat16, float16, float32 or float64",
    "%gpu_fit model optimizer batch --batch many": "--batch many is not a number of items. Try --batch 64",
    "%gpu_fit model optimizer batch --loss nn.MSELoss": "--loss is the class MSELoss. Add () behind it.",
    "%gpu_fit model optimizer batch --loss 3": "--loss is an int, not a function.",
    "%gpu_fit model optimizer": "No batch is named. Try %gpu_fit model optimizer batch",
    "%gpu_fit train_step(batch) --amp": "are for a model, not for a function.",
}
FULL = """class Full(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(64, 8)
    def forward(self, x, scale=1.0):
        calls.append(1)
        if is_full:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return self.inner(x) * scale
def full_step(batch, scale=1.0):
    full(batch[0] * scale).sum().backward()
full, is_full, calls = Full(), True, []
of_full = torch.optim.Adam(full.parameters())
fulls, named = {"a model": full}, {"x": x}
"""
END = "import gc, weakref; seen = weakref.ref(full.inner.weight); del full, of_full, fulls; gc.collect(); seen() is None"
# Cells that run out of memory, and the line below the error; empty if there is none.
FAILED = {
    "loss = full(x).sum()": "full of_full x",
    "full.eval(); full(x)": "full x --eval",
    "full.train(); full(**named)": "full of_full named",
    "out = fulls['a model'](state.batch)": "fulls['a model'] of_full state.batch",
    "full(x, 2.0)": "full(x, 2.0)",
    "for pair in [batch]:\n    é = full_step(\n        pair, scale=2.0)": "full_step(pair, scale=2.0)",
    "try:\n    full(x)\nexcept RuntimeError as error:\n    raise ValueError from error": "full of_full x",
    "raise torch.OutOfMemoryError('CUDA out of memory.')": "",
    "exec('full(x)')": "",  # whose source is nowhere
    "[full(one) for one in [x]]": "",  # whose variable ends with it
}


@pytest.mark.timeout(240)  # ten predictions, each of which looks over a second for the largest batch
def test_what_is_typed_is_predicted(run: Runner) -> None:
    found = dict(zip(GOOD, run(typed, GOOD), strict=True))
    for line, (shown, wrong) in found.items():
        assert "\npeak" in shown, (line, wrong)
        assert "fits on SIMULATED GPU 1 (79.1 GiB free) and SIMULATED GPU 0 (9.1 GiB free)." in shown
        assert "Largest batch: " in shown or "*" in line  # whose size is not known
        assert not wrong


def test_what_is_wrong_is_one_line(run: Runner) -> None:
    found = dict(zip(BAD, run(typed, list(BAD)), strict=True))
    for line, (shown, wrong) in found.items():
        assert BAD[line] in shown + wrong, line
        assert "Traceback" not in shown + wrong


def test_an_error_for_want_of_memory_ends_with_a_line_that_works(run: Runner) -> None:
    predict = [f"%gpu_fit {line}" for line in FAILED.values() if line]
    lines = [FULL, *FAILED, "len(calls)", "is_full = False; pair = batch", *predict, "1 / 0", END]
    found = dict(zip(lines, run(typed, lines), strict=True))
    assert found["len(calls)"][0].endswith(str(len(FAILED) - 1))  # to say that, nothing of a step runs again
    assert found[END][0].endswith("True")  # and nothing is kept once there is another error
    for cell, line in FAILED.items():
        last = found[cell][0].splitlines()[-1]
        assert (
            last == f"To predict the memory of this step: %gpu_fit {line}"
            if line
            else "To predict" not in last
        )
    for line in predict:
        assert "\npeak" in found[line][0], line


# What a line shows where a cell has chosen GPUs, by what is special about the machine.
PLACES = {
    "": [
        ("", "%gpu_fit huge optimizer_of_huge x", "Most free: SIMULATED GPU 1, 79.1 GiB. A batch of 1 does not fit."),
        ("%gpus none", "%gpu_fit model batch", "No verdict: no GPU is visible."),
    ],
    "hides": [
        ("", "%gpu_fit model batch", "which GPUs are visible is unknown. Choose one with %gpus auto."),
        ("%gpus 0,1", "%gpu_fit model batch", "the free memory of SIMULATED GPU 0 and SIMULATED GPU 1 is"),
        ("import gpu_magic\n%gpus 0", "gpu_magic.fit(model, batch).fits", "{'cuda:0': UNKNOWN}"),
    ],
    "has started": [("", "%gpu_fit model batch", "MiB, and 0.2 GiB for CUDA: fits on")],
}  # fmt: skip


@pytest.mark.parametrize("machine", PLACES)
def test_where_it_fits(run: Runner, machine: str) -> None:
    cells = [cell for chosen, line, _ in PLACES[machine] for cell in (chosen, line)]
    for (shown, _), (_, line, said) in zip(run(typed, cells, machine)[1::2], PLACES[machine], strict=True):
        assert said in shown, line


def test_tab_offers_options_and_variables(run: Runner) -> None:
    lines = ["%gpu_fit mod", "%gpu_fit model --d", "%gpu_fit model --dtype b"]
    found = [["%gpu_fit model"], ["%gpu_fit model --dtype"], ["%gpu_fit model --dtype bfloat16"]]
    assert run(completed, lines) == found
