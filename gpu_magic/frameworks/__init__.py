"""The frameworks that gpu_magic knows. Each is an instance of a subclass of `base.Framework`.

gpu_magic never imports a framework, and uses it only if it is in `sys.modules`. This module is used after
each cell, so it imports nothing slow, and a framework's own module here only when needed.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_magic.frameworks.base import Framework
    from gpu_magic.frameworks.target import LogicalDevice

__all__ = ["KNOWN", "device_of", "get", "imported", "is_importing", "started"]

# The module that users import, and the module with its FRAMEWORK.
KNOWN = {
    "torch": "gpu_magic.frameworks.pytorch",
    "tensorflow": "gpu_magic.frameworks.tensorflow",
    "jax": "gpu_magic.frameworks.jax",
    "cupy": "gpu_magic.frameworks.cupy",
    "keras": "gpu_magic.frameworks.keras",
}


def imported() -> list[Framework]:
    """Return the frameworks that this process has imported, itself or through another package."""
    return [one for module in KNOWN if _is_imported(module) and _has_needs(one := get(module))]


def get(module: str) -> Framework:
    """Return the framework that users import as `module`."""
    framework: Framework = import_module(KNOWN[module]).FRAMEWORK
    return framework


def device_of(obj: object) -> LogicalDevice | str | None:
    """Return the device that an object of an imported framework names. None for another object."""
    found = (framework.device_of(obj) for framework in imported())
    return next((device for device in found if device is not None), None)


def started() -> list[str]:
    """Return the names of the frameworks that report a started GPU."""
    return [one.name for module in KNOWN if _is_imported(module) and _has_gpu(one := get(module))]


def is_importing(module: str) -> bool:
    """Return whether the import of a module has started and not ended."""
    return bool(getattr(getattr(sys.modules.get(module), "__spec__", None), "_initializing", False))


def _is_imported(module: str) -> bool:
    return sys.modules.get(module) is not None and not is_importing(module)  # None blocks an import


def _has_needs(framework: Framework) -> bool:
    """Return whether it is this framework, and not another module of the same name, or an old version."""
    try:
        return all(hasattr(sys.modules[framework.module], name) for name in framework.needs)
    except Exception:  # noqa: BLE001 - a module can import its parts when they are first used
        return False


def _has_gpu(framework: Framework) -> bool:
    try:
        return framework.has_gpu()
    except Exception:  # noqa: BLE001 - a framework can be half imported, or have new internals
        return False
