"""The largest batch and the verdict, without a framework."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_magic.devices.model import UNKNOWN, GpuProcess, Inventory, Unknown
from gpu_magic.errors import FitError
from gpu_magic.fit.fit import Fit, _largest, _Room, _rooms, _verdict
from gpu_magic.frameworks.base import MemoryPool
from gpu_magic.frameworks.target import LogicalDevice
from gpu_magic.process.session import current
from gpu_magic.process.view import Snapshot
from gpu_magic.testing import simulate, start_cuda

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 1 << 30


def largest(
    peak: Callable[[int], int], size: int, room: int, seconds: float = 1e9
) -> tuple[int | None, bool]:
    def parts(size: int, _: float = 0.0) -> dict[str, int]:
        return {"parameters": peak(0), "activations": peak(size) - peak(0)}

    return _largest(parts, size, parts(size), room, seconds=0.0, until=time.monotonic() + seconds)


@given(st.integers(0, 10**9), st.integers(1, 10**6), st.integers(1, 1000), st.integers(0, 10**10))
def test_what_grows_evenly_is_found_exactly(base: int, slope: int, size: int, more: int) -> None:
    count = 0

    def peak(batch: int) -> int:
        nonlocal count
        count += 1
        return base + batch * slope

    room = base + min(more, slope << 24)
    assert largest(peak, size, room)[0] == (room - base) // slope
    assert count < 24


@given(st.integers(0, 10**8), st.integers(1, 10**4), st.integers(1, 10**5), st.integers(1, 10**6))
def test_a_plateau_and_a_bend_give_one_that_fits(plateau: int, low: int, high: int, answer: int) -> None:
    """As a large optimizer makes: small batches do not show in the peak."""

    def peak(batch: int) -> int:
        return -(-max(plateau, batch * low, batch * (low + high) - plateau) // 512) * 512

    found, is_exact = largest(peak, 8, max(peak(answer), peak(8)))
    assert found is not None
    assert peak(found) <= max(peak(answer), peak(8))
    if is_exact:
        assert peak(found + 1) > max(peak(answer), peak(8))


def test_without_time_it_is_what_one_more_prediction_tells() -> None:
    assert largest(lambda size: 100 * size + 50, 8, 10_000, 0.0) == (99, False)
    assert largest(lambda size: 100 * size**2, 8, 700, 0.0) == (1, False)


def test_no_batch_fits() -> None:
    assert largest(lambda size: 1000 + size, 64, 1000) == (0, True)


def test_a_size_that_cannot_be_made_does_not_fit() -> None:
    def peak(batch: int) -> int:
        if batch > 100:
            raise FitError("too many elements")
        return batch

    assert largest(peak, 8, 1 << 40) == (100, False)


def room(name: str, free: int | Unknown, context: int = 0) -> _Room:
    return _Room(f"cuda:{name}", f"GPU {name}", free, free if free is UNKNOWN else free - context)


@pytest.mark.parametrize(
    ("rooms", "batch", "said"),
    [
        ([room("3", 80 * GIB, GIB)], (58, True), "9.0 GiB, and 1.0 GiB for CUDA: fits on GPU 3 (80.0 GiB free)."),
        ([room("0", GIB), room("3", 80 * GIB)], (58, False), "fits on GPU 3 (80.0 GiB free). Largest batch: at least 58."),
        ([room("0", GIB), room("3", 2 * GIB)], (0, True), "Most free: GPU 3, 2.0 GiB. A batch of 1 does not fit."),
        ([room("0", GIB)], (5, True), "fits on no visible GPU. Most free: GPU 0, 1.0 GiB. Largest batch: 5."),
        ([room("3", 9 * GIB)], (8, True), "fits on GPU 3 (9.0 GiB free). Largest batch: 8."),
        ([room("3", 9 * GIB, GIB // 5)], (7, True), "and 0.2 GiB for CUDA: fits on no visible GPU. Most free: GPU 3, 9.0 GiB."),
        ([room("0", UNKNOWN)], (None, False), "No verdict: the free memory of GPU 0 is unknown."),
        ([], (None, False), "No verdict: no GPU is visible."),
        ([room(str(at), 80 * GIB) for at in range(6)], (None, False), "GPU 3 (80.0 GiB free) and 2 more."),
    ],
)  # fmt: skip
def test_the_verdict_names_the_gpus(rooms: list[_Room], batch: tuple[int | None, bool], said: str) -> None:
    snapshot = SimpleNamespace(problem=None, visible=())
    assert said in _verdict(9 * GIB, snapshot, rooms, *batch)  # type: ignore[arg-type]


def test_what_the_framework_has_taken_and_does_not_use_is_room_for_the_step() -> None:
    """JAX takes most of a GPU as it starts."""
    with simulate("1xA100-80GB") as machine:
        (unused,) = _rooms(Snapshot.take(current()), {}, {})
        machine.gpus[0].run("python", "me", 60 * GIB, pid=os.getpid())
        snapshot = Snapshot.take(current())
        (bare,) = _rooms(snapshot, {}, {})
        (room,) = _rooms(
            snapshot, {0: 2 * GIB}, {LogicalDevice("gpu", 0, "cuda"): MemoryPool(3 * GIB, 60 * GIB)}
        )
    assert room.free - bare.free == 59 * GIB
    assert room.free - room.left == 200 << 20  # CUDA has started: workspaces
    assert unused.free - unused.left == GIB  # it has not


@pytest.mark.parametrize(
    ("process", "reserved", "context"),
    [
        (GpuProcess(31337), 60 * GIB, 200 << 20),  # in a container: the framework knows that CUDA has started
        (GpuProcess(31337), 0, GIB),
        (GpuProcess(31337, is_this_process=True), 0, GIB),  # only a child has memory there
    ],
)
def test_the_context_is_taken_off_unless_this_process_has_one_there(
    process: GpuProcess, reserved: int, context: int
) -> None:
    with simulate("1xA100-80GB"):
        snapshot = Snapshot.take(current())
    (gpu,) = snapshot.gpus
    gpu = gpu._replace(status=gpu.status._replace(processes=(process,)))
    pools = {LogicalDevice("gpu", 0, "cuda"): MemoryPool(0, reserved)}
    (room,) = _rooms(replace(snapshot, machine=Inventory((gpu,))), {}, pools)
    assert room.free - room.left == context


def test_in_a_container_it_is_unknown_whether_a_step_fits_that_needs_what_cuda_may_have_already() -> None:
    with simulate("1xA100-80GB") as machine:
        machine.gpus[0].run("", UNKNOWN, GIB)
        (before,) = _rooms(Snapshot.take(current()), {}, {})
        start_cuda()
        (room,) = _rooms(snapshot := Snapshot.take(current()), {}, {})
    assert (before.left, before.fits(before.left + 1)) == (room.left, False)  # CUDA has not started
    assert [room.fits(room.left + more) for more in (0, 1, GIB)] == [True, UNKNOWN, False]
    assert "GPU 0 is unknown, because" in _verdict(room.left + 1, snapshot, [room], None, False)


def test_a_fit_shows_itself() -> None:
    fit = Fit({"parameters": 3 << 20, "batch": 1 << 20}, 8, 16, {}, "4.0 MiB: fits on GPU <0>.", ("A note.",))
    assert repr(fit).splitlines() == [
        "parameters  3.0 MiB",
        "batch       1.0 MiB",
        "peak        4.0 MiB",
        "4.0 MiB: fits on GPU <0>.",
        "A note.",
    ]
    page = fit._repr_html_()
    assert "90deg,#4b8df866 75%," in page
    assert "GPU &lt;0&gt;" in page
