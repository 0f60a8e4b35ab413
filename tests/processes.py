"""Other processes on the GPUs: scripts of this user's, and one of another user's."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.machine import CARDS, GIB, IN_CONTAINER, Driver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["DEAF", "WAITS", "another_users", "running", "sees_processes", "using"]

# In CI they run there as well, and fail: nothing is skipped in silence.
sees_processes = pytest.mark.skipif(
    IN_CONTAINER and not os.environ.get("CI"),
    reason="the driver's process numbers are not ours in a container",
)
WAITS = "import time\nprint(1, flush=True)\ntime.sleep(600)"
DEAF = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{WAITS}"


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


@contextmanager
def another_users(**variables: str) -> Iterator[tuple[int, str]]:
    """Yield the number of a process that is not this user's, and who it belongs to."""
    if os.getuid() != 0:
        yield 1, "root"
        return
    # Not Python: it can stand in a folder that is root's alone.
    with subprocess.Popen(["sleep", "600"], user="nobody", env=variables) as process:
        yield process.pid, "nobody"
        assert process.poll() is None  # nobody has ended it
        process.kill()


def using(*pids: int) -> Driver:
    """Return four A100s, with these processes on the second."""
    processes = tuple((pid, (number + 2) * GIB) for number, pid in enumerate(pids))
    return Driver((CARDS[0], replace(CARDS[1], used=60 * GIB, util=97, processes=processes), *CARDS[2:]))
