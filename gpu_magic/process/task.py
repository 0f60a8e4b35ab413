"""What runs in the background: the abstract base class of the tasks that `%gpu_tasks` lists."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BackgroundTask"]


class BackgroundTask(ABC):
    """Something that was started and runs while other cells do. `str` returns what becomes of it, as a line.

    The abstract members are required. The others are what a kind of task may have; their bodies here are the
    answers of a task without it.

    Attributes
    ----------
    name
        What it is called.
    result
        What it has come to, to be shown; None for nothing.
    gpus
        The GPUs of this process that it runs on, in words; empty where it runs on none of them, as a process
        of its own does.

    """

    name: str
    result: Any = None
    gpus: str = ""

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether anything of it is left."""

    @property
    @abstractmethod
    def has_failed(self) -> bool:
        """Whether it has ended by itself, and not well."""

    @abstractmethod
    def join(self, timeout: float | None = None) -> bool:
        """Wait for its end, however it ends; return whether it has come before the timeout, in seconds."""

    @abstractmethod
    def check(self) -> None:
        """Raise the error that it has failed with, if it has."""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> Any:
        """Wait for its end; return what it has come to, or raise as `check` does.

        Raises
        ------
        TimeoutError
            It runs longer than the timeout, in seconds.

        """

    @abstractmethod
    def stop(self) -> None:
        """End it, as far as that is possible."""

    @abstractmethod
    def __str__(self) -> str: ...

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self}>"

    def has_started(self, pid: int) -> bool:  # noqa: ARG002 - most kinds start no process
        """Return whether a process is one that it has started, or that such a one has."""
        return False

    def kept(self) -> Mapping[str, object]:
        """Return the objects of this process that it keeps, once it has ended, each with what it is."""
        return {}

    def forget(self) -> None:  # noqa: B027 - nothing is kept
        """Drop what `kept` returns."""
