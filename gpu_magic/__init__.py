"""gpu_magic: choose GPUs in a notebook before a framework starts, and be told when it is too late.

>>> %load_ext gpu_magic
>>> %gpus 1,3
>>> %%on_gpu 0
... model = torch.nn.Linear(4, 2)

The same from Python: `gpu_magic.gpus()`, `.choose("1,3")`, `.guard()`, `.on_gpu(0)`,
`.devices_of(model)`, `.to_gpu(model)`, `.panel()`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import gpu_magic.process.fork as _fork

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.api import choose, devices_of, gpu_free, gpus, guard, on_gpu, panel, to_cpu, to_gpu
    from gpu_magic.devices.model import Gpu, GpuProcess, GpuStatus, Inventory, MigInstance
    from gpu_magic.devices.unknown import UNKNOWN
    from gpu_magic.display.choice import Choice
    from gpu_magic.errors import (
        ChoiceError,
        CudaInitializedError,
        CudaInitializedWarning,
        GpuMagicError,
        KernelRestarting,
        PlacementError,
        PlacementWarning,
        SimulationError,
    )
    from gpu_magic.moving.free import Freed
    from gpu_magic.placement.holdings import Devices
    from gpu_magic.placement.on_gpu import OnGpu
    from gpu_magic.process.guard import Guard

del _fork  # it is imported for what it does

__version__ = "0.1.0"

__all__ = [
    "UNKNOWN",
    "Choice",
    "ChoiceError",
    "CudaInitializedError",
    "CudaInitializedWarning",
    "Devices",
    "Freed",
    "Gpu",
    "GpuMagicError",
    "GpuProcess",
    "GpuStatus",
    "Guard",
    "Inventory",
    "KernelRestarting",
    "MigInstance",
    "OnGpu",
    "PlacementError",
    "PlacementWarning",
    "SimulationError",
    "choose",
    "devices_of",
    "gpu_free",
    "gpus",
    "guard",
    "on_gpu",
    "panel",
    "to_cpu",
    "to_gpu",
]

# Where each public name lives. Nothing is imported before it is used: `%load_ext` takes milliseconds.
_HOMES = {
    "gpu_magic.api": (
        "choose",
        "devices_of",
        "gpu_free",
        "gpus",
        "guard",
        "on_gpu",
        "panel",
        "to_cpu",
        "to_gpu",
    ),
    "gpu_magic.display.choice": ("Choice",),
    "gpu_magic.devices.unknown": ("UNKNOWN",),
    "gpu_magic.devices.model": ("Gpu", "GpuProcess", "GpuStatus", "Inventory", "MigInstance"),
    "gpu_magic.errors": (
        "ChoiceError",
        "CudaInitializedError",
        "CudaInitializedWarning",
        "GpuMagicError",
        "KernelRestarting",
        "PlacementError",
        "PlacementWarning",
        "SimulationError",
    ),
    "gpu_magic.moving.free": ("Freed",),
    "gpu_magic.placement.holdings": ("Devices",),
    "gpu_magic.placement.on_gpu": ("OnGpu",),
    "gpu_magic.process.guard": ("Guard",),
}


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add the magics to a shell: `%load_ext gpu_magic`."""
    from gpu_magic.magics import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take them away again, and put back what they set: `%unload_ext gpu_magic`."""
    from gpu_magic.magics import unload

    unload(shell)


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'gpu_magic' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "load_ipython_extension", "unload_ipython_extension"])
