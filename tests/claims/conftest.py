"""A folder of claims that other users can get to."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of this test's claims, which is still to be made where other users can get to it."""
    place = Path(tempfile.mkdtemp(prefix="gpu_magic-tests-", dir="/tmp"))
    place.chmod(0o777)
    monkeypatch.setenv("GPU_MAGIC_CLAIMS", str(place / "claims"))
    yield place / "claims"
    shutil.rmtree(place)
