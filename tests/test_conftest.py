"""What the tests themselves rely on."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.conftest import LIMIT, ROOT


def test_children_start_with_default_signals_whatever_the_parent_ignores() -> None:
    code = "import subprocess, tests.conftest; subprocess.run(['grep', 'SigIgn', '/proc/self/status'], check=True)"
    ignoring = ["sh", "-c", 'trap "" INT HUP QUIT TERM; exec "$@"', "sh"]
    done = subprocess.run(
        [*ignoring, sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT,
    )
    ignored = int(done.stdout.split()[1], 16)
    # The C library keeps signal 32 to itself: nothing in Python can set it.
    assert [number for number in signal.valid_signals() if ignored >> (number - 1) & 1] == []
