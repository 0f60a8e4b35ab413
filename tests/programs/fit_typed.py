"""An IPython shell with a model, an optimizer and a batch, over a simulated machine, in which lines are typed."""

import contextlib
import io
import os

import pynvml
import torch
import torch._dynamo  # noqa: F401 - which the first optimizer imports: two seconds, once for all programs here
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from gpu_magic.testing import simulate

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
