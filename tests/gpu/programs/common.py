"""Shared by the programs: the GPU that they use, an IPython shell, and PyTorch's accelerator."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from tests.gpu.claim import NotTriedError

__all__ = [
    "MIB",
    "Shell",
    "accelerator",
    "alone",
    "both",
    "bytes_used",
    "counted",
    "in_container",
    "needed",
    "number_of",
    "processes_on",
    "used",
    "wide",
]

MIB = 1 << 20

_MASK, _ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"


def used() -> list[str]:
    """Return the UUIDs of the GPUs that may be used here, starting with the GPU that has the least memory in use."""
    found = [uuid for uuid in os.environ.get("GPU_MAGIC_TEST_GPUS", "").split(",") if uuid]
    if not found:
        raise NotTriedError("NVML names no GPU that may be used here")
    return found


def alone() -> str:
    """Make the programs' GPU the only visible GPU of this process, and return its UUID.

    If NVML names no GPU, nothing changes.
    """
    named = os.environ.get("GPU_MAGIC_TEST_GPUS", "").partition(",")[0]
    if named:
        os.environ[_MASK] = named
    return named


def both() -> list[str]:
    """Make two GPUs the visible GPUs of this process, and return their UUIDs."""
    found = used()[:2]
    os.environ[_MASK] = ",".join(found)
    return found


def wide() -> None:
    """Make all GPUs visible to this process, in nvidia-smi's order. The process must not allocate memory on them."""
    os.environ.pop(_MASK, None)
    os.environ[_ORDER] = "PCI_BUS_ID"


def number_of(uuid: str) -> int:
    """Return the number of a GPU in nvidia-smi, given its UUID or that of a MIG instance of it."""
    import gpu_magic

    return next(gpu.index for gpu in gpu_magic.gpus() if uuid in (gpu.uuid, *(one.uuid for one in gpu.mig)))


def counted(number: int) -> str:
    """Return `2 GPUs`, `1 GPU`; `no GPU` for 0, and for -1, if the driver does not return the number."""
    return f"{number} GPUs" if number > 1 else "1 GPU" if number == 1 else "no GPU"


def processes_on(uuid: str) -> tuple[Any, ...]:
    """Return the processes that NVML lists on a GPU; none if NVML lists none, for any reason."""
    import gpu_magic
    from gpu_magic.devices.model import UNKNOWN

    processes = gpu_magic.gpus()[number_of(uuid)].status.processes
    return () if processes is UNKNOWN else processes


def in_container() -> bool:
    """Return whether processes have other PIDs here than for the driver (Linux, include/linux/proc_ns.h)."""
    return str(Path("/proc/self/ns/pid").readlink()) != "pid:[4026531836]"


def bytes_used(uuid: str) -> int:
    """Return the bytes in use on a GPU, by NVML."""
    import gpu_magic

    found = gpu_magic.gpus()[number_of(uuid)].status.memory_used
    if not isinstance(found, int):
        raise NotTriedError("NVML does not give the memory in use here")
    return found


def needed(*modules: str) -> list[Any]:
    """Import packages that only some machines have."""
    found = []
    for module in modules:
        try:
            found.append(import_module(module))
        except Exception as error:  # noqa: BLE001 - also errors of the libraries that it loads
            reason = str(error).partition("\n")[0]
            raise NotTriedError(f"{module} cannot be imported here: {reason}") from None
    return found


def accelerator() -> str:
    """Return the type of PyTorch's devices here: `cuda`; with stand-ins, another."""
    import torch

    return str(torch.accelerator.current_accelerator().type)


class Cell(NamedTuple):
    """The output of a cell, its result, and its error."""

    printed: str
    result: Any
    error: BaseException | None


class Shell:
    """An IPython shell with the extension loaded, in this process."""

    def __init__(self) -> None:
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config

        config = Config(HistoryManager={"enabled": False}, InteractiveShell={"colors": "nocolor"})
        self.ip: Any = InteractiveShell.instance(config=config)
        self.run("%load_ext gpu_magic")

    def run(self, cell: str) -> Cell:
        """Run a cell, which may fail."""
        printed = StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            done = self.ip.run_cell(cell, store_history=True)
        return Cell(printed.getvalue(), done.result, done.error_before_exec or done.error_in_exec)

    def must(self, *cells: str) -> Cell:
        """Run cells that must succeed; return the last one's outcome."""
        for cell in cells:
            done = self.run(cell)
            if done.error is not None:
                sys.stderr.write(done.printed)
                raise done.error
        return done

    def __getitem__(self, name: str) -> Any:
        return self.ip.user_ns[name]
