"""Kernels as those of tests/kernel, on a system that can be in trouble."""

from __future__ import annotations

import pytest

from tests.kernel.conftest import servers, sockets, start_kernel
from tests.native import build_system

__all__ = ["servers", "sockets", "start_kernel"]


@pytest.fixture(scope="session")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the library between programs and the system."""
    return str(build_system(tmp_path_factory.mktemp("system")))
