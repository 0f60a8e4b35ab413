"""What a device counts: energy, work and memory, and what is said where a driver counts less."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pynvml
import pytest

from gpu_magic.devices.counters import NO_COUNTERS
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.testing import Machine, simulate

if TYPE_CHECKING:
    from gpu_magic.devices.counters import Counters
    from gpu_magic.devices.nvml import Nvml

GIB = 1 << 30
ENERGY, WORK = "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetProcessUtilization"


class Clock:
    """A clock that stands still until it is set."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def read(nvml: Nvml, machine: Machine) -> Counters:
    """Read what GPU 0 counts."""
    nvml.inventory()
    uuid = machine.gpus[0].uuid
    return nvml.counters([uuid], 0)[uuid]


def test_all_is_counted(nvml: Nvml) -> None:
    clock = Clock()
    with simulate("2xA100-80GB", clock=clock) as machine:
        gpu = machine.gpus[0]
        gpu.run("ipykernel", "maria", 12 * GIB, pid=os.getpid(), work=60)
        other = gpu.run("train.py", "chen", None)
        before = read(nvml, machine)
        watts = gpu.power / 1000
        clock.seconds = 1.0
        after = read(nvml, machine)
    assert before.memory == {os.getpid(): 12 * GIB, other.pid: UNKNOWN}
    assert before.work == {os.getpid(): 60}  # the other one holds memory and does nothing
    assert before.utilization == pytest.approx(60, abs=12)
    assert isinstance(before.energy, float)
    assert isinstance(after.energy, float)
    assert after.energy - before.energy == pytest.approx(watts, rel=0.2)


@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_UNKNOWN])
@pytest.mark.parametrize(
    ("function", "figure"),
    [
        (ENERGY, "energy"),
        (WORK, "work"),
        ("nvmlDeviceGetUtilizationRates", "utilization"),
        ("nvmlDeviceGetComputeRunningProcesses", "memory"),
    ],
)
def test_what_a_driver_does_not_count_is_unknown(nvml: Nvml, function: str, figure: str, error: int) -> None:
    with simulate("1xA100-80GB") as machine:
        machine.gpus[0].run("train.py", "chen", GIB, work=50)
        machine.gpus[0].fail(function, error)
        found = read(nvml, machine)
    names = ("energy", "work", "utilization", "memory")
    assert {name for name in names if getattr(found, name) is UNKNOWN} == {figure}


@pytest.mark.parametrize(("function", "figure"), [(ENERGY, "energy"), (WORK, "work")])
def test_an_old_driver_that_lacks_the_function_leaves_it_unknown(
    nvml: Nvml, function: str, figure: str
) -> None:
    with simulate("1xA100-80GB") as machine:
        machine.missing.add(function)
        assert getattr(read(nvml, machine), figure) is UNKNOWN


def test_that_nobody_works_is_known(nvml: Nvml) -> None:
    with simulate("1xA100-80GB") as machine:
        assert read(nvml, machine).work == {}


def test_a_lost_gpu_counts_nothing_and_hides_no_other(nvml: Nvml) -> None:
    with simulate("2xA100-80GB") as machine:
        nvml.inventory()
        machine.gpus[0].lose()
        found = nvml.counters([gpu.uuid for gpu in machine.gpus], 0)
    assert found[machine.gpus[0].uuid] == NO_COUNTERS
    assert found[machine.gpus[1].uuid].energy is not UNKNOWN


def test_mig_instances_of_one_gpu_are_told_apart(nvml: Nvml) -> None:
    with simulate("1xA100-80GB(3g.40gb,4g.40gb)") as machine:
        first, second = machine.gpus[0].mig
        second.processes.append(machine.gpus[0].run("train.py", "chen", GIB))
        nvml.inventory()
        found = nvml.counters([first.uuid, second.uuid], 0)
    assert found[first.uuid].memory == {}
    assert list(found[second.uuid].memory) == [machine.gpus[0].processes[0].pid]  # type: ignore[call-overload]
    # The counter is the whole GPU's: it says nothing of an instance.
    assert found[first.uuid].energy is UNKNOWN


def test_more_processes_than_one_call_lists_are_all_told(nvml: Nvml) -> None:
    with simulate("1xA100-80GB") as machine:
        pids = [machine.gpus[0].run("train.py", "chen", GIB, work=1).pid for _ in range(50)]
        found = read(nvml, machine)
    assert found.work == dict.fromkeys(pids, 1)


def test_work_from_before_the_block_does_not_count(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [SimpleNamespace(pid=pid, timeStamp=at, smUtil=50) for pid, at in [(1, 99), (2, 100), (3, 101)]]
    with simulate("1xA100-80GB") as machine:
        nvml.inventory()
        monkeypatch.setattr(pynvml, WORK, lambda *_: samples)
        uuid = machine.gpus[0].uuid
        assert nvml.counters([uuid], 100)[uuid].work == {3: 50}
