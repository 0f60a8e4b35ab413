"""How gpu_magic works with each framework: a plug-in each, all with the methods of `base.Framework`.

A framework is touched only when `sys.modules` holds it; gpu_magic never imports one. Another package can add
a plug-in: an entry point in the group `gpu_magic.frameworks`, named like the module that its users import,
that leads to an instance of a subclass of `base.Framework`.

This module is imported after each cell, so it imports nothing heavy, and a plug-in only when it is needed.
"""

from __future__ import annotations

import sys
import warnings
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from gpu_magic.frameworks.base import Framework
    from gpu_magic.frameworks.target import LogicalDevice

__all__ = ["KNOWN", "device_of", "get", "imported", "is_importing", "known", "started"]

# The module of each framework, and its plug-in here. A new framework is one plug-in and one line.
KNOWN = {"torch": "pytorch", "tensorflow": "tensorflow", "jax": "jax", "cupy": "cupy", "keras": "keras"}

GROUP = "gpu_magic.frameworks"


def imported() -> list[Framework]:
    """Return the frameworks that this process has imported, itself or through another package."""
    found = (get(module) for module in known() if _is_imported(module))
    # Another module of the same name, or another generation of it, lacks what it is known by.
    return [one for one in found if one and all(hasattr(sys.modules[one.module], name) for name in one.needs)]


@cache
def known() -> tuple[str, ...]:
    """Return the modules of all frameworks that there is a plug-in for: ours, and those of entry points."""
    return (*KNOWN, *(module for module in _entry_points() if module not in KNOWN))


@cache
def get(module: str) -> Framework | None:
    """Return the plug-in for a module; None, after a warning, where another package's plug-in is broken."""
    if module in KNOWN:
        framework: Framework = import_module(f"gpu_magic.frameworks.{KNOWN[module]}").FRAMEWORK
        return framework
    from gpu_magic.frameworks.base import Framework as Base  # not needed to ask which ones are imported

    entry = _entry_points()[module]
    try:
        plugin = entry.load()
        if not isinstance(plugin, Base):
            raise TypeError(f"{entry.value} is not an instance of gpu_magic.frameworks.base.Framework")  # noqa: TRY301
    except Exception as error:  # noqa: BLE001 - it is another package's code
        warnings.warn(f"gpu_magic can't use the plug-in for {module}: {error!r}", stacklevel=2)
        return None
    return plugin


def device_of(obj: object) -> LogicalDevice | str | None:
    """Return the device that an object of an imported framework stands for; None for any other object."""
    found = (framework.device_of(obj) for framework in imported())
    return next((device for device in found if device is not None), None)


def started() -> list[str]:
    """Return the names of the frameworks that report a started GPU.

    This runs after each cell, so plug-ins of other packages are not asked.
    """
    ours = (get(module) for module in KNOWN if _is_imported(module))
    return [framework.name for framework in ours if framework is not None and _has_gpu(framework)]


def is_importing(module: str) -> bool:
    """Return whether a module is in the middle of being imported."""
    return bool(getattr(getattr(sys.modules.get(module), "__spec__", None), "_initializing", False))


def _is_imported(module: str) -> bool:
    return sys.modules.get(module) is not None and not is_importing(module)  # None blocks an import


def _has_gpu(framework: Framework) -> bool:
    try:
        return framework.has_gpu()
    except Exception:  # noqa: BLE001 - a framework can be half imported, or have changed inside
        return False


@cache
def _entry_points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # 15 ms: not before a cell is placed

    return {entry.name: entry for entry in entry_points(group=GROUP)}
