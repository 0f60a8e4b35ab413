"""A simulated machine of four A100s, and engines on it that are this process's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import gpu_magic
from gpu_magic.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def cluster() -> Iterator[gpu_magic.Cluster]:
    """Return two engines, on GPU 2 and on GPU 0."""
    with simulate("4xA100-80GB"):
        made = gpu_magic.cluster("2,0")
        yield made
        made.stop()
