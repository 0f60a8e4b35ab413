"""Processes that choose in the same moment."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import ROOT

__all__ = ["Racer", "ask_all"]


class Racer:
    """A process that chooses when it is told to."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, ROOT / "tests" / "programs" / "racer.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=variables,
        )

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def ask_all(racers: list[Racer], text: str) -> tuple[list[str], list[str]]:
    """Have all choose in the same moment; return the UUIDs that were chosen, and the lines of the others."""
    for racer in racers:
        racer.say(text)
    heard = [racer.hear() for racer in racers]
    lines = [line for line in heard if line.startswith("-")]
    return [uuid for line in heard if not line.startswith("-") for uuid in line.split()], lines
