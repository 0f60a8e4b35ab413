"""A folder of claims that other users can get to."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def open_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder that another user can get to."""
    place = Path("/tmp") / f"gpu_magic-tests-{os.getpid()}"
    monkeypatch.setenv("GPU_MAGIC_CLAIMS", str(place))
    yield place
    shutil.rmtree(place, ignore_errors=True)
