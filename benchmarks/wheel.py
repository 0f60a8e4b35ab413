"""The wheel's size."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.report import Row, Table, kilobytes
from benchmarks.timing import ROOT, Skipped

__all__ = ["run"]

MOST = 400_000  # bytes


def run() -> list[Table]:
    if not (find_spec("build") and find_spec("hatchling")):
        raise Skipped("building a wheel needs `pip install build hatchling`")
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, str(ROOT)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = (done.stdout + done.stderr).strip().splitlines()
            reason = next((line for line in reversed(lines) if re.match(r"\w+Error: ", line)), lines[-1])
            raise Skipped(f"the wheel can't be built: {reason}")
        (wheel,) = Path(folder).glob("*.whl")
        size = wheel.stat().st_size
    return [Table("The wheel", [Row(wheel.name, size, "under 400 kB", size < MOST)], write=kilobytes)]
