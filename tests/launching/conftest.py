"""A simulated machine of eight A100s, and commands that are launched on it from this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from gpu_magic.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    """Work in a folder of the test's own, on the simulated machine; return the folder."""
    before = os.getcwd()  # noqa: PTH109
    os.chdir(tmp_path)
    try:
        with simulate("8xA100-80GB"):
            yield tmp_path
    finally:
        os.chdir(before)
