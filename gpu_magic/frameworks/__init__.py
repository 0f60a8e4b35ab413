"""The plug-ins for the frameworks. Each is an instance of a subclass of `base.Framework`.

gpu_magic never imports a framework, and uses it only if it is in `sys.modules`. Another package can add a
plug-in with an entry point in the group `gpu_magic.frameworks`. The name of the entry point is the module
that users import. The entry point refers to an instance of a subclass of `base.Framework`.

This module is used after each cell, so it imports nothing slow, and a plug-in only when needed.
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

# The module of each framework, and its plug-in here. A new framework needs one plug-in and one line.
KNOWN = {"torch": "pytorch", "tensorflow": "tensorflow", "jax": "jax", "cupy": "cupy", "keras": "keras"}

GROUP = "gpu_magic.frameworks"


def imported() -> list[Framework]:
    """Return the frameworks that this process has imported, itself or through another package."""
    found = (get(module) for module in known() if _is_imported(module))
    return [one for one in found if one and _has_needs(one)]


@cache
def known() -> tuple[str, ...]:
    """Return the modules of all frameworks with a plug-in: gpu_magic's own, and those of entry points."""
    return (*KNOWN, *(module for module in _entry_points() if module not in KNOWN))


@cache
def get(module: str) -> Framework | None:
    """Return the plug-in for a module. None, after a warning, if another package's plug-in is broken."""
    if module in KNOWN:
        framework: Framework = import_module(f"gpu_magic.frameworks.{KNOWN[module]}").FRAMEWORK
        return framework
    from gpu_magic.frameworks.base import Framework as Base  # only plug-ins of other packages need it

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
    """Return the device that an object of an imported framework names. None for another object."""
    found = (framework.device_of(obj) for framework in imported())
    return next((device for device in found if device is not None), None)


def started() -> list[str]:
    """Return the names of the frameworks that report a started GPU.

    This runs after each cell, so it skips plug-ins of other packages.
    """
    ours = (get(module) for module in KNOWN if _is_imported(module))
    return [framework.name for framework in ours if framework is not None and _has_gpu(framework)]


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


@cache
def _entry_points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # late, because it takes 15 ms

    return {entry.name: entry for entry in entry_points(group=GROUP)}
