"""How each library is told: one file each, the same few verbs.

A framework is touched only when `sys.modules` holds it. None is ever imported by gpu_magic.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_magic.frameworks.base import Framework

__all__ = ["KNOWN", "imported", "started"]

# A framework's own module, and the file here that knows it. A new framework is one file and one line.
KNOWN = {"torch": "pytorch", "tensorflow": "tensorflow", "jax": "jax", "cupy": "cupy"}


def imported() -> list[Framework]:
    """Return the frameworks that this process has imported, itself or through another package."""
    return [
        import_module(f"gpu_magic.frameworks.{file}").FRAMEWORK
        for module, file in KNOWN.items()
        if sys.modules.get(module) is not None  # None is how people block an import
    ]


def started() -> list[str]:
    """Name those that say of themselves that they have started a GPU."""
    return [framework.name for framework in imported() if _holds(framework)]


def _holds(framework: Framework) -> bool:
    try:
        return framework.has_gpu()
    except Exception:  # noqa: BLE001 - a framework can be half imported, or have changed inside
        return False
