"""Processes that choose in the same moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys

from tests.conftest import ROOT

__all__ = ["Race"]


class Race:
    """Processes that choose when they are told to."""

    def __init__(self, racers: int, variables: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, ROOT / "tests" / "programs" / "racer.py", str(racers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=variables,
        )
        assert self._process.stdout is not None
        self._pids = [int(pid) for pid in self._process.stdout.readline().split()]
        assert len(self._pids) == racers

    def say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def ask(self, text: str) -> tuple[list[str], list[str]]:
        """Have all choose in the same moment; return the UUIDs that they have, and the lines of the others."""
        self.say(text)
        assert self._process.stdout is not None
        heard = [self._process.stdout.readline().rstrip("\n") for _ in self._pids]
        assert all(heard) or text == "reset"
        lines = [line for line in heard if line.startswith("-")]
        return [uuid for line in heard if not line.startswith("-") for uuid in line.split()], lines

    def kill(self) -> None:
        random.shuffle(self._pids)
        while self._pids:
            os.kill(self._pids.pop(), signal.SIGKILL)
        self._process.kill()
        self._process.communicate()
