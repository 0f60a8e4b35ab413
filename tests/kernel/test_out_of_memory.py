"""What is said below an error for want of GPU memory, in a real kernel on four A100s."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.conftest import ROOT
from tests.machine import CARDS, GIB, Driver
from tests.native import SOURCES

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


def test_the_error_can_be_the_cause_of_another(kernel: Kernel) -> None:
    cell = "try:\n    take(1 << 50)\nexcept torch.OutOfMemoryError as error:\n    raise RuntimeError('in step 7') from error"
    reply = kernel.run(cell)
    assert reply.errors == ["in step 7"]
    assert reply.stdout.startswith("Out of memory: ")


@pytest.mark.parametrize(
    "cell",
    [
        "raise MemoryError('host memory')",
        "raise RuntimeError('out of memory')",
        "1 / 0",
        "%gpus 9",
        "try:\n    take_all()\nexcept RuntimeError:\n    {}['key']",
        "try:\n    take_all()\nexcept RuntimeError:\n    raise KeyError('key') from None",
        "class Bad(Exception):\n    def __str__(self): raise ValueError\nraise Bad",
    ],
)
def test_nothing_is_said_of_other_errors(kernel: Kernel, cell: str) -> None:
    assert "Out of memory" not in kernel.run(cell).stdout


@pytest.mark.parametrize(
    "cell",
    [
        "raise ExceptionGroup('tasks', [ValueError(), torch.OutOfMemoryError('out of memory')])",
        "raise RuntimeError('CUDA error: out of memory')",
        "raise RuntimeError('CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`')",
    ],
)
def test_errors_of_cudas_libraries_and_groups_are_known(kernel: Kernel, cell: str) -> None:
    assert kernel.run(cell).stdout.startswith("Out of memory")


def test_others_are_named_with_what_they_have(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(CUDA_VISIBLE_DEVICES="2", PYTHONPATH=f"{ROOT}:{SOURCES / 'standin'}")
    used = replace(CARDS[2], used=78 * GIB, reserved=GIB, processes=((kernel.pid, GIB), (1, 60 * GIB)))
    kernel.change_machine(Driver((*CARDS[:2], used, CARDS[3])))
    kernel.run("%load_ext gpu_magic")
    # CuPy's stand-in is a CUDA framework: its errors are of the GPU that this process sees.
    reply = kernel.run(
        "import cupy, sys, types\n"
        "class OutOfMemoryError(MemoryError): pass\n"
        "sys.modules['cupy.cuda.memory'] = types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError)\n"
        "raise OutOfMemoryError('Out of memory allocating 2,147,483,648 bytes (allocated so far: 0 bytes).')"
    )
    head, *rest = reply.stdout.splitlines()
    assert head == (
        "Out of memory on cuda:0 = GPU 2 (NVIDIA A100-SXM4-80GB): 2.0 GiB more were asked for, "
        "1.0 GiB of 80.0 GiB are free now."
    )
    assert any(line.strip().startswith("others") and line.endswith("(60.0 GiB)") for line in rest)
    assert rest[-1] == "  %gpu_free    would give nothing back."


def test_unloading_ends_it(kernel: Kernel) -> None:
    kernel.run("%unload_ext gpu_magic")
    assert kernel.run("take_all()").stdout == ""


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
