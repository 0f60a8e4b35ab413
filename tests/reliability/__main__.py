"""Writes found.md, what is promised when something fails, from what the tests have found.

Usage: python -m tests.reliability [FAULT...]      (all faults, or these)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.reliability.faults import FAULTS
from tests.reliability.table import FOUND, draw

__all__: list[str] = []

PAGE = Path(__file__).parent / "found.md"


def main(names: list[str]) -> int:
    """Try faults, and write what was found; return the exit status."""
    before = json.loads(FOUND.read_text(encoding="utf-8")) if FOUND.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        test = "tests/reliability/test_matrix.py::test_a_fault"
        tests = [f"{test}[{name}]" for name in names] or [test]
        command = [sys.executable, "-m", "pytest", "-q", *tests]
        done = subprocess.run(command, env=os.environ | {"GPU_MAGIC_TEST_RECORD": folder}, check=False)
        new = {
            path.stem: json.loads(path.read_text(encoding="utf-8")) for path in Path(folder).glob("*.json")
        }
    found = {fault.name: (before | new)[fault.name] for fault in FAULTS if fault.name in before | new}
    FOUND.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if len(found) == len(FAULTS):
        PAGE.write_text(draw(found), encoding="utf-8")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
