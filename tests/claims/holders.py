"""Other processes that claim devices, of this user and of another one."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conftest import ROOT
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["GPU", "OTHER", "Stranger", "end", "holder", "stranger"]

GPU, OTHER = "GPU-1a2b3c4d-0000-4000-8000-000000000000", "GPU-8f3a0000-0000-4000-8000-000000000001"

# Python and the package can stand in folders that are root's alone, so it changes its user when it has loaded.
_PROGRAM = """
import fcntl, json, os, pwd, sys, threading, time
parent = os.getpid()
if os.fork():
    os._exit(0)
os.setsid()
from gpu_magic.claims.held import Claims
if sys.argv[1:]:
    user = pwd.getpwnam(sys.argv[1])
    os.setgroups([]); os.setgid(user.pw_gid); os.setuid(user.pw_uid)
while os.getppid() == parent:
    time.sleep(0.01)
claims = Claims()
print(os.getpid(), flush=True)
for line in sys.stdin:
    code = json.loads(line)
    try:
        said = eval(code)
    except SyntaxError:
        said = exec(code)
    print(json.dumps(said, default=str), flush=True)
"""


class Stranger:
    """A process that is no relative of ours, as its parent has ended. It ends with us, when its input does."""

    def __init__(self, user: str = "", **variables: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *filter(None, [user])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        )
        assert self._process.stdout is not None
        self.pid = int(self._process.stdout.readline())
        self._process.wait()

    def run(self, code: str) -> Any:
        """Run code that has `claims`; return the value of an expression, as JSON knows it."""
        self.begin(code)
        return self.said()

    def begin(self, code: str) -> None:
        """Run code, and do not wait for its end."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(code)}\n")
        self._process.stdin.flush()

    def has_said(self) -> bool:
        """Return whether the code has ended."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def said(self) -> Any:
        """Return the value of an expression that was begun."""
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def sees(self) -> list[str]:
        """Return which devices it sees claimed."""
        seen: list[str] = self.run("sorted(claims.others())")
        return seen

    def close(self) -> None:
        end(self.pid)
        self._process.communicate()


@contextmanager
def stranger(user: str = "", **variables: str) -> Iterator[Stranger]:
    one = Stranger(user, **variables)
    try:
        yield one
    finally:
        one.close()


@contextmanager
def holder(*uuids: str, **variables: str) -> Iterator[int]:
    """Let another process claim some devices; yield its number."""
    with stranger(**variables) as one:
        assert one.run(f"claims.hold({uuids!r})") == ""
        yield one.pid


def end(pid: int, number: int = signal.SIGKILL) -> None:
    """End a process that is nobody's child here, and wait until it has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
    until(lambda: not is_running(pid))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
