"""Other processes: scripts of this user's, one of another user's, and how they are found."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from tests.conftest import LIMIT
from tests.machine import CARDS, GIB, IN_CONTAINER, Driver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "DEAF",
    "WAITS",
    "another_users",
    "marked",
    "missing",
    "needs_root",
    "running",
    "running_again",
    "sees_processes",
    "until",
    "using",
]

# Root runs them everywhere: with CI=true nothing that root can do is skipped.
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root")
sees_processes = pytest.mark.skipif(
    IN_CONTAINER and not os.environ.get("CI"),
    reason="the driver's process numbers are not ours in a container",
)
WAITS = "import time\nprint(1, flush=True)\ntime.sleep(600)"
DEAF = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{WAITS}"


def missing(what: str) -> NoReturn:
    """Skip a test for what this user may not do; as root in CI, where all has to be there, fail."""
    if os.environ.get("CI") and os.getuid() == 0:
        pytest.fail(what)
    pytest.skip(f"needs root, or a machine that allows it: {what}")


@contextmanager
def running(code: str, script: Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a script in a process of its own, once it has printed something."""
    script.write_text(code)
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, env=os.environ | variables)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


_LAST_NUMBER = Path("/proc/sys/kernel/ns_last_pid")


@contextmanager
def running_again(
    number: int, code: str, script: Path, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a script in a process that gets a number which another one has had."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        _LAST_NUMBER.write_text(
            str(number - 1)
        )  # the next process gets the number behind it, if nobody is faster
        with running(code, script, **variables) as process:
            if process.pid == number:
                yield process
                return
    raise TimeoutError


@contextmanager
def another_users(**variables: str) -> Iterator[tuple[int, str]]:
    """Yield the number of a process that is not this user's, and who it belongs to."""
    if os.getuid() != 0:
        yield 1, "root"
        return
    # Not Python: it can stand in a folder that is root's alone.
    with subprocess.Popen(["sleep", "600"], user="nobody", env=variables) as process:
        try:
            yield process.pid, "nobody"
            assert process.poll() is None  # nobody has ended it
        finally:
            process.kill()


def using(*pids: int) -> Driver:
    """Return four A100s, with these processes on the second."""
    processes = tuple((pid, (number + 2) * GIB) for number, pid in enumerate(pids))
    return Driver((CARDS[0], replace(CARDS[1], used=60 * GIB, util=97, processes=processes), *CARDS[2:]))


def marked(mark: str) -> set[int]:
    """Return all processes that carry a mark in their environment."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_zombie = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if not is_zombie and f"MARK={mark}\0".encode() in (folder / "environ").read_bytes() + b"\0":
                found.add(int(folder.name))
    return found


def until(condition: Callable[[], object]) -> None:
    """Wait until something is true: a hang fails the test."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
