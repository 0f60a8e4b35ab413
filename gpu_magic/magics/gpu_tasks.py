"""`%gpu_tasks`: what runs in the background, commands and cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError
from IPython.display import display

from gpu_magic.errors import GpuMagicError, show_as
from gpu_magic.launching.task import Task
from gpu_magic.magics.arguments import read, refusal
from gpu_magic.magics.task_view import show_output
from gpu_magic.process.tasks import VERBS, tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.process.tasks import BackgroundTask

__all__ = ["GpuTasksMagic"]

_AGAIN = 0.5  # seconds between two looks at whether a task has ended


class GpuTasksMagic:
    """The magic that shows tasks, waits for them and stops them."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._in_kernel = hasattr(shell, "kernel")

    def gpu_tasks(self, line: str) -> None:
        """Show what %gpu_launch --background and %%on_gpu --background have started.

        %gpu_tasks              list all
        %gpu_tasks NAME         show what a command has written, or the value of a cell
        %gpu_tasks wait NAME    wait for its end, show the same, and fail if it has failed; without a name,
                                wait for the end of all. An interrupt ends only the waiting
        %gpu_tasks stop NAME    end a command with all that it has started; interrupt a cell

        Separate several names by commas: %gpu_tasks wait train, eval
        """
        __tracebackhide__ = True
        verb, names = _read(line)
        try:
            found = [tasks.find(name) for name in names] or list(tasks)
        except GpuMagicError as error:
            raise UsageError(str(error)) from None
        if not found:
            print(
                "Nothing was started in the background; %gpu_launch --background NAME starts a command, and "
                "%%on_gpu 0 --background NAME a cell."
            )
        elif verb == "wait":
            waited = found if names else [task for task in found if task.is_running]
            _join(waited)
            if names:
                self._show_outputs(found)
            _tell(found, waited)
            if names and self._in_kernel:  # in a terminal, a cell in the background has shown it above
                _show_results(found)
        else:
            if verb == "stop":
                for task in found:
                    task.stop()
            elif names:
                self._show_outputs(found)
                _show_results(found)
            _list(found)

    def _show_outputs(self, found: Sequence[BackgroundTask]) -> None:
        for task in found:
            if isinstance(task, Task):
                show_output(task, in_kernel=self._in_kernel)


def _read(line: str) -> tuple[str, list[str]]:
    """Return the verb, empty for none, and the names of tasks."""
    typed = line.replace(",", " ").split()
    for verb in VERBS:
        if f"--{verb}" in typed:  # its former spelling
            names = ", ".join(word for word in typed if word != f"--{verb}")
            raise refusal(f"%gpu_tasks {line.strip()} is {f'%gpu_tasks {verb} {names}'.strip()} now.")
    words = read("%gpu_tasks", line).request.replace(",", " ").split()
    verb = words.pop(0) if words and words[0] in VERBS else ""
    if verb == "stop" and not words:
        raise refusal("%gpu_tasks stop needs a task's name. %gpu_tasks lists them.")
    return verb, words


def _join(waited: Sequence[BackgroundTask]) -> None:
    """Wait for the end of all."""
    __tracebackhide__ = True
    try:
        for task in waited:
            while not task.join(_AGAIN):  # Python can miss an interrupt that comes as it begins to wait
                pass
    except KeyboardInterrupt as interrupt:
        running = ", ".join(task.name for task in waited if task.is_running)
        show_as(interrupt, f"KeyboardInterrupt: still running: {running}. To stop: %gpu_tasks stop {running}")
        raise


def _tell(found: Sequence[BackgroundTask], waited: Sequence[BackgroundTask]) -> None:
    """Say how each has ended; of the first that was waited for and has failed, an error says it.

    Where none is named, what had failed before is no error again.
    """
    __tracebackhide__ = True
    failed = [task for task in waited if task.has_failed]
    _list([task for task in found if task not in failed[:1]])
    for task in failed:
        task.check()  # the first of them is raised


def _show_results(found: Sequence[BackgroundTask]) -> None:
    for task in found:
        if task.result is not None:
            display(task.result)


def _list(found: Sequence[BackgroundTask]) -> None:
    for task in found:
        print(f"{task.name}: {task}")
