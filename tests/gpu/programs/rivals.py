"""Costs, each beside what users would type without gpu_magic, in the same run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks.measure import take_turns
from tests.gpu.claim import Seen, claim, measurement
from tests.gpu.programs.common import Shell, accelerator, alone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CELLS, _SNAPSHOTS, _KERNELS = 15, 30, 5  # turns
_LONG = 0.2  # seconds of a cell that works


def _compared(seconds: Mapping[str, float]) -> tuple[float, str, dict[str, float]]:
    """Return the ratio of the last contender to the first one, and all figures."""
    first, *_, last = seconds.values()
    ratio = last / first
    what = ", ".join(f"{name} {value * 1e3:.2f} ms" for name, value in seconds.items())
    return ratio, f"{what}: {ratio:.2f} x", {f"{name}, ms": value * 1e3 for name, value in seconds.items()}


def _cells(work: str) -> dict[str, float]:
    """Return the seconds of a cell below %%time and below %%gpu_time, once CUDA has started."""
    alone()
    shell = Shell()
    shell.must("import time, torch", f"kept = torch.ones(1000, device={accelerator()!r})")
    magics = ("%%time", "%%gpu_time")
    return take_turns({name: partial(shell.must, f"{name}\n{work}") for name in magics}, _CELLS)


@claim(
    f"A cell of {_LONG} s takes at most 1.2 times as long below `%%gpu_time` as below `%%time`.",
    "measure/recorder.py",
    "an accelerator of PyTorch's",
    "a driver",
)
def long_cell() -> Seen:
    ratio, what, figures = _compared(_cells(f"time.sleep({_LONG}); kept.sum().item()"))
    return Seen(ratio <= 1.2, what, figures)


@measurement(
    "The time of an empty cell below `%%gpu_time` and below `%%time`.",
    "measure/magic.py",
    "an accelerator of PyTorch's",
    "a driver",
)
def short_cell() -> Seen:
    _, what, figures = _compared(_cells("1;"))
    return Seen(True, what, figures)


@claim(
    "`gpu_magic.gpus()` takes at most 10 times as long as bare pynvml that reads the same figures, owners and names. With "
    "the import, the first call takes at most 5 times as long.",
    "devices/nvml.py",
    "a driver",
)
def snapshot() -> Seen:
    from benchmarks.readers import bare, ours

    alone()
    readers = {"pynvml": bare(), "gpus()": ours()}
    ratio, what, figures = _compared(take_turns(readers, _SNAPSHOTS))
    codes = {
        "pynvml": "from benchmarks.readers import bare as it",
        "gpus()": "from benchmarks.readers import ours as it",
    }
    cold = {name: partial(_in_process, f"{code}; it()()") for name, code in codes.items()}
    first, told, more = _compared(take_turns(cold, _KERNELS))
    figures |= {f"first, {name}": value for name, value in more.items()}
    return Seen(ratio <= 10 and first <= 5, f"{what}; in a process of its own {told}", figures)


def _in_process(code: str) -> float:
    """Return the seconds of code in a new process, without Python's start."""
    timed = f"import time; began = time.perf_counter(); {code}; print(time.perf_counter() - began)"
    done = subprocess.run([sys.executable, "-c", timed], check=True, capture_output=True, text=True)
    return float(done.stdout)


@claim(
    "A kernel of `gpu-magic kernel install auto` gives its first answer after at most 2 times the time of ipykernel's own.",
    "kernelspec/begin.py",
    "a driver",
    "ipykernel",
)
def kernel_start() -> Seen:
    from gpu_magic.kernelspec.kernelspecs import install

    with tempfile.TemporaryDirectory() as folder:
        names = {"ipykernel's own": "python3", "with a free GPU": install("auto", prefix=folder).name}
        starts: dict[str, Callable[[], float]] = {
            title: partial(_started, name, f"{folder}/share/jupyter/kernels") for title, name in names.items()
        }
        ratio, what, figures = _compared(take_turns(starts, _KERNELS))
    return Seen(ratio <= 2, what, figures)


def _started(name: str, folder: str) -> float:
    """Return the seconds from the start of a kernel to its first answer, as a page waits for it."""
    from jupyter_client.manager import KernelManager

    manager: Any = KernelManager(kernel_name=name, transport="ipc")
    manager.kernel_spec_manager.kernel_dirs.append(folder)
    began = perf_counter()
    manager.start_kernel(env=dict(os.environ), stderr=subprocess.DEVNULL)
    client = manager.client()
    client.start_channels()
    client.kernel_info(reply=True, timeout=60)
    seconds = perf_counter() - began
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    return seconds
