"""Carries out a plan: copies everything, then puts the copies in place; all of it or nothing."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.moving.critical_section import collection_paused, deferred_interrupts
from gpu_magic.moving.plan import framework_of
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
        problem = ""
        is_interrupted = False
        try:
            with collection_paused():
                self._plan.check_resources()
                self._copy()
                with deferred_interrupts() as interrupts:
                    self._commit(interrupts)
        except KeyboardInterrupt:
            is_interrupted = True
        except PlacementError as error:
            problem = f"{error} Nothing was changed."
        except Exception as error:  # noqa: BLE001 - each framework has its own for being out of memory
            problem = self._problem(error)
        if is_interrupted or problem:  # outside of the handlers, whose frames hold on to the copies
            self._give_up()
        if is_interrupted:
            raise KeyboardInterrupt
        if problem:
            raise PlacementError(problem)
        return [self._plan.graph.now(value) for value in self._plan.values.values()]

    def _copy(self) -> None:
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
        if interrupts:
            raise KeyboardInterrupt
        for module in transfers:
            framework_of(module).finalize(graph.composites())

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
        with deferred_interrupts():
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
            framework.empty_cache()
