"""Runs a function before the next cell that the user sees. If the function fails, the cell does not run.

IPython shows an error of a `pre_run_cell` hook, and then runs the cell. It does not run a cell for which an
AST transformer raises InputRejected, and it calls the transformers after the hook.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # as in `interrupts`
import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

from IPython.core.error import InputRejected

from gpu_magic.errors import show_as
from gpu_magic.shell.wrapping import fitted

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Iterator

__all__ = ["BeforeCell"]


class BeforeCell:
    """Calls a function with the text of each cell, from `add` to `remove`.

    The function prints into the cell, and can be interrupted. It is not called for hidden cells, which
    editors run, nor for cells that other cells run.
    """

    def __init__(self, shell: Any, call: Callable[[str], object]) -> None:
        self._shell, self._call = shell, call
        self._error: BaseException | None = None  # why the cell that begins must not run
        self._hooks = (
            (shell.events.callbacks["pre_run_cell"], self._before_cell),
            (shell.events.callbacks["post_run_cell"], self._after_cell),
            (shell.ast_transformers, self),
        )

    def add(self) -> None:
        for hooks, ours in self._hooks:
            if ours not in hooks:
                hooks.append(ours)

    def remove(self) -> None:
        for hooks, ours in self._hooks:
            if ours in hooks:
                hooks.remove(ours)

    def _before_cell(self, info: Any) -> None:
        self._error = None
        if info.store_history:
            try:
                with _interrupts():
                    self._call(info.raw_cell)
            except BaseException as error:  # noqa: BLE001 - it ends the cell, in `visit`
                self._error = error

    def _after_cell(self, result: object) -> None:  # noqa: ARG002 - IPython passes it
        self._error = None  # of a cell that could not be parsed

    def visit(self, tree: ast.AST) -> ast.AST:
        """Reject a cell before which the function has failed. IPython calls this as an AST transformer."""
        if (error := self._error) is None:
            return tree
        self._error, rejected = None, InputRejected(str(error))
        own = getattr(error, "_render_traceback_", lambda: [f"{type(error).__name__}: {error}"])
        show_as(rejected, *(fitted(self._shell, line) for line in own()))
        raise rejected from None


@contextlib.contextmanager
def _interrupts() -> Iterator[None]:
    """Let an interrupt raise KeyboardInterrupt at once. Before a cell with `await`, ipykernel delays it."""
    handler = _signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    _signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        _signal.signal(signal.SIGINT, handler)
