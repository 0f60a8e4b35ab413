"""How each library is told: one file each, the same few verbs.

A framework is touched only when `sys.modules` holds it. None is ever imported by gpu_magic. A package can add
one: an entry point in the group `gpu_magic.frameworks`, named like the module that its users import, that
leads to an object with the verbs of `base.Framework`.
"""

from __future__ import annotations

import sys
import warnings
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpu_magic.frameworks.base import Framework

__all__ = ["KNOWN", "get", "imported", "known", "started"]

# A framework's own module, and the file here that knows it. A new framework is one file and one line.
KNOWN = {"torch": "pytorch", "tensorflow": "tensorflow", "jax": "jax", "cupy": "cupy", "keras": "keras"}

# Modules that were looked at, and are what they seem.
_recognised: dict[str, Any] = {}

GROUP = "gpu_magic.frameworks"


def imported() -> list[Framework]:
    """Return the frameworks that this process has imported, itself or through another package."""
    found = (get(module) for module in known() if _is_whole(module))
    return [framework for framework in found if framework is not None and _is_it(framework)]


@cache
def known() -> tuple[str, ...]:
    """Return the modules of all frameworks that can be told: ours, and those of entry points."""
    return (*KNOWN, *(module for module in _entry_points() if module not in KNOWN))


@cache
def get(module: str) -> Framework | None:
    """Return what tells a framework; None where another package's entry point fails, with a warning."""
    if module in KNOWN:
        framework: Framework = import_module(f"gpu_magic.frameworks.{KNOWN[module]}").FRAMEWORK
        return framework
    try:
        other: Framework = _entry_points()[module].load()
    except Exception as error:  # noqa: BLE001 - it is somebody else's code
        warnings.warn(f"gpu_magic can't use what knows {module}: {error!r}", stacklevel=2)
        return None
    return other


def started() -> list[str]:
    """Name those that say of themselves that they have started a GPU. Asked after each cell: ours alone."""
    ours = (get(module) for module in KNOWN if _is_whole(module))
    return [framework.name for framework in ours if framework is not None and _holds(framework)]


@cache
def _entry_points() -> dict[str, Any]:
    from importlib.metadata import entry_points  # 15 ms: not before somebody places a cell

    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _is_whole(module: str) -> bool:
    """Tell whether a module is there, and not only in the middle of being imported."""
    found = sys.modules.get(module)  # None is how people block an import
    return found is not None and not getattr(getattr(found, "__spec__", None), "_initializing", False)


def _is_it(framework: Framework) -> bool:
    """Tell whether a module is the framework that is known here, and not a namesake or another generation."""
    module = sys.modules.get(framework.module)
    if _recognised.get(framework.module) is module:  # TensorFlow answers each question in microseconds
        return True
    if not all(hasattr(module, name) for name in framework.needs):
        return False
    _recognised[framework.module] = module
    return True


def _holds(framework: Framework) -> bool:
    try:
        return framework.has_gpu()
    except Exception:  # noqa: BLE001 - a framework can be half imported, or have changed inside
        return False
