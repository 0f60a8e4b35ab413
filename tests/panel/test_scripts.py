"""The page's scripts without a page: node's own runner tries some of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import LIMIT, ROOT


@pytest.mark.parametrize("script", ["store", "connection", "rerun", "culling"])
def test_a_script(script: str) -> None:
    beside = Path(sys.executable).parent  # node comes from PyPI, with what else tests need
    done = subprocess.run(
        ["node", "--test", f"tests/panel/{script}.test.mjs"],
        cwd=ROOT,
        env=os.environ | {"PATH": f"{beside}{os.pathsep}{os.environ['PATH']}"},
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
