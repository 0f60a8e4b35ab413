"""What you type. Thin: parse, call the session, show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpu_magic.magics.complete import complete_gpus
from gpu_magic.magics.gpus import GpuMagics
from gpu_magic.session import MASK, current

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load", "unload"]


def load(shell: InteractiveShell) -> None:
    """Add the magics, their completion, and the watch."""
    if _ours(shell):
        return
    shell.register_magics(GpuMagics)
    shell.Completer.custom_matchers.append(complete_gpus)
    current().load(shell)


def unload(shell: InteractiveShell) -> None:
    """Take away all that `load` added, and say which variables were put back."""
    changed = current().unload()
    configurables: list[Any] = shell.configurables
    # IPython has no public way to take a magic or a configurable away.
    for magics in _ours(shell):
        configurables.remove(magics)
        shell.magics_manager.registry.pop("GpuMagics", None)
        shell.magics_manager.magics["line"].pop("gpus", None)
    if complete_gpus in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.remove(complete_gpus)
    if MASK in changed:
        print(f"{MASK} is back to what it was before gpu_magic set it.")


def _ours(shell: InteractiveShell) -> list[Any]:
    configurables: list[Any] = shell.configurables
    return [one for one in configurables if isinstance(one, GpuMagics)]
