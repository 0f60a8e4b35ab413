"""`%%on_gpu`, `%where` and the options of `%gpus` that frameworks are told, in a real kernel on four A100s.

PyTorch's devices are the pretend accelerator's: a cell that runs, runs there.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel

TORCH = version("torch")


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel], pretend: dict[str, str]) -> Kernel:
    kernel = start_kernel(**pretend)
    assert kernel.run("%load_ext gpu_magic").status == "ok"
    return kernel


@pytest.fixture
def bare(start_kernel: Callable[..., Kernel], pretend: dict[str, str]) -> Kernel:
    """Return a kernel whose PyTorch has no accelerator: the build without CUDA."""
    kernel = start_kernel(**pretend, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert kernel.run("%load_ext gpu_magic").status == "ok"
    return kernel


@pytest.mark.parametrize("target", ["GPU-3a", "1"])
def test_the_physical_gpu_behind_it_is_named(kernel: Kernel, target: str) -> None:
    kernel.run("%gpus 2,3")
    kernel.run("import torch")
    reply = kernel.run(f"%%on_gpu {target} -v\ntorch.ones(1).device")
    assert reply.text == "device(type='pretend', index=1)"
    assert reply.stdout == "Ran on cuda:1 = GPU 3 (NVIDIA A100-SXM4-80GB): PyTorch on pretend:1.\n"


def test_or_cpu_places_what_the_cell_imports_on_the_cpu(bare: Kernel) -> None:
    reply = bare.run("%%on_gpu 0 --or-cpu\nimport torch\ntorch.ones(1).device")
    assert (reply.status, reply.text) == ("ok", "device(type='cpu')")
    assert reply.stdout == f"PyTorch runs on the CPU: PyTorch {TORCH} is built without CUDA.\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%gpus 1 --memory-limit lots", "--memory-limit lots is not a size; try --memory-limit 8GB"),
        (
            "%gpus 1 --in-process",
            "CUDA has not been initialized here: try %gpus 1, which is for every framework.",
        ),
        ("%gpus --growth", "--growth names no GPU"),
        ("%where nothing", "nothing is not a variable here. %where alone lists all."),
        ("%where 1 +", "+ is not an expression; several are separated by spaces or commas. %where alone"),
    ],
)
def test_bad_input_is_one_line(kernel: Kernel, line: str, said: str) -> None:
    reply = kernel.run(line)
    assert (reply.status, reply.stdout) == ("error", "")
    assert said in reply.stderr
    assert reply.stderr.count("\n") == 1


def test_in_process_in_a_frozen_kernel(kernel: Kernel) -> None:
    kernel.run("%gpus 1,2,3")
    kernel.run("import torch")
    kernel.run('import ctypes; ctypes.CDLL("libcuda.so.1").cuInit(0)')
    assert (
        "any framework: %%on_gpu 1 for one cell, %gpus 2 --in-process from here on"
        in kernel.run("%gpus 2").text
    )
    assert kernel.run("%gpus 2 --in-process").stdout == (
        "cuda:1 = GPU 2 (NVIDIA A100-SXM4-80GB, 79 GiB free)\n"
        "PyTorch: its current device is pretend:1; the others can still be named.\n"
    )
    where = "torch.accelerator.current_device_index()"
    assert kernel.run(where).text == "1"
    assert kernel.run(f"%%on_gpu 2\n{where}").text == "2"
    assert kernel.run(where).text == "1"
    assert kernel.run("%gpus reset --in-process").stdout == "PyTorch: as it was.\n"
    assert kernel.run(where).text == "0"
    assert "and no other" in kernel.run("%gpus 0 --in-process").stderr


def test_options_with_spaces_and_equals_signs(kernel: Kernel) -> None:
    assert kernel.run("%gpus 1,3 --memory-limit=8 GB --growth").status == "ok"
    kernel.run("import torch")
    reply = kernel.run("%%on_gpu 1 -v --only torch, keras  # both\ntorch.ones(1).device")
    assert reply.text == "device(type='pretend', index=1)"


def test_where_lists_what_holds_arrays(kernel: Kernel) -> None:
    assert kernel.run("%where").stdout == "No variable here holds arrays of a framework that is imported.\n"
    kernel.run("%%on_gpu 2\nimport torch\nmodel, x, n = torch.nn.Linear(4, 4), torch.ones(300), 3")
    assert kernel.run("%where").stdout == (
        "model  pretend:2: 80 bytes in 2 arrays\nx      pretend:2: 1.2 KiB\n"
    )
    assert kernel.run("%where n [x,x]").stdout == "n      no arrays\n[x,x]  pretend:2: 1.2 KiB\n"
