"""NVIDIA's Python binding for NVML, nvidia-ml-py (`import pynvml`), and its errors.

Another package on PyPI has the same module name. Up to 11.4.1, it is another binding that hides nvidia-ml-py
and lacks the functions of driver R510. From 12.0 on, it is a deprecated wrapper.
"""

from __future__ import annotations

import os
import re
import warnings
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from gpu_magic.devices.model import UNKNOWN, Gpu
from gpu_magic.devices.problems import Cause, GpuCause, GpuProblem, Problem
from gpu_magic.errors import BindingError
from gpu_magic.text import printable

__all__ = [
    "PRIVATE",
    "PROBLEM",
    "gpu_problem_of",
    "list_gpus",
    "private",
    "problem_of",
    "pynvml",
]

_NEEDED = ("nvmlMemory_v2", "c_nvmlProcessInfo_v3_t")


def _hiding() -> str:
    """Return the message about a user's own file that hides NVIDIA's module. Empty if there is none."""
    spec = PathFinder.find_spec("pynvml")
    file = Path((spec and spec.origin) or "")
    if file.name != "pynvml.py" or not {"site-packages", "dist-packages"}.isdisjoint(file.parts):
        return ""
    return f"{printable(str(file))} hides NVIDIA's module of this name. Rename it, then restart Python."


try:
    with warnings.catch_warnings():
        # The wrapper's warning would blame this file, which is not the cause.
        warnings.simplefilter("ignore", FutureWarning)
        import pynvml
except Exception as error:  # a file of this name can raise anything
    missing = "NVIDIA's package nvidia-ml-py cannot be imported. Restart Python after this"
    raise BindingError(_hiding() or f"{missing}: pip install --force-reinstall nvidia-ml-py") from error

PROBLEM: Problem | None = None  # why GPUs cannot be read with the module
if not all(hasattr(pynvml, name) for name in _NEEDED):
    if hiding := _hiding():  # it may lack names that other modules use at import
        raise BindingError(hiding)
    PROBLEM = Problem(Cause.WRONG_BINDING)

# The private names of nvidia-ml-py that gpu_magic uses. Each has the versions in which it was found, and what
# happens without it.
PRIVATE = {
    "_nvmlLib_refcount": (
        "12.550 to 13.615",
        "each look asks for the number of GPUs, to see whether other code has shut NVML down",
    ),
    "_nvmlGetFunctionPointer_cache": (
        "12.550 to 13.615",
        "a simulated machine is read if no other machine was read before in the process",
    ),
}

_CAUSES = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: Cause.NO_LIBRARY,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: Cause.NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Cause.OUTDATED,
    pynvml.NVML_ERROR_NO_PERMISSION: Cause.REFUSED,
    pynvml.NVML_ERROR_UNKNOWN: Cause.CUT_OFF,
}
_OF_ONE_GPU = {
    pynvml.NVML_ERROR_NO_PERMISSION: GpuCause.REFUSED,
    pynvml.NVML_ERROR_UNKNOWN: GpuCause.CUT_OFF,
    pynvml.NVML_ERROR_GPU_IS_LOST: GpuCause.LOST,
}


def private(name: str) -> Any:
    """Return the attribute of pynvml that a name of the table refers to. None if it is missing."""
    if name not in PRIVATE:
        raise KeyError(name)
    return getattr(pynvml, name, None)


def problem_of(error: Any) -> Problem:
    """Return what an NVML error about the machine means."""
    cause = _CAUSES.get(error.value)
    return Problem(cause) if cause else Problem(Cause.ERROR, str(error))


def gpu_problem_of(error: Any) -> GpuProblem:
    """Return what an NVML error about one GPU means."""
    cause = _OF_ONE_GPU.get(error.value)
    return GpuProblem(cause) if cause else GpuProblem(GpuCause.ERROR, str(error))


def list_gpus(root: Path) -> tuple[Gpu, ...]:
    """Return the usable GPUs in the order of their bus IDs, which is NVML's order.

    A container without the driver capability "utility" has CUDA but not NVML. `/proc/driver/nvidia/gpus` has
    a folder for each GPU of the machine. This process can use a GPU if it may open the GPU's device file.
    """
    folders = (root / "proc/driver/nvidia/gpus").glob("*:*:*.*")  # bus IDs: `0000:07:00.0`
    gpus: list[Gpu] = []
    for folder in sorted(folders):
        try:
            lines = (folder / "information").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        minor, uuid = facts.get("Device Minor", ""), facts.get("GPU UUID", "")
        if not re.fullmatch(r"[0-9]{1,4}", minor) or facts.get("GPU Excluded") == "Yes":
            continue
        if os.access(root / f"dev/nvidia{minor}", os.R_OK | os.W_OK):
            # Before a GPU's first use, its UUID is "GPU-????????-…".
            gpu = Gpu(
                index=len(gpus),
                uuid=uuid if re.fullmatch("GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid) else UNKNOWN,
                name=facts.get("Model") or UNKNOWN,
                bus_id=folder.name.rjust(len("00000000:07:00.0"), "0").upper(),
            )
            gpus.append(gpu)
    return tuple(gpus)
