"""Who has started the engines of a cluster: what can be done about them depends on that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import MappingProxyType
from typing import TYPE_CHECKING

from gpu_magic.engines.engine import capitalized
from gpu_magic.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpu_magic.engines.engine import Engine

__all__ = ["CONTROLLER", "Others", "Starter"]

CONTROLLER = -1  # its number, beside those of the engines


class Starter(ABC):
    """Who has started the engines, and can end them.

    Attributes
    ----------
    on_end
        Called in a thread of its own when an engine has ended by itself: with its number, or CONTROLLER, what
        became of it (`ended with exit code 1`), and the last lines that it has written outside of cells.
    logs
        The files for the Python frames of a crash, by the numbers of engines.
    owns_engines
        Whether the engines and the client end with the cluster.
    is_here
        Whether all engines are known to run on this machine.
    can_restart
        Whether single engines can be started anew. `start` and `check` are for these alone.

    """

    on_end: Callable[[int, str, Sequence[str]], None] | None = None
    logs: Mapping[int, str] = MappingProxyType({})
    owns_engines = True
    is_here = False
    can_restart = False

    @abstractmethod
    def end(self) -> None:
        """End what was started, and return when nothing of it is left."""

    @abstractmethod
    def how_to_restart(self, numbers: Sequence[int]) -> str:
        """Return what starts engines anew, by their numbers: a clause."""

    def end_engines(self, engines: Sequence[Engine]) -> None:
        """End some engines, whatever they do, and return when nothing of them is left.

        Raises
        ------
        ClusterError
            They can't be started anew, so they were not ended.

        """
        self._refuse_restart([engine.number for engine in engines])

    def start(self, number: int) -> None:
        """Start an engine in the place of one that `end_engines` has ended; the same error."""
        self._refuse_restart([number])

    def _refuse_restart(self, numbers: Sequence[int]) -> None:
        raise ClusterError(f"{capitalized(self.how_to_restart(numbers))}.")

    def check(self, *numbers: int) -> None:  # noqa: B027 - most kinds don't know it
        """Raise ClusterError where the controller, or one of these engines, is known to have ended."""

    @property
    def has_no_controller(self) -> bool:
        """Whether the controller is known to have ended: it never answers then."""
        return False

    def note_gone(self, number: int) -> None:
        """Take note that the controller no longer has an engine."""
        if self.on_end:
            self.on_end(number, "ended", ())


class Others(Starter):
    """Somebody else, whose client this process uses: nothing is ended, and the client stays open."""

    owns_engines = False

    def end(self) -> None:
        """Let go of them."""

    def how_to_restart(self, numbers: Sequence[int]) -> str:
        them = "it" if len(numbers) == 1 else "them"
        return f"only what has started {them} can start {them} anew"
