"""What you type. Thin: parse, call the session, show."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from gpu_magic.magics.complete import complete_gpus
from gpu_magic.magics.gpus import GpuMagics
from gpu_magic.session import MASK, current

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load", "unload"]

_NAME = "gpus"
# A magic of that name that a user had before, to be put back.
_theirs: list[Any] = []


def load(shell: InteractiveShell) -> None:
    """Add the magics, their completion, and the watch."""
    unload(shell)
    if before := shell.magics_manager.magics["line"].get(_NAME):
        _theirs.append(before)
    try:
        shell.register_magics(GpuMagics)
    except Exception:  # a value in the configuration that the traits refuse
        _forget(shell)
        raise
    shell.Completer.custom_matchers.append(complete_gpus)
    current().load(shell)


def unload(shell: InteractiveShell) -> None:
    """Take away all that `load` added; say so where that undoes a choice."""
    if complete_gpus not in shell.Completer.custom_matchers:
        return
    shell.Completer.custom_matchers.remove(complete_gpus)
    _forget(shell)
    if MASK in current().unload():
        now = (
            f"is {os.environ[MASK]!r} again"
            if MASK in os.environ
            else "is not set again: all GPUs are visible"
        )
        print(f"Your choice is undone: {MASK} {now}. %gpus chooses anew, once gpu_magic is loaded.")


def _forget(shell: InteractiveShell) -> None:
    """Take the magics away; IPython has no public way to."""
    configurables: list[Any] = shell.configurables
    configurables[:] = [one for one in configurables if not isinstance(one, GpuMagics)]
    shell.magics_manager.registry.pop(GpuMagics.__name__, None)
    shell.magics_manager.magics["line"].pop(_NAME, None)
    if _theirs:
        shell.magics_manager.magics["line"][_NAME] = _theirs.pop()
