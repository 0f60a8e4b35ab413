"""On a real NVIDIA GPU: every claim, as a test. A claim that cannot be tried is skipped, as are all without a GPU."""

from __future__ import annotations

import contextlib
import ctypes
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

from tests.gpu.claims import CLAIMS, LIGHT
from tests.gpu.runner import Here, look, run_one

if TYPE_CHECKING:
    from tests.gpu.claim import Claim


def _missing() -> str:
    """Return why no claim can be tried here; empty if one may be."""
    try:
        ctypes.CDLL("libcuda.so.1")
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        return f"no NVIDIA driver here: {error}"
    return ""


MISSING = _missing()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(MISSING), reason=MISSING)]


@pytest.fixture(scope="session")
def here() -> Here:
    return look()


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_claim(claim: Claim, here: Here, pytestconfig: pytest.Config) -> None:
    # Claims that fill or time a GPU run one by one, even if pytest runs several tests at once.
    lock = FileLock(pytestconfig.cache.mkdir("gpu") / "lock") if claim.name not in LIGHT else None
    with lock or contextlib.nullcontext():
        found = run_one(claim, here)
    if found.outcome == "not tried":
        pytest.skip(found.what)
    assert found.outcome in ("confirmed", "measured"), f"{claim.sentence} Instead: {found.what}"
