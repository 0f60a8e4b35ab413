"""Runs in a kernel: processes that choose GPUs are killed at random moments, and nothing of them is left."""

from __future__ import annotations

import os
import random
import signal

from gpu_magic.process.session import current
from tests.reliability.steps import Steps

__all__ = ["anywhere"]

_LINE = "1,3 --growth"


def anywhere(shell, times: int) -> list[str]:
    """Kill children at random moments of a choice; return what was wrong after them.

    Others see no claim of theirs, and can have the same GPUs at once.
    """
    shell.run_line_magic("gpus", "reset")
    before, wrong, counter = dict(os.environ), [], Steps()
    for _ in range(2):
        with counter.counted():
            shell.run_line_magic("gpus", _LINE)
        shell.run_line_magic("gpus", "reset")
    chance = random.Random(0)
    for _ in range(times):
        moment = chance.randrange(counter.count // 2) + 1
        child = os.fork()
        if not child:
            _choose_and_die(shell, moment)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            wrong.append(f"at {moment} it ended with {status}")
        if claims := current().claims.others():
            wrong.append(f"at {moment} it has left the claims {claims}")
        shell.run_line_magic("gpus", "1,3 --only-free")
        if os.environ.get("CUDA_VISIBLE_DEVICES") != "1,3":
            wrong.append(
                f"at {moment} it has left CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES')}"
            )
        shell.run_line_magic("gpus", "reset")
        if os.environ != before:
            wrong.append(f"at {moment}: another environment")
    return wrong


def _choose_and_die(shell, moment: int) -> None:
    """Choose GPUs in a process that is killed at a moment, at the latest once they are chosen."""
    try:
        with Steps(moment, lambda: os.kill(os.getpid(), signal.SIGKILL)).counted():
            shell.run_line_magic("gpus", _LINE)
    finally:
        os.kill(os.getpid(), signal.SIGKILL)
