"""A real process that is called as MPS's server, on a GPU of the pretend driver."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.machine import CARDS, GIB, Driver
from tests.processes import sees_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.kernel.conftest import Kernel


@pytest.fixture
def server(tmp_path: Path) -> Iterator[int]:
    program = shutil.copy(str(shutil.which("sleep")), tmp_path / "nvidia-cuda-mps-server")
    process = subprocess.Popen([program, "600"])
    yield process.pid
    process.kill()
    process.wait()


@sees_processes
def test_a_gpu_with_an_mps_server_alone_is_free(start_kernel: Callable[..., Kernel], server: int) -> None:
    shared = replace(CARDS[1], mode=3, processes=((server, 28 << 20),))
    kernel = start_kernel(Driver((CARDS[0], shared)))
    kernel.run("%load_ext gpu_magic")
    shown = kernel.run("%gpus").text
    assert "MPS server: nvidia-cuda-mps-server, 28 MiB" in shown
    assert "one process at a time, or several by MPS (Exclusive_Process)" in shown
    assert shown.count("free") == 2
    chosen = kernel.run("%gpus 1").stdout
    assert "cuda:0 = GPU 1" in chosen
    assert "in use" not in chosen
    used = replace(shared, used=12 * GIB, processes=(*shared.processes, (1, 11 * GIB)))
    kernel.change_machine(Driver((CARDS[0], used)))
    assert "GPU 1 is in use by" in kernel.run("%gpus 1").stdout
