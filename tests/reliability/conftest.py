"""Kernels as those of tests/kernel, with the pretend accelerator, on a system that can be in trouble."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kernel.conftest import sockets, start_kernel
from tests.kernel.forked import Server
from tests.machine import clean_environment, environment
from tests.native import build_system

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["sockets", "start_kernel"]


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the library between programs and the system."""
    return str(build_system(tmp_path_factory.mktemp("system")))


@pytest.fixture(scope="session")
def servers(
    native: Path, system: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Server]]:
    """Return a way to have the server whose kernels' system can be in trouble."""
    running: dict[tuple[str, ...], Server] = {}
    machine = tmp_path_factory.mktemp("servers") / "machine"

    def find(paths: str, *imported: str) -> Server:
        if (paths, *imported) not in running:
            variables = clean_environment() | environment(native, machine)
            variables |= {"PYTHONPATH": paths, "LD_PRELOAD": system}
            running[paths, *imported] = Server(variables, *imported)
        return running[paths, *imported]

    yield find
    for server in running.values():
        server.close()
