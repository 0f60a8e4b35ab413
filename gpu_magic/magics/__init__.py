"""The magics: a table of them, and what `%load_ext gpu_magic` adds to a shell.

A magic parses its line, calls the API and shows the result. `%load_ext` loads no more of them than this
module: the magics themselves, their help and their completion are imported when they are first used.
"""

from __future__ import annotations

import os
import sys
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from IPython.core.magic import no_var_expand
from traitlets import Enum
from traitlets.config import Configurable

from gpu_magic.process.environment import MASK
from gpu_magic.process.session import current
from gpu_magic.restart.kernel import saved_choice_file, say_in_first_cell

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.completer import CompletionContext, SimpleMatcherResult
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["GpuMagics", "load", "settings_of", "unload"]

# Each magic: its kind, its module in this folder, and the class in there that has a method of its name. A new
# magic is one new file, and a line here.
_MAGICS = {
    "gpus": ("line", "gpus", "GpusMagic"),
    "on_gpu": ("cell", "on_gpu", "OnGpuMagic"),
    "where": ("line", "where", "WhereMagic"),
    "to_gpu": ("line", "to_gpu", "ToGpuMagics"),
    "to_cpu": ("line", "to_gpu", "ToGpuMagics"),
    "gpu_free": ("line", "gpu_free", "GpuFreeMagic"),
    "gpu_panel": ("line", "gpu_panel", "GpuPanelMagic"),
}
# Those whose arguments Tab completes.
_COMPLETED = ("%gpus", "%%on_gpu", "%to_gpu", "%to_cpu", "%gpu_free")


def load(shell: InteractiveShell) -> None:
    """Add the magics, their completion, and the watch.

    Raises
    ------
    traitlets.TraitError
        For a value in IPython's configuration that `GpuMagics` does not take; nothing was added.

    """
    unload(shell)
    GpuMagics(parent=shell).add()
    current().load(shell)
    file = saved_choice_file()
    if file is not None and file.exists():
        text = _resume()
        say_in_first_cell(shell, lambda: print(text))
    if widgets := sys.modules.get("gpu_magic.widget.state"):
        widgets.panel_state().resume(shell)


def unload(shell: InteractiveShell) -> None:
    """Remove all that `load` added; say so where that undoes a choice."""
    ours = settings_of(shell)
    if ours is None:
        return
    ours.remove()
    if widgets := sys.modules.get("gpu_magic.widget.state"):
        widgets.panel_state().pause()
    if MASK in current().unload():
        now = (
            f"is {os.environ[MASK]!r} again"
            if MASK in os.environ
            else "is not set again: all GPUs are visible"
        )
        print(f"Your choice is undone: {MASK} {now}. %gpus chooses anew, once gpu_magic is loaded.")


def settings_of(shell: InteractiveShell) -> GpuMagics | None:
    """Return the magics' configuration in a shell; None where they are not loaded."""
    return next((found for found in shell.configurables if isinstance(found, GpuMagics)), None)


class GpuMagics(Configurable):
    """The magics of gpu_magic; `%config GpuMagics` shows what can be set."""

    on_frozen = Enum(
        ["warn", "error"],
        default_value="warn",
        help='What a different choice does once CUDA has started: "warn", or "error", which stops Run All.',
    ).tag(config=True)

    def add(self) -> None:
        """Add the magics to the shell that is the parent."""
        shell: Any = self.parent
        magics = shell.magics_manager.magics
        # Magics of these names that the user had before, to be restored.
        self._replaced = {name: magics[kind].get(name) for name, (kind, *_) in _MAGICS.items()}
        for name, (kind, module, class_) in _MAGICS.items():
            magics[kind][name] = _LazyMagic(shell, name, module, class_)
        no_var_expand(magics["cell"]["on_gpu"])  # it expands its line itself
        shell.Completer.custom_matchers.append(self._complete)
        shell.input_transformers_post.append(self._await_cell)
        shell.configurables.append(self)

    def remove(self) -> None:
        """Remove the magics from the shell, which IPython has no public way to do."""
        shell: Any = self.parent
        for name, (kind, *_) in _MAGICS.items():
            shell.magics_manager.magics[kind].pop(name, None)
            if self._replaced[name] is not None:
                shell.magics_manager.magics[kind][name] = self._replaced[name]
        for hooks, ours in (
            (shell.Completer.custom_matchers, self._complete),
            (shell.input_transformers_post, self._await_cell),
            (shell.configurables, self),
        ):
            if ours in hooks:
                hooks.remove(ours)

    def _complete(self, context: CompletionContext) -> SimpleMatcherResult:
        """Complete a line of ours; leave every other line to IPython's own matchers."""
        command, *words = context.text_until_cursor.lstrip().split(" ")
        if not words or command not in _COMPLETED:
            return {"completions": []}
        from gpu_magic.magics.completion import complete

        return complete(self.parent, command, words)

    _complete.matcher_api_version = 2  # type: ignore[attr-defined] # as IPython's @context_matcher() sets it

    def _await_cell(self, lines: list[str]) -> list[str]:
        """Have IPython await a `%%on_gpu` cell that awaits."""
        if not lines or not lines[0].startswith("get_ipython().run_cell_magic('on_gpu',"):
            return lines
        from gpu_magic.magics.cells import await_magic

        return await_magic(self.parent, lines)


class _LazyMagic:
    """A magic whose module is imported when it is called, or explained: `%to_gpu?`.

    Parameters
    ----------
    shell
        The shell that it is a magic of.
    name, module, class_
        As in the table.

    """

    def __init__(self, shell: InteractiveShell, name: str, module: str, class_: str) -> None:
        self._shell, self._module, self._class = shell, module, class_
        self.__name__ = name

    def __call__(self, *line_and_cell: str) -> object:
        __tracebackhide__ = True
        return self.__wrapped__(*line_and_cell)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override] # a class has a text
        return self.__wrapped__.__doc__

    @cached_property
    def __wrapped__(self) -> Callable[..., object]:
        """The magic itself, of which `%to_gpu??` shows the source."""
        class_ = getattr(import_module(f"gpu_magic.magics.{self._module}"), self._class)
        magic: Callable[..., object] = getattr(class_(self._shell), self.__name__)
        return magic


def _resume() -> str:
    """Apply the choice that was saved before a restart; return what became of it."""
    from gpu_magic.display.choice import resumed_text
    from gpu_magic.errors import ChoiceError
    from gpu_magic.restart.saved_choice import resume

    try:
        return resumed_text(resume())
    except ChoiceError as error:
        return str(error)
