"""What you type. Thin: parse, call the session, show."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from gpu_magic.magics.complete import complete_gpus
from gpu_magic.magics.gpus import GpuMagics
from gpu_magic.magics.on_gpu import OnGpuMagics
from gpu_magic.magics.where import WhereMagics
from gpu_magic.session import MASK, current

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load", "unload"]

# A new magic is one new file, and one line here: its class, and the kind and name of what it adds.
_MAGICS: tuple[tuple[type, str, str], ...] = (
    (GpuMagics, "line", "gpus"),
    (OnGpuMagics, "cell", "on_gpu"),
    (WhereMagics, "line", "where"),
)
# Magics of these names that a user had before, to be put back.
_theirs: dict[str, Any] = {}
# What awaits a %%on_gpu cell that awaits; one for a shell.
_transformers: list[Any] = []


def load(shell: InteractiveShell) -> None:
    """Add the magics, their completion, and the watch."""
    unload(shell)
    for _, kind, name in _MAGICS:
        if before := shell.magics_manager.magics[kind].get(name):
            _theirs[name] = before
    try:
        shell.register_magics(*(magics for magics, *_ in _MAGICS))
    except Exception:  # a value in the configuration that the traits refuse
        _forget(shell)
        raise
    shell.Completer.custom_matchers.append(complete_gpus)
    _transformers.append(_await_on_gpu(shell))
    shell.input_transformers_post.append(_transformers[0])
    current().load(shell)


def unload(shell: InteractiveShell) -> None:
    """Take away all that `load` added; say so where that undoes a choice."""
    if complete_gpus not in shell.Completer.custom_matchers:
        return
    shell.Completer.custom_matchers.remove(complete_gpus)
    while _transformers:
        shell.input_transformers_post.remove(_transformers.pop())
    _forget(shell)
    if MASK in current().unload():
        now = (
            f"is {os.environ[MASK]!r} again"
            if MASK in os.environ
            else "is not set again: all GPUs are visible"
        )
        print(f"Your choice is undone: {MASK} {now}. %gpus chooses anew, once gpu_magic is loaded.")


def _await_on_gpu(shell: InteractiveShell) -> Callable[[list[str]], list[str]]:
    """Return a transformer that reads what it needs when the first cell that awaits comes along."""

    def transform(lines: list[str]) -> list[str]:
        is_ours = bool(lines) and lines[0].startswith("get_ipython().run_cell_magic('on_gpu',")
        if not is_ours or not ("await" in lines[0] or "async" in lines[0]):
            return lines
        from gpu_magic.cells import await_magics

        return await_magics(shell, "on_gpu")(lines)

    return transform


def _forget(shell: InteractiveShell) -> None:
    """Take the magics away; IPython has no public way to."""
    classes = tuple(magics for magics, *_ in _MAGICS)
    configurables: list[Any] = shell.configurables
    configurables[:] = [one for one in configurables if not isinstance(one, classes)]
    for magics, kind, name in _MAGICS:
        shell.magics_manager.registry.pop(magics.__name__, None)
        shell.magics_manager.magics[kind].pop(name, None)
        if name in _theirs:
            shell.magics_manager.magics[kind][name] = _theirs.pop(name)
