"""`python -m benchmarks`: measure all, and write results.txt; or only the topics named behind it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from argparse import ArgumentParser
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from traceback import print_exc

from benchmarks.measure import ROOT

TOPICS = ("snapshot", "cells", "models", "processes", "cluster", "panel", "page", "growth")
PACKAGES = ("nvidia-ml-py", "nvitop", "ipykernel", "ipyparallel", "jupyterlab", "torch")


def main() -> int:
    """Measure, and print tables; return 1 where a topic fails or a bound does not hold."""
    parser = ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument("topics", nargs="*", metavar="topic", help=f"some of {', '.join(TOPICS)}")
    topics = parser.parse_args().topics
    if unknown := set(topics) - set(TOPICS):
        parser.error(f"no topic is called {unknown.pop()!r}; there are {', '.join(TOPICS)}")
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    said: list[str] = []
    rows, failed = [], []

    def say(text: str) -> None:
        print(text, flush=True)
        said.append(f"{text}\n")

    say(f"{datetime.now(UTC):%Y-%m-%d}, {_machine()}, gpu_magic {_commit()}, {packages}")
    for topic in topics or TOPICS:
        say(f"\n# {topic}, at a load of {os.getloadavg()[0]:.1f}")
        try:
            tables = import_module(f"benchmarks.{topic}").run()
        except Exception:  # noqa: BLE001 - the others are measured all the same
            print_exc()
            failed.append(topic)
            continue
        for table in tables:
            say(f"\n{table}")
            rows += [row for row in table.rows if row[2]]
    held = sum(holds for *_, holds in rows)
    say(f"\n{held} of {len(rows)} bounds hold{f'; failed: {failed}' if failed else ''}.")
    if not topics:
        (ROOT / "benchmarks" / "results.txt").write_text("".join(said), encoding="utf-8")
    return 0 if held == len(rows) and not failed else 1


def _machine() -> str:
    with open("/proc/cpuinfo") as file:
        model = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "without git"


if __name__ == "__main__":
    sys.exit(main())
