"""Forks processes that choose GPUs whenever a line comes, and say which, or why none: `racer.py 64`.

One that has GPUs says them again, until it is told to reset.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import gpu_magic
from gpu_magic.errors import ChoiceError


def race(lines: int) -> None:
    has: tuple[object, ...] = ()
    for line in os.fdopen(lines):
        request, option, _ = line.strip().partition(" --only-free")
        said = ""
        try:
            if request == "reset" or not has:
                devices = gpu_magic.choose(request, only_free=bool(option)).devices
                has = () if request == "reset" else tuple(device.uuid for device in devices)
        except ChoiceError as error:
            said = f"- {error!r}"
        os.write(1, f"{said or ' '.join(map(str, has))}\n".encode())  # whole, whoever else writes
    os._exit(0)


gpu_magic.gpus()  # all is loaded
pids, pipes = [], []
for _ in range(int(sys.argv[1])):
    lines, to_racer = os.pipe()
    if not (pid := os.fork()):
        for pipe in (*pipes, to_racer):
            os.close(pipe)
        race(lines)
    os.close(lines)
    pids.append(pid)
    pipes.append(to_racer)
print(*pids, flush=True)
for text in sys.stdin:
    for pipe in pipes:
        with suppress(BrokenPipeError):  # it was killed
            os.write(pipe, text.encode())
