"""`%gpu_tasks`: what was launched in the background."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from gpu_magic.display.task_output import RankLines
from gpu_magic.errors import GpuMagicError
from gpu_magic.launching.tasks import tasks
from gpu_magic.magics.arguments import read

if TYPE_CHECKING:
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
        %gpu_tasks NAME --wait   wait for its end; an interrupt ends the waiting alone
        %gpu_tasks NAME --stop   end it, with all that it has started
        """
        try:
            options = read("%gpu_tasks", line)
            if not options.request:
                for task in tasks:
                    print(f"{task.name}: {task}")
                if not list(tasks):
                    print("No task was launched; %gpu_launch --background NAME launches one.")
                return
            task = tasks.find(options.request)
        except GpuMagicError as error:
            raise UsageError(str(error)) from None
        if options.stop:
            task.stop()
            print(task)
        elif options.wait:
            task.wait()
            print(task)
        else:
            _show(task)


def _show(task: Task) -> None:
    lines = RankLines(sys.stdout.write, has_ranks=len(task.outputs) > 1)
    for output in task.outputs:
        lines.add(output.label, output.text)
    lines.end()
    print(task)
