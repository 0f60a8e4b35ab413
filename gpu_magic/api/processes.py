"""The processes of this user that have memory on GPUs, and the end of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.display.ended_process import EndedProcess
from gpu_magic.display.own_processes import OwnProcesses
from gpu_magic.engines.managers import find_manager
from gpu_magic.errors import ProcessError, show_as
from gpu_magic.process.ending import PATIENCE, endings, has_ended
from gpu_magic.process.own_processes import OwnProcess, find_own_processes
from gpu_magic.process.session import current
from gpu_magic.public import public

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["end_process", "my_processes"]


@public
def my_processes() -> OwnProcesses:
    """Return the processes of this user that have memory on GPUs: this kernel, other notebooks, scripts.

    Returns
    -------
    OwnProcesses
        A sequence that shows itself as a table, and below it what other notebooks of this user have claimed
        without memory there. Each has `pid`, `name`, `notebook`, `age` in seconds, and `memory` in bytes by
        device.

    Raises
    ------
    ProcessError
        It can't be known which they are, as in a container.

    """
    return OwnProcesses(find_own_processes(current(), find_manager))


@public
def end_process(
    which: int | str | OwnProcess, *, kill: bool = False, confirm: Callable[[str], bool] | None = None
) -> EndedProcess:
    """End a process of this user that has memory on a GPU, and wait up to 5 s for its end.

    It gets TERM. A kernel ends by it at once; where a Jupyter server has started that, it starts a new one,
    without variables.

    Parameters
    ----------
    which
        Its number, its name as `my_processes` shows it, or one of these.
    kill
        Send KILL, to one that has not ended 5 s after TERM.
    confirm
        Called with a question before anything is sent; returns whether to go on.

    Raises
    ------
    ProcessError
        It is not this user's, has ended, is this process itself, or one that %gpu_tasks or %gpu_cluster
        manages; nothing was sent.

    """
    there = my_processes()
    own = there.find(which.pid if isinstance(which, OwnProcess) else which)
    meant = which if isinstance(which, OwnProcess) else own
    there.check_can_end(own)
    name, started = there.called(own), meant.process.started
    if confirm and not confirm(f"{'Kill' if kill else 'End'} {there.described(own)}?"):
        return EndedProcess(own, name, has_ended=None)
    if not isinstance(started, int):
        raise ProcessError(f"Process {own.pid} has ended already.")
    endings.send(own.pid, started, kill=kill)
    try:
        return EndedProcess(own, name, has_ended=has_ended(own.pid, started, PATIENCE))
    except KeyboardInterrupt as interrupt:
        show_as(
            interrupt, f"KeyboardInterrupt: the signal was sent; %gpus --mine shows whether {name} has ended."
        )
        raise
