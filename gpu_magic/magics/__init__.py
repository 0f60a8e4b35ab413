"""What you type. Thin: parse, call the session, show."""

from __future__ import annotations

import os
import sys
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from gpu_magic.magics.completion import complete_magics
from gpu_magic.magics.gpus import GpuMagics
from gpu_magic.magics.on_gpu import OnGpuMagic
from gpu_magic.process.environment import MASK
from gpu_magic.process.session import current
from gpu_magic.restart.kernel import saved_choice_file, say_in_first_cell

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load", "unload"]

# A new magic is one new file, and a line here. `%gpus` has a configuration, so its class is one of IPython's;
# the others are plain ones, which take a fifth of the time to add.
_NAMES = (("line", "gpus"), ("cell", "on_gpu"))
# Those that are imported when they are first used: each would add a quarter of a millisecond to `%load_ext`.
_LATER = {
    "where": ("where", "WhereMagic"),
    "to_gpu": ("to_gpu", "ToGpuMagics"),
    "to_cpu": ("to_gpu", "ToGpuMagics"),
    "gpu_free": ("gpu_free", "GpuFreeMagic"),
    "gpu_panel": ("gpu_panel", "GpuPanelMagic"),
}
# For each shell: magics of these names that a user had before, to be put back; what awaits a %%on_gpu cell.
_theirs: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
_transformers: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def load(shell: InteractiveShell) -> None:
    """Add the magics, their completion, and the watch."""
    unload(shell)
    found = {name: shell.magics_manager.magics[kind].get(name) for kind, name in _all_names()}
    _theirs[shell] = {name: magic for name, magic in found.items() if magic is not None}
    try:
        shell.register_magics(GpuMagics)
    except Exception:  # a value in the configuration that the traits refuse
        _forget(shell)
        raise
    manager: Any = shell.magics_manager
    manager.register_function(OnGpuMagic(shell).on_gpu, "cell", "on_gpu")
    for name in _LATER:
        manager.register_function(_Later(shell, name), "line", name)
    shell.Completer.custom_matchers.append(complete_magics)
    _transformers[shell] = _awaiting(shell)
    shell.input_transformers_post.append(_transformers[shell])
    current().load(shell)
    file = saved_choice_file()
    if file is not None and file.exists():
        text = _resume()
        say_in_first_cell(shell, lambda: print(text))
    if widgets := sys.modules.get("gpu_magic.widget.state"):
        widgets.board().resume(shell)


def unload(shell: InteractiveShell) -> None:
    """Take away all that `load` added; say so where that undoes a choice."""
    if complete_magics not in shell.Completer.custom_matchers:
        return
    shell.Completer.custom_matchers.remove(complete_magics)
    transformer = _transformers.pop(shell, None)
    if transformer in shell.input_transformers_post:
        shell.input_transformers_post.remove(transformer)
    _forget(shell)
    if widgets := sys.modules.get("gpu_magic.widget.state"):
        widgets.board().pause()
    if MASK in current().unload():
        now = (
            f"is {os.environ[MASK]!r} again"
            if MASK in os.environ
            else "is not set again: all GPUs are visible"
        )
        print(f"Your choice is undone: {MASK} {now}. %gpus chooses anew, once gpu_magic is loaded.")


def _resume() -> str:
    """Apply the choice that was saved before a restart; return what became of it."""
    from gpu_magic.display.choice import resumed_text
    from gpu_magic.errors import ChoiceError
    from gpu_magic.restart.saved_choice import resume

    try:
        return resumed_text(resume())
    except ChoiceError as error:
        return str(error)


class _Later:
    """A line magic whose module is imported when it is called, or explained by `%to_gpu?`."""

    def __init__(self, shell: InteractiveShell, name: str) -> None:
        self._shell, self.__name__ = shell, name

    def __call__(self, line: str) -> object:
        __tracebackhide__ = True
        return self._magic(line)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override] # a class's own is a text
        return self._magic.__doc__

    @cached_property
    def _magic(self) -> Callable[[str], object]:
        home, kind = _LATER[self.__name__]
        made = getattr(import_module(f"gpu_magic.magics.{home}"), kind)(self._shell)
        magic: Callable[[str], object] = getattr(made, self.__name__)
        return magic


def _all_names() -> list[tuple[str, str]]:
    return [*_NAMES, *(("line", name) for name in _LATER)]


def _awaiting(shell: InteractiveShell) -> Callable[[list[str]], list[str]]:
    """Return what awaits a `%%on_gpu` cell that awaits."""

    def transform(lines: list[str]) -> list[str]:
        from gpu_magic.magics.awaiting import awaited

        return awaited(shell, "on_gpu", lines)

    return transform


def _forget(shell: InteractiveShell) -> None:
    """Take the magics away; IPython has no public way to."""
    configurables: list[Any] = shell.configurables
    configurables[:] = [one for one in configurables if not isinstance(one, GpuMagics)]
    shell.magics_manager.registry.pop(GpuMagics.__name__, None)
    for kind, name in _all_names():
        shell.magics_manager.magics[kind].pop(name, None)
        if before := _theirs.get(shell, {}).pop(name, None):
            shell.magics_manager.magics[kind][name] = before
