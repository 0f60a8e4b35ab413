"""What is said below an error for want of GPU memory, in a real kernel on four A100s."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.kernel.conftest import Kernel

MIB = 1 << 20
BEGIN = f"""import torch
MIB = {MIB}
def take(size): return torch.empty(size, device="pretend", dtype=torch.uint8)
def take_all():
    within = take(16 * MIB)
    return take(1 << 50)
"""


def test_what_holds_the_memory_is_named_and_a_line_asks_what_the_step_takes(pretend_kernel: Kernel) -> None:
    """To find that out, nothing of the step runs again, and nothing is kept."""
    kernel = pretend_kernel
    kernel.run(BEGIN)
    kernel.run("pair = [take(MIB)] * 2\ntake(8 * MIB)")
    reply = kernel.run("take_all()")
    assert reply.errors == ["pretend out of memory. Tried to allocate 1125899906842624 bytes."]
    assert reply.stdout.splitlines() == [
        "Out of memory: 1024.0 TiB more were asked for.",  # which of four it was is not said
        "  this kernel  pair (1.0 MiB)",
        "  %gpu_free    would give back the last error's traceback (16 MiB) and Out[3] (8.0 MiB).",
    ]
    kernel.run(
        "import gc, sys, weakref\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.inner = torch.nn.Linear(64, 64)\n"
        "    def forward(self, x):\n"
        "        x = self.inner(x)\n"
        "        return take(1 << 50) if len(x) > 32 else x\n"
        "def count(frame, event, _):\n"
        "    if event == 'call' and frame.f_code.co_qualname == 'Model.forward': calls.append(event)\n"
        "calls = []; model = Model(); batch = torch.ones(64, 64); living = weakref.ref(model.inner.weight)"
    )
    reply = kernel.run("sys.setprofile(count); loss = model(batch).sum()")
    assert kernel.run("sys.setprofile(None); len(calls)").text == "1"
    assert reply.stdout.splitlines()[-1] == "To predict the memory of this step: %gpu_fit model batch"
    kernel.run("1 / 0")  # the last error is another one
    kernel.run("del model, batch; collected = gc.collect()")
    assert kernel.run("living() is None").text == "True"
