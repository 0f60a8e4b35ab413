"""What you type. Thin: parse, call the session, show."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from gpu_magic.cells import await_magics
from gpu_magic.magics.complete import complete_gpus
from gpu_magic.magics.gpus import GpuMagics
from gpu_magic.magics.on_gpu import OnGpuMagics
from gpu_magic.magics.where import WhereMagics
from gpu_magic.session import MASK, current

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load", "unload"]

# A new magic is one new file, and one line here: its class, and the kind and name of what it adds.
_MAGICS: tuple[tuple[type, str, str], ...] = (
    (GpuMagics, "line", "gpus"),
    (OnGpuMagics, "cell", "on_gpu"),
    (WhereMagics, "line", "where"),
)
# For each shell: magics of these names that a user had before, to be put back; what awaits a %%on_gpu cell.
_theirs: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
_transformers: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def load(shell: InteractiveShell) -> None:
    """Add the magics, their completion, and the watch."""
    unload(shell)
    found = {name: shell.magics_manager.magics[kind].get(name) for _, kind, name in _MAGICS}
    _theirs[shell] = {name: magic for name, magic in found.items() if magic is not None}
    try:
        shell.register_magics(*(magics for magics, *_ in _MAGICS))
    except Exception:  # a value in the configuration that the traits refuse
        _forget(shell)
        raise
    shell.Completer.custom_matchers.append(complete_gpus)
    _transformers[shell] = await_magics(shell, "on_gpu")
    shell.input_transformers_post.append(_transformers[shell])
    current().load(shell)


def unload(shell: InteractiveShell) -> None:
    """Take away all that `load` added; say so where that undoes a choice."""
    if complete_gpus not in shell.Completer.custom_matchers:
        return
    shell.Completer.custom_matchers.remove(complete_gpus)
    transformer = _transformers.pop(shell, None)
    if transformer in shell.input_transformers_post:
        shell.input_transformers_post.remove(transformer)
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
    classes = tuple(magics for magics, *_ in _MAGICS)
    configurables: list[Any] = shell.configurables
    configurables[:] = [one for one in configurables if not isinstance(one, classes)]
    for magics, kind, name in _MAGICS:
        shell.magics_manager.registry.pop(magics.__name__, None)
        shell.magics_manager.magics[kind].pop(name, None)
        if before := _theirs.get(shell, {}).pop(name, None):
            shell.magics_manager.magics[kind][name] = before
