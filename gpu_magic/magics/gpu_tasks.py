"""`%gpu_tasks`: what was launched in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from gpu_magic.errors import GpuMagicError, LaunchError, show_as
from gpu_magic.launching.tasks import tasks
from gpu_magic.magics.arguments import read
from gpu_magic.magics.task_view import show_output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.launching.task import Task

__all__ = ["GpuTasksMagic"]


class GpuTasksMagic:
    """The magic that shows tasks, waits for them and ends them."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def gpu_tasks(self, line: str) -> None:
        """Show what %gpu_launch --background has launched.

        %gpu_tasks               list all
        %gpu_tasks NAME          show what it has written
        %gpu_tasks NAME --wait   wait for its end, without a name for the end of all; an interrupt ends the
                                 waiting alone
        %gpu_tasks NAME --stop   end it, with all that it has started
        """
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
            print("No task was launched; %gpu_launch --background NAME launches one.")
            return
        if options.wait:
            _wait(found, is_named=bool(options.request))
            return
        if options.stop:
            found[0].stop()
        elif options.request:
            show_output(found[0], in_kernel=hasattr(self._shell, "kernel"))
        _list(found)


def _wait(found: Sequence[Task], *, is_named: bool) -> None:
    """Wait for the end of all, and say how each has ended; of the first that has failed, an error says it.

    Where none is named, what had failed before is no error again.
    """
    waited = found if is_named else [task for task in found if task.is_running]
    try:
        for task in waited:
            task.join()
    except KeyboardInterrupt as interrupt:
        running = ", ".join(task.name for task in found if task.is_running)
        text = f"KeyboardInterrupt: {running} runs on; %gpu_tasks NAME --stop ends it."
        show_as(interrupt, text)
        raise
    failed = [task for task in waited if task.has_failed]
    _list([task for task in found if task not in failed[:1]])
    for task in failed:
        task.check()  # the first of them is raised


def _list(found: Sequence[Task]) -> None:
    for task in found:
        print(f"{task.name}: {task}")
