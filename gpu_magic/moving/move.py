"""Carries out a plan: copies everything, then puts the copies in place; all of it or nothing."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.interrupts import deferred_interrupts
from gpu_magic.moving.plan import framework_of
from gpu_magic.placement.collection import collection_paused
from gpu_magic.text import size_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_magic.moving.names import Names
    from gpu_magic.moving.plan import Plan

__all__ = ["carry_out"]

# What the errors of the frameworks say when memory is exhausted.
_OUT_OF_MEMORY = ("out of memory", "outofmemory", "resource_exhausted")


def carry_out(
    plan: Plan, names: Names | None = None, report: Callable[[int], object] | None = None
) -> list[Any]:
    """Move the variables of a plan.

    Parameters
    ----------
    plan
        What to move, and where to.
    names
        The names whose variables get the new values.
    report
        Called with the number of bytes that are copied, after each piece.

    Returns
    -------
    list
        The variables as they are now.

    Raises
    ------
    PlacementError
        It failed, out of memory for example. Everything is as it was, and what was allocated is freed.

    """
    return _Execution(plan, names, report).run()


class _Execution:
    """One execution of a plan. Parameters as those of `carry_out`."""

    def __init__(self, plan: Plan, names: Names | None, report: Callable[[int], object] | None) -> None:
        self._plan, self._names, self._report = plan, names, report
        self._copied = 0  # bytes
        self._undo: list[Callable[[], None]] = []

    def run(self) -> list[Any]:
        failure: BaseException | None = None
        interrupts: list[int] = []
        is_settled = False
        try:
            with collection_paused():
                failure = self._attempt(self._prepare)
                # An interrupt ends the work, and it is undone; a later one is raised when that is finished.
                with deferred_interrupts() as interrupts:
                    if failure is None:
                        failure = self._attempt(lambda: self._commit(interrupts))
                    if failure is not None:
                        self._give_up()
                    is_settled = True
        except KeyboardInterrupt:  # between two steps
            failure = KeyboardInterrupt()
        if not is_settled:
            with deferred_interrupts():
                self._give_up()
        if interrupts:
            failure = KeyboardInterrupt()
        if failure is not None:
            raise failure
        return [self._plan.graph.now(value) for value in self._plan.values.values()]

    def _attempt(self, step: Callable[[], None]) -> BaseException | None:
        """Take a step; return an error to raise, without the frames of its own, which hold the copies."""
        try:
            step()
        except KeyboardInterrupt:
            return KeyboardInterrupt()
        except PlacementError as error:
            return PlacementError(f"{error} Nothing was changed.")
        except Exception as error:  # noqa: BLE001 - each framework has its own for being out of memory
            return PlacementError(self._problem(error))
        return None

    def _prepare(self) -> None:
        """Make all the copies. Nothing is changed."""
        self._plan.check_resources()
        for transfer in self._plan.transfers.values():
            for nbytes in transfer.copy():
                self._copied += nbytes
                if self._report is not None:
                    self._report(self._copied)

    def _commit(self, interrupts: list[int]) -> None:
        """Put the copies in place, and prepare to undo each step before it is taken."""
        graph, transfers = self._plan.graph, self._plan.transfers
        for transfer in transfers.values():
            transfer.commit()
        for change in graph.rebuild(self._replacement):
            self._undo.append(change.undo)
            change.make()
        if self._names is not None:
            self._undo.append(self._names.undo)
            self._names.put({name: graph.now(value) for name, value in self._plan.values.items()})
        for module in transfers:
            for undo in framework_of(module).finalize(graph.composites(), self._plan.requested):
                self._undo.append(undo)
        if interrupts:
            raise KeyboardInterrupt

    def _replacement(self, array: Any) -> Any:
        for transfer in self._plan.transfers.values():
            if (new := transfer.replacement(array)) is not array:
                return new
        return array

    def _problem(self, error: Exception) -> str:
        device = self._plan.device
        message = " ".join(f"{type(error).__name__}: {error}".split())
        if any(words in message.lower() for words in _OUT_OF_MEMORY):
            copied = f"{size_text(self._copied)} of {size_text(self._plan.nbytes)}"
            return (
                f"{device} ran out of memory after {copied}. All is as it was. Move fewer, or see what "
                "%gpu_free gives back."
            )
        return f"Moving to {device} failed, and all is as it was: {message[:300]}"

    def _give_up(self) -> None:
        """Undo every step, whatever one of them raises; free what was allocated, also by the frameworks."""
        transfers = self._plan.transfers
        while self._undo:
            with contextlib.suppress(Exception):
                self._undo.pop()()
        for module in reversed(transfers):
            with contextlib.suppress(Exception):
                transfers[module].undo()
        frameworks = list(map(framework_of, transfers))
        self._plan.discard()
        gc.collect()
        for framework in frameworks:
            with contextlib.suppress(Exception):  # after an error of CUDA's, each call can raise it again
                framework.empty_cache()
