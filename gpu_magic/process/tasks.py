"""The tasks of this process that run in the background, or have ended and can still be looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.process.task import BackgroundTask

__all__ = ["Tasks", "tasks"]

_MOST_KEPT = 32  # that have ended


class Tasks:
    """Keeps them by name, in the order of their start."""

    def __init__(self) -> None:
        self._tasks: dict[str, BackgroundTask] = {}

    def __iter__(self) -> Iterator[BackgroundTask]:
        return iter(list(self._tasks.values()))  # a task can start another one

    def check_name(self, name: str) -> None:
        """Raise LaunchError where a task of this name runs."""
        if name in self._tasks and self._tasks[name].is_running:
            raise LaunchError(f"{name} runs already: %gpu_tasks --stop {name} ends it, or take another name.")

    def add(self, task: BackgroundTask) -> None:
        """Keep a task; forget one of its name that has ended, and the oldest of those that have."""
        self._tasks.pop(task.name, None)
        self._tasks[task.name] = task
        ended = [one.name for one in self if not one.is_running]
        for name in ended[: max(0, len(ended) - _MOST_KEPT)]:
            del self._tasks[name]

    def find(self, name: str) -> BackgroundTask:
        """Return the task of a name.

        Raises
        ------
        LaunchError
            There is none.

        """
        if name in self._tasks:
            return self._tasks[name]
        word, _, rest = name.partition(" ")
        if word in ("stop", "wait") and rest:
            raise LaunchError(f"There is no task {name}; try %gpu_tasks {rest} --{word}.")
        if word in self._tasks and rest in ("stop", "wait"):
            raise LaunchError(f"There is no task {name}; try %gpu_tasks {word} --{rest}.")
        if rest:
            raise LaunchError(f"Name one task: {word}, for example.")
        known = ", ".join(self._tasks)
        raise LaunchError(
            f"There is no task {name}; there are: {known}."
            if known
            else f"There is no task {name}, and no other."
        )


tasks = Tasks()
