"""What figures say about the use of a GPU, and what MPS changes in that."""

from __future__ import annotations

from typing import Any

import pytest

import gpu_magic
from gpu_magic.devices.model import UNKNOWN, Claim, Gpu, GpuProcess, GpuStatus, Inventory, MigInstance
from gpu_magic.testing import simulate

GIB = 1 << 30
JOB = GpuProcess(7, "train.py", "maria", is_this_process=False)
HIDDEN = GpuProcess(7)  # in a container
SERVER = GpuProcess(8, "nvidia-cuda-mps-server", "root")
OURS = GpuProcess(9, "ipykernel", "maria", is_this_process=True)


@pytest.mark.parametrize(
    ("used", "work", "processes", "is_busy"),
    [
        (3 * GIB // 2, 0, (), False),  # of a desktop, say, on a small GPU as on a large one
        (3 * GIB // 2 + 1, 0, (), True),
        (0, 9, (), False),
        (0, 10, (), True),
        (0, 0, (JOB,), True),
        (0, 0, (SERVER,), False),  # it is nobody's job
        (20 * GIB, 0, (SERVER,), True),  # of clients that a driver before Volta does not list
        (UNKNOWN, 0, (), UNKNOWN),
        (0, UNKNOWN, (), UNKNOWN),
        (0, 0, UNKNOWN, UNKNOWN),
        (UNKNOWN, UNKNOWN, (JOB,), True),
    ],
)
def test_a_gpu_is_busy_by_its_figures(used: Any, work: Any, processes: Any, is_busy: Any) -> None:
    gpu = Gpu(0, status=GpuStatus(used, UNKNOWN, work, 31, 56.0, processes))
    assert (gpu.is_busy, gpu.is_free) == (is_busy, is_busy is False)
    # A MIG instance has no utilization, and is busy by its memory and its processes alone.
    instance = MigInstance(
        "MIG-1", "A100 MIG 3g.40gb", 0, 0, 40 * GIB, gpu.status._replace(utilization=UNKNOWN)
    )
    without_work = gpu._replace(status=gpu.status._replace(utilization=0))
    assert instance.is_busy is without_work.is_busy
    assert instance.is_free is (instance.is_busy is False)
    for device in (gpu, instance):
        claimed = device._replace(status=device.status._replace(claims=(Claim("maria", 0.0),)))
        assert not claimed.is_free


@pytest.mark.parametrize(
    ("mode", "processes", "is_taken"),
    [
        ("Exclusive_Process", (JOB,), True),
        ("Exclusive_Thread", (JOB,), True),
        ("Exclusive_Process", (JOB, SERVER), False),
        ("Exclusive_Process", (OURS,), False),
        ("Exclusive_Process", (OURS, JOB), True),
        ("Exclusive_Process", (HIDDEN,), UNKNOWN),
        ("Exclusive_Process", (HIDDEN, JOB), True),
        ("Exclusive_Process", (), False),
        ("Default", (JOB,), False),
    ],
)
def test_one_process_at_a_time_keeps_the_next_away_without_mps(
    mode: Any, processes: tuple[GpuProcess, ...], is_taken: bool
) -> None:
    status = GpuStatus(0, UNKNOWN, 0, 31, 56.0, processes)
    assert Gpu(0, status=status, compute_mode=mode).is_taken is is_taken


def test_gpus_of_one_name_with_different_memory_are_not_of_one_model() -> None:
    """A100s of 40 and 80 GB can have one name. CUDA's order of them is not known to be the bus order."""
    one, other = (
        Gpu(0, name="NVIDIA A100", memory_total=40 * GIB),
        Gpu(1, name="NVIDIA A100", memory_total=80 * GIB),
    )
    assert not Inventory((one, other)).is_uniform
    assert Inventory((one, other)).fastest_first is UNKNOWN
    assert Inventory((one, other._replace(memory_total=40 * GIB))).is_uniform


def test_of_several_looks_the_highest_utilization_counts() -> None:
    def look(*work: Any) -> Inventory:
        return Inventory(
            tuple(Gpu(at, f"GPU-{at}", status=GpuStatus(utilization=one)) for at, one in enumerate(work))
        )

    seen = look(5, 50, UNKNOWN, 5, 5).with_highest(look(60, 40, 60, UNKNOWN))
    assert [gpu.status.utilization for gpu in seen] == [60, 50, UNKNOWN, 5, 5]
    nameless = Inventory((Gpu(0, status=GpuStatus(utilization=5)), Gpu(1, status=GpuStatus(utilization=9))))
    assert nameless.with_highest(nameless) == nameless


def test_the_table_names_mps_s_server_and_its_clients() -> None:
    with simulate("3xV100-32GB", clock=0) as machine:
        for gpu, memory in zip(machine.gpus, (GIB >> 5, GIB >> 5, 20 * GIB), strict=True):
            gpu.run("nvidia-cuda-mps-server", "root", memory)
        machine.gpus[1].run("train.py", "maria", GIB)
        machine.gpus[1].compute_mode = "Exclusive_Process"
        lines = repr(gpu_magic.gpus()).split("\n\n")[0].split("\n")
        assert [line[lines[1].index("Used by") :] for line in lines[2:]] == [
            "free",
            "MPS server: nvidia-cuda-mps-server, 32 MiB",
            "maria: train.py, 1.0 GiB",
            "MPS server: nvidia-cuda-mps-server, 32 MiB",
            "one process at a time, or several by MPS (Exclusive_Process)",
            "in use (owner unknown)",
            "MPS server: nvidia-cuda-mps-server, 20.0 GiB",
        ]
        assert "in use" not in str(gpu_magic.choose(0))
        assert str(gpu_magic.choose(1)).endswith("GPU 1 is in use by maria: train.py, 1.0 GiB")
        assert "cuda:0 = GPU 0" in str(gpu_magic.choose("auto"))


def test_a_place_among_those_who_wait_says_whose_it_is() -> None:
    def said(**more: Any) -> str:
        return str(Claim("maria", 0.0, waits=True, **more)).partition(", waiting since ")[0]

    assert said(notebook="b.ipynb") == "kept for maria: b.ipynb"
    assert said(notebook="b.ipynb", is_same_user=True) == "kept for your b.ipynb"
    assert (said(), said(is_same_user=True)) == ("kept for maria", "kept for your other process")
