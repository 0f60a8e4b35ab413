"""What is said below an error for want of GPU memory, in a real kernel on four A100s."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel

MIB = 1 << 20
BEGIN = f"""import torch
MIB = {MIB}
def take(size): return torch.empty(size, device="pretend", dtype=torch.uint8)
def take_all():
    within = take(16 * MIB)
    return take(1 << 50)
"""


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel], pretend: dict[str, str]) -> Kernel:
    kernel = start_kernel(**pretend)
    assert kernel.run("%load_ext gpu_magic").status == "ok"
    kernel.run(BEGIN)
    return kernel


def test_who_holds_what_and_what_would_come_back(kernel: Kernel) -> None:
    kernel.run("model, pair = take(64 * MIB), [take(MIB)] * 2")
    kernel.run("take(8 * MIB)")
    reply = kernel.run("take_all()")
    assert reply.errors == ["pretend out of memory. Tried to allocate 1125899906842624 bytes."]
    head, ours, back, *rest = reply.stdout.splitlines()
    assert head == "Out of memory: 1024.0 TiB more were asked for."  # which of four it was is not said
    assert ours.split(maxsplit=2)[2].startswith("model (64 MiB) and pair (1.0 MiB)")
    assert back.startswith("  %gpu_free    would give back the last error's traceback (16 MiB)")
    assert "Out[4] (8.0 MiB)" in back
    assert rest == []


def test_a_line_asks_what_the_step_takes_and_nothing_is_run_or_kept(kernel: Kernel) -> None:
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
