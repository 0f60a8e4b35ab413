"""Forks kernels: a process that has imported ipykernel once, and the modules named on its command line.

It reads requests on its standard input, a line of JSON each. Each of them is answered with the number of a process that
is a kernel from then on, as if `ipykernel_launcher` had been started in it: with the variables, the folder and the
arguments of the request. It ends with its input, and then its kernels end, too.
"""

from __future__ import annotations

import os

# ipykernel reads it when it is imported: kernels end with this process.
os.environ["JPY_PARENT_PID"] = str(os.getpid())

import ctypes
import gc
import json
import signal
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from ipykernel import kernelapp

# What each kernel imports by itself before its first cell, and what most choices import that is not gpu_magic's.
STARTED = (
    "ctypes.util",
    "pynvml",
    "IPython.core.completerlib",
    "IPython.extensions.storemagic",
    "ipykernel.debugger",
    "psutil",
    "sqlite3",
    "tornado.platform.asyncio",
)


def become_kernel(variables: dict[str, str], folder: str, arguments: list[str]) -> None:
    """Be a kernel, in a process of our own, to its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    be_started_with(variables)
    os.environ.update(variables, JPY_PARENT_PID=str(os.getppid()))
    tempfile.tempdir = None
    os.chdir(folder)
    sys.argv[1:] = arguments
    kernelapp.launch_new_instance()


def be_started_with(variables: dict[str, str]) -> None:
    """Make these the variables with which this process was started, for all who read /proc/PID/environ."""
    stat = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    start, end = int(stat[47]), int(stat[48])
    entries = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in variables.items())
    if len(entries) > end - start:
        raise ValueError("there is too little room for the variables")
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, entries, len(entries))


def main() -> None:
    """Answer requests."""
    del sys.path[0]  # our own folder
    replies = os.dup(1)
    os.dup2(2, 1)  # what is printed, here and by kernels, is no reply
    for name in (*STARTED, *sys.argv[1:]):
        import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that nobody has to wait for them
    while line := sys.stdin.buffer.readline():
        if not os.fork():
            os.setsid()  # so that signals reach what a kernel has started, and nobody else
            os.write(replies, b"%d\n" % os.getpid())
            os.close(replies)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            become_kernel(*json.loads(line))
            return


if __name__ == "__main__":
    main()
