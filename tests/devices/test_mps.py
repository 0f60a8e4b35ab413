"""MPS: its server is nobody's job, and its clients share a GPU whatever its compute mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gpu_magic
from gpu_magic.testing import simulate

if TYPE_CHECKING:
    from gpu_magic.devices.model import Gpu

SERVER, MIB, GIB = "nvidia-cuda-mps-server", 1 << 20, 1 << 30


def shown(number: int) -> list[str]:
    """Return the column of who uses a GPU."""
    _title, headings, *rest = repr(gpu_magic.gpus()).split("\n")
    column = headings.index("Used by")
    rows = rest[: rest.index("")]
    first = next(place for place, row in enumerate(rows) if row[:3].strip() == str(number))
    more = [row[column:] for row in rows[first + 1 :]]
    last = next((place for place, row in enumerate(rows[first + 1 :]) if row[:3].strip()), len(more))
    return [rows[first][column:], *more[:last]]


def look(number: int) -> Gpu:
    return gpu_magic.gpus()[number]


def test_a_gpu_with_nothing_but_an_mps_server_is_free() -> None:
    with simulate("2xA100-80GB", clock=lambda: 0.0) as machine:
        machine.gpus[0].run(SERVER, "root", 28 * MIB)
        assert look(0).is_free
        assert shown(0) == ["free", "MPS server: nvidia-cuda-mps-server, 28 MiB"]
        assert "in use" not in str(gpu_magic.choose(0))


def test_its_clients_are_somebody_s() -> None:
    with simulate("2xA100-80GB", clock=lambda: 0.0) as machine:
        machine.gpus[0].run(SERVER, "root", 28 * MIB)
        machine.gpus[0].run("train.py", "maria", GIB)
        assert look(0).is_busy is True
        assert shown(0) == ["maria: train.py, 1.0 GiB", "MPS server: nvidia-cuda-mps-server, 28 MiB"]
        assert str(gpu_magic.choose(0)).endswith("GPU 0 is in use by maria: train.py, 1.0 GiB")


def test_memory_that_a_server_holds_for_clients_that_are_not_listed_is_use() -> None:
    """Before Volta the driver attributes all that clients do to their server."""
    with simulate("2xV100-32GB", clock=lambda: 0.0) as machine:
        machine.gpus[0].run(SERVER, "root", 20 * GIB)
        assert look(0).is_busy is True
        assert shown(0) == [
            "in use, by whom can't be seen from here",
            "MPS server: nvidia-cuda-mps-server, 20.0 GiB",
        ]


def test_where_mps_shares_it_exclusive_mode_keeps_nobody_away() -> None:
    with simulate("1xA100-80GB", clock=lambda: 0.0) as machine:
        machine.gpus[0].compute_mode = "Exclusive_Process"
        machine.gpus[0].run("train.py", "maria", GIB)
        assert look(0).is_taken
        machine.gpus[0].run(SERVER, "root", 28 * MIB)
        assert not look(0).is_taken
        assert shown(0)[-1] == "one process at a time, or several by MPS (Exclusive_Process)"
        assert "CUDA can't start" not in str(gpu_magic.choose(0))


def test_auto_prefers_a_gpu_with_an_mps_server_alone_to_one_in_use() -> None:
    with simulate("2xA100-80GB", clock=lambda: 0.0) as machine:
        machine.gpus[1].run(SERVER, "root", 28 * MIB)
        machine.gpus[0].run("train.py", "maria", 10 * MIB)
        assert "cuda:0 = GPU 1" in str(gpu_magic.choose("auto"))
