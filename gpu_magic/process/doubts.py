"""What is said of a choice that is applied, and may have no effect in this process, a framework, a child."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpu_magic.frameworks import imported
from gpu_magic.process.environment import variables_now
from gpu_magic.process.state import State
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.process.guard import Guard
    from gpu_magic.selection.select import Selection

__all__ = ["doubts"]


def doubts(guard: Guard, selection: Selection, *, is_simulated: bool) -> Iterator[str]:
    """Yield a sentence for each doubt, before the choice is applied.

    Parameters
    ----------
    guard
        What the guard says: the choice is not too late.
    selection
        What is chosen.
    is_simulated
        Whether these GPUs are.

    """
    if guard.state in (State.BROKEN, State.UNCLEAR):
        yield f"{guard}."
    variables = variables_now()
    if _has_fork_server() and selection.variables != variables.named(tuple(selection.variables)):
        yield (
            "multiprocessing's fork server was started before, and processes that it starts have what was "
            "set then: use the start method spawn."
        )
    if not isinstance(selection.devices, tuple) or not selection.devices:
        return
    mask = variables.mask
    is_cuda = guard.vendor == "nvidia"
    if guard.state is State.LIVE and is_cuda and mask is not None and mask.strip() in ("", "-1"):
        # The driver then answers as if it had not been started (reported for cuInit: CUDA.jl #1336).
        yield (
            "CUDA's driver was loaded while every GPU was hidden. If it was also started, this comes too "
            "late, which can't be known: where a framework finds no GPU, restart."
        )
    if not is_simulated:  # no framework can have such a GPU
        yield from _of_frameworks(selection)


def _of_frameworks(selection: Selection) -> Iterator[str]:
    started = []
    for framework in imported():
        if without_cuda := framework.without_cuda():
            if selection.vendor == "nvidia":  # how to install it
                yield without_cuda
        elif framework.is_started() and not framework.has_gpu():
            started.append(framework.name)
    if started:
        yield f"{listed(started)} started without a GPU, and will have none before a restart."


def _has_fork_server() -> bool:
    """Return whether multiprocessing has started its fork server, whose children get its own variables.

    It is the default way to start processes on Linux from Python 3.14 on.
    """
    server = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    return getattr(server, "_forkserver_pid", None) is not None
