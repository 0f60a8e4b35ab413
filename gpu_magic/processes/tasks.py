"""The background tasks of this process, also some that have ended."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import LaunchError
from gpu_magic.text import nearest_option, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["VERBS", "BackgroundTask", "tasks"]

VERBS = ("wait", "stop")  # of `%gpu_tasks`, so no task can have these names
_MOST_KEPT = 32  # ended tasks
_LONGEST_NAME = 60  # characters


class BackgroundTask(ABC):
    """A command or a cell that runs in the background. `str` returns its state, as a line.

    Attributes
    ----------
    name
        The name of the task.
    result
        The result to show. None: nothing to show.
    gpus
        The GPUs of this process that the task uses, in words. Empty if the task uses none of them. A command
        uses none of them, because it runs in other processes.
    uses_variables
        Whether the task runs code of the user in this process, which can use every variable.

    """

    name: str
    result: Any = None
    gpus: str = ""
    uses_variables: bool = False

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether a part of the task still runs."""

    @property
    @abstractmethod
    def has_failed(self) -> bool:
        """Whether the task has ended by itself, with an error."""

    @abstractmethod
    def join(self, timeout: float | None = None) -> bool:
        """Wait until the task ends. Return whether it ended before the timeout, in seconds."""

    @abstractmethod
    def check(self) -> None:
        """If the task has failed, raise CommandFailed."""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> Any:
        """Wait until the task ends. Return its result.

        Raises
        ------
        TimeoutError
            The task runs longer than the timeout, in seconds.
        CommandFailed
            The task has failed.

        """

    @abstractmethod
    def stop(self) -> None:
        """End the task, if that is possible."""

    @abstractmethod
    def __str__(self) -> str: ...

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self}>"

    def has_started(self, pid: int) -> bool:  # noqa: ARG002 - most kinds start no process
        """Return whether the task, or one of its processes, started the process with this number."""
        return False


class _Tasks:
    """Keeps tasks by name, in the order of their start."""

    def __init__(self) -> None:
        self._tasks: dict[str, BackgroundTask] = {}

    def __iter__(self) -> Iterator[BackgroundTask]:
        return iter(list(self._tasks.values()))  # a task can start another one

    def check_name(self, name: str) -> None:
        """Raise LaunchError if a task of this name runs, or `%gpu_tasks` could not find the name."""
        if name in VERBS or re.search(r"[,\s]", name) or shortened(name, _LONGEST_NAME) != name:
            raise LaunchError(
                f"{shortened(name, _LONGEST_NAME)} cannot be a task's name. Choose one word other than wait "
                "and stop."
            )
        if name in self._tasks and self._tasks[name].is_running:
            raise LaunchError(f"{name} already runs. Choose another name, or stop it: %gpu_tasks stop {name}")

    def add(self, task: BackgroundTask) -> None:
        """Keep a task. Forget an ended task of the same name, and the oldest ended tasks."""
        self._tasks.pop(task.name, None)
        self._tasks[task.name] = task
        ended = [one.name for one in self if not one.is_running]
        for name in ended[: max(0, len(ended) - _MOST_KEPT)]:
            del self._tasks[name]

    def find(self, name: str, others: Iterable[str] = ()) -> BackgroundTask:
        """Return the task with a name. Raise LaunchError if there is none. `others` are typed with it."""
        if name in self._tasks:
            return self._tasks[name]
        if near := nearest_option(name, [*VERBS, *self._tasks]):
            near = (
                " ".join(["%gpu_tasks", near, *(one for one in others if one != name)])
                if near in VERBS
                else near
            )
            raise LaunchError(f"There is no task {name}. Did you mean {near}?")
        known = f". There are: {', '.join(self._tasks)}" if self._tasks else ": none was started"
        raise LaunchError(f"There is no task {name}{known}.")


tasks = _Tasks()
