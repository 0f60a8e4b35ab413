"""Runs in a kernel: what users type, interrupted at random moments."""

from __future__ import annotations

import os
import random
import signal

from tests.reliability.inside import tell_traceback
from tests.reliability.steps import Steps

__all__ = ["INTERRUPTS", "KILLS", "LINES", "anywhere"]

INTERRUPTS, KILLS = 500, 100  # how many are tried

LINES = (
    "%gpus 1,3 --growth",
    "%gpus 2 --order fastest --memory-limit 8GB",
    "%gpus 3,0 --growth --memory-limit 4GB",
    "%gpus reset",
    "%gpus",
    "%to_gpu x batch",
    "%gpu_park",
    "%gpu_unpark",
    "%to_cpu x batch",
    "%reload_ext gpu_magic",
)


def anywhere(shell, times: int, seed: int = 0) -> dict:
    """Interrupt lines at random moments; return how they ended, and what was wrong after them.

    A moment is a step of Python's: one in time would seldom come between two steps that follow each other closely.

    After each line the environment has to be as before it or as the whole line makes it, the variables have to belong
    together, and interrupts have to be handled as before.
    """
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    results, steps = _measure(shell)
    chance = random.Random(seed)
    ended, wrong = {"interrupted": 0, "finished": 0}, []
    for _ in range(times):
        line = chance.choice(LINES)
        before = dict(os.environ)
        moment = chance.randrange(steps[line]) + 1
        how, shown = _run(shell, line, moment)
        ended[how] += 1
        now, can_be = dict(os.environ), [before, results.get(line, before)]
        if line.startswith("%reload_ext"):
            can_be.append(results["%gpus reset"])
            shell.run_line_magic("load_ext", "gpu_magic")
            now = dict(os.environ)
        if now not in can_be:
            changed = {name for one in can_be for name in one.keys() | now if one.get(name) != now.get(name)}
            wrong.append(f"{line}, {how} at {moment}: { {name: now.get(name) for name in changed} }")
        if shown:
            wrong.append(f"{line} shows {shown}")
        wrong += [f"{line}, {how} at {moment}: {what}" for what in _look_at_variables(shell.user_ns)]
    shell.run_line_magic("gpus", "reset")
    if os.environ != results["%gpus reset"]:
        wrong.append("at the end")
    signal.signal(signal.SIGINT, handler)
    return {"ended": ended, "wrong": wrong}


def _measure(shell) -> tuple[dict, dict]:
    """Run each line to its end; return the environment after the choices, and how many steps each takes."""
    results, steps = {}, {}
    for _ in range(2):  # modules are imported when they are first used
        for line in LINES:
            magic, _, rest = line[1:].partition(" ")
            counter = Steps()
            with counter.counted():
                shell.run_line_magic(magic, rest)
            steps[line] = counter.count
            if line.startswith("%gpus "):
                results[line] = dict(os.environ)
    return results, steps


def _run(shell, line: str, moment: int) -> tuple[str, str]:
    """Run a line, and interrupt it; return how it ended, and the frames of ours that its traceback would show."""
    magic, _, rest = line[1:].partition(" ")
    shown, how = "", "finished"
    try:
        with Steps(moment, lambda: signal.raise_signal(signal.SIGINT)).counted():
            shell.run_line_magic(magic, rest)
    except KeyboardInterrupt as interrupt:
        how = "interrupted"
        shown = tell_traceback(shell, interrupt)
    now = signal.getsignal(signal.SIGINT)
    if now is not signal.default_int_handler:
        shown += f" the handler {now}"
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return how, shown


def _look_at_variables(namespace: dict) -> list[str]:
    wrong = []
    if namespace["batch"]["x"] is not namespace["x"]:
        wrong.append("x and batch do not belong together any more")
    if namespace["x"].tolist() != list(range(8)):
        wrong.append("x is another")
    return wrong
