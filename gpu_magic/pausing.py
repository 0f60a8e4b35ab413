"""Leaves a context while a coroutine waits, and enters it again when it goes on.

What is set for a thread would else hold for every other task of the loop while one of them waits, and two
that overlap would leave each other's settings behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

__all__ = ["Pausable", "Pausing"]


class Pausable(Protocol):
    """A context, entered, that can be left for a while."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Pausing:
    """Awaits a coroutine that runs within a context.

    Parameters
    ----------
    coroutine
        What to await; it enters and leaves the context itself.
    context
        Paused for as long as the coroutine waits. One that is not entered has nothing to pause.

    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], context: Pausable) -> None:
        self._coroutine, self._context = coroutine, context

    def __await__(self) -> Generator[Any, Any, Any]:
        __tracebackhide__ = True
        step: Any = self._coroutine.send
        argument: Any = None
        while True:
            try:
                waits_for = step(argument)
            except StopIteration as stop:
                return stop.value
            self._context.pause()
            try:
                argument = yield waits_for
                step = self._coroutine.send
            except BaseException as error:  # noqa: BLE001 - it is the coroutine's: cancelled, interrupted
                step, argument = self._coroutine.throw, error
            finally:
                self._context.resume()
