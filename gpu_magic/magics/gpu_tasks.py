"""`%gpu_tasks`: what runs in the background, commands and cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError
from IPython.display import display

from gpu_magic.errors import GpuMagicError, LaunchError, show_as
from gpu_magic.launching.task import Task
from gpu_magic.magics.arguments import read
from gpu_magic.magics.task_view import show_output
from gpu_magic.process.tasks import tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.process.task import BackgroundTask

__all__ = ["GpuTasksMagic"]

_AGAIN = 0.5  # seconds between two looks at whether a task has ended


class GpuTasksMagic:
    """The magic that shows tasks, waits for them and ends them."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def gpu_tasks(self, line: str) -> None:
        """Show what %gpu_launch --background and %%on_gpu --background have started.

        %gpu_tasks               list all
        %gpu_tasks NAME          show what a command has written, or the value of a cell
        %gpu_tasks NAME --wait   wait for its end, show the same, and fail where it has failed; without a
                                 name, wait for the end of all. An interrupt ends the waiting alone
        %gpu_tasks NAME --stop   end a command with all that it has started; interrupt a cell
        """
        __tracebackhide__ = True
        try:
            options = read("%gpu_tasks", line)
            if options.stop and options.wait:
                raise LaunchError("--wait or --stop: a task that is stopped has ended.")
            found = [tasks.find(options.request)] if options.request else list(tasks)
            if options.stop and not options.request:
                raise LaunchError("--stop needs a task's name: %gpu_tasks lists them.")
        except GpuMagicError as error:
            raise UsageError(str(error)) from None
        if not found:
            print(
                "Nothing was started in the background; %gpu_launch --background NAME starts a command, and "
                "%%on_gpu 0 --background NAME a cell."
            )
            return
        if options.wait:
            waited = found if options.request else [task for task in found if task.is_running]
            _join(waited)
            if options.request:
                self._show_output(found[0])
            _tell(found, waited)
            # In a terminal it stands above already, where the cell in the background has shown it.
            if options.request and hasattr(self._shell, "kernel"):
                _show_result(found[0])
            return
        if options.stop:
            found[0].stop()
        elif options.request:
            self._show_output(found[0])
            _show_result(found[0])
        _list(found)

    def _show_output(self, task: BackgroundTask) -> None:
        if isinstance(task, Task):
            show_output(task, in_kernel=hasattr(self._shell, "kernel"))


def _join(waited: Sequence[BackgroundTask]) -> None:
    """Wait for the end of all."""
    __tracebackhide__ = True
    try:
        for task in waited:
            while not task.join(_AGAIN):  # Python can miss an interrupt that comes as it begins to wait
                pass
    except KeyboardInterrupt as interrupt:
        running = ", ".join(task.name for task in waited if task.is_running)
        text = f"KeyboardInterrupt: {running} runs on; %gpu_tasks NAME --stop ends it."
        show_as(interrupt, text)
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


def _show_result(task: BackgroundTask) -> None:
    if task.result is not None:
        display(task.result)


def _list(found: Sequence[BackgroundTask]) -> None:
    for task in found:
        print(f"{task.name}: {task}")
