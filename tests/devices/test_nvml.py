"""The reader, over the real pynvml and a simulated machine beneath it."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import pynvml
import pytest

from gpu_magic.devices.binding import PRIVATE
from gpu_magic.devices.model import UNKNOWN, Counters, Limits
from gpu_magic.devices.nvml import Nvml
from gpu_magic.errors import ChoiceError
from gpu_magic.gpus.request import parse
from gpu_magic.gpus.select import select
from gpu_magic.testing import simulate
from tests.conftest import ROOT
from tests.machine import CARDS, Driver, environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.devices.model import ComputeMode
    from gpu_magic.testing import Machine
    from tests.conftest import Fresh

GIB = 1 << 30
EVENT, THROTTLE = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
ENERGY, WORK = "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetProcessUtilization"
REFUSALS = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NO_PERMISSION)


def test_the_figures_are_those_that_nvitop_reads(fresh: Fresh) -> None:
    fresh("""
        from nvitop import Device
        from gpu_magic.devices.nvml import Nvml
        from gpu_magic.testing import Machine, simulate

        with simulate("8xA100-80GB", seed=4, clock=lambda: 0.0) as machine:
            machine.populate()
            ours, theirs = Nvml().inventory(), Device.all()
            assert len(ours) == len(theirs) == 8
            for gpu, device in zip(ours, theirs):
                assert (gpu.name, gpu.uuid, gpu.bus_id) == (device.name(), device.uuid(), device.bus_id())
                assert gpu.memory_total == device.memory_total()
                assert gpu.status.memory_used == device.memory_used()
                assert gpu.status.memory_free == device.memory_free()
                assert gpu.status.utilization == device.gpu_utilization()
                assert gpu.status.temperature == device.temperature()
                assert gpu.status.power == device.power_usage() / 1000
                assert {p.pid: p.memory for p in gpu.status.processes} == {
                    pid: process.gpu_memory() for pid, process in device.processes().items()
                }
            assert sum(len(gpu.status.processes) for gpu in ours) == 3
            assert (ours.driver_version, ours.cuda_version) == (Device.driver_version(), "13.0")
    """)


def test_a_snapshot_makes_six_calls_a_gpu(nvml: Nvml) -> None:
    """None of them is slow, of a power limit, or of what was found before; one of processes, as there are some."""
    with simulate("8xA100-80GB") as machine:
        for gpu in machine.gpus:
            gpu.run("train.py", "maria", GIB)
        nvml.inventory()
        pynvml.nvmlLib.calls.clear()
        nvml.inventory()
        figures = ("MemoryInfo_v2", "UtilizationRates", "Temperature", "PowerUsage")
        expected = [
            f"nvmlDeviceGet{one}" for one in (*figures, "ComputeRunningProcesses_v3", "ProcessUtilization")
        ]
        assert pynvml.nvmlLib.calls == dict.fromkeys(expected, 8)


@pytest.fixture
def clock() -> list[float]:
    """Return the time of the reader `aging`, which finds all GPUs again a minute after the last time."""
    return [0.0]


@pytest.fixture
def aging(clock: list[float]) -> Iterator[Nvml]:
    reader = Nvml(timeout=30, starting=0.0, now=lambda: clock[0])
    yield reader
    reader.close()


def test_a_lost_gpu_is_told_and_the_rest_is_read(aging: Nvml, clock: list[float]) -> None:
    with simulate("4xA100-80GB") as machine:
        machine.gpus[3].lose()
        before = aging.inventory()
        assert before[3].uuid is UNKNOWN  # it was lost from the start
        machine.gpus[2].lose()
        after = aging.inventory()
        assert (after[2].uuid, after[2].name) == (before[2].uuid, before[2].name)
        assert after[2].status.memory_used is UNKNOWN
        assert not after[2].is_free
        assert ["lost" in str(gpu.problem) for gpu in after] == [False, False, True, True]
        counters = aging.counters([gpu.uuid for gpu in machine.gpus], 0)
        assert machine.gpus[2].uuid not in counters
        machine.gpus[2].recover()
        assert aging.inventory()[2].problem is None
        machine.gpus[1].lose()
        counters = aging.counters([gpu.uuid for gpu in machine.gpus], 0)
        assert counters[machine.gpus[1].uuid] == Counters()
        assert counters[machine.gpus[2].uuid].energy is not UNKNOWN
        assert aging.limits(1) == aging.limits(7) == Limits()
        machine.gpus[0].fail("nvmlDeviceGetNumGpuCores", pynvml.NVML_ERROR_GPU_IS_LOST)
        clock[0] += 60
        later = aging.inventory()
        assert "lost" in str(later[0].problem)
        assert later[1].name == before[1].name  # it was known before it was lost


@pytest.mark.parametrize(
    ("call", "fields"),
    [
        ("nvmlDeviceGetMemoryInfo", {"memory_used", "memory_free"}),
        ("nvmlDeviceGetUtilizationRates", {"utilization"}),
        ("nvmlDeviceGetTemperature", {"temperature"}),
        ("nvmlDeviceGetPowerUsage", {"power"}),
        ("nvmlDeviceGetComputeRunningProcesses", {"processes"}),
        ("nvmlDeviceGetComputeMode", set()),
    ],
)
@pytest.mark.parametrize("error", REFUSALS)
def test_a_figure_that_is_refused_is_unknown_and_the_others_are_read(
    nvml: Nvml, call: str, fields: set[str], error: int
) -> None:
    with simulate("1xA100-80GB") as machine:
        machine.gpus[0].fail(call, error)
        gpu = nvml.inventory()[0]
    assert {name for name, value in gpu.status._asdict().items() if value is UNKNOWN} == fields
    assert gpu.problem is None
    assert gpu.is_free is (fields <= {"temperature", "power"})
    assert (gpu.compute_mode is UNKNOWN) is (not fields)
    assert (gpu.is_prohibited, gpu.is_exclusive) == (False, False)


@pytest.mark.parametrize("mode", ["Default", "Exclusive_Process", "Prohibited"])
def test_the_compute_mode_is_read(nvml: Nvml, mode: ComputeMode) -> None:
    with simulate("1xT4") as machine:
        machine.gpus[0].compute_mode = mode
        assert nvml.inventory()[0].compute_mode == mode


def test_old_drivers_are_read_by_older_functions(nvml: Nvml) -> None:
    newer = {"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3", EVENT}
    with simulate("1xA100-80GB") as machine:
        gpu, machine.missing = machine.gpus[0], newer
        gpu.run("train.py", "maria", GIB)
        gpu.slowdowns = pynvml.nvmlClocksEventReasonSwPowerCap
        status = nvml.inventory()[0].status
        assert status.memory_used == gpu.memory_used + gpu.reserved  # which version 1 does not tell apart
        assert status.memory_free == gpu.model.memory - gpu.memory_used - gpu.reserved
        assert [one.owner for one in status.processes] == ["maria"]
        assert nvml.limits(0).slowdowns == ("power limit",)
    older = {"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses_v2", THROTTLE}
    with simulate("1xA100-80GB") as machine:
        machine.missing = newer | older | {"nvmlDeviceGetMigMode", ENERGY, WORK}
        machine.gpus[0].fail("nvmlDeviceGetEnforcedPowerLimit", pynvml.NVML_ERROR_NOT_SUPPORTED)
        found = nvml.inventory()[0]
        assert (found.problem, found.status.memory_used, found.status.processes) == (None, UNKNOWN, UNKNOWN)
        assert found.status.temperature is not UNKNOWN
        (counters,) = nvml.counters([str(found.uuid)], 0).values()
        assert (counters.energy, counters.work, nvml.limits(0)) == (UNKNOWN, UNKNOWN, Limits())


def test_more_processes_than_one_call_lists_are_all_read(nvml: Nvml) -> None:
    with simulate("1xA100-80GB") as machine:
        gpu = machine.gpus[0]
        for _ in range(140):
            gpu.run("worker.py", "maria", GIB >> 2, work=1)
        gpu.run("train.py", "tom", None)
        gpu.run("mine.py", "maria", GIB, pid=os.getpid())
        processes = nvml.inventory()[0].status.processes
        assert processes is not UNKNOWN
        *workers, hidden, mine = processes
        assert {one.pid: one.memory for one in workers} == {p.pid: p.memory for p in gpu.processes[:140]}
        assert (hidden.memory, hidden.owner, hidden.name, hidden.is_this_process) == (
            UNKNOWN,
            "tom",
            "train.py",
            False,
        )
        assert mine.is_this_process
        counters = nvml.counters([gpu.uuid], 0)[gpu.uuid]
        assert counters.work is not UNKNOWN
        assert counters.work.keys() == {one.pid for one in workers}
        assert counters.memory == {one.pid: one.memory for one in (*workers, hidden, mine)}


@pytest.mark.parametrize("name", [*PRIVATE, "_nvmlGetFunctionPointer", "_nvmlCheckReturn"])
def test_without_a_private_name_of_pynvml_all_is_read(fresh: Fresh, tmp_path: Path, name: str) -> None:
    """As with a version that has it under another name, and also after other code has shut NVML down."""
    source = Path(pynvml.__file__).read_text(encoding="utf-8")
    (tmp_path / "pynvml.py").write_text(re.sub(rf"\b{name}\b", "_another_name", source), encoding="utf-8")
    found = fresh(
        f"""
        import pynvml
        import gpu_magic
        from gpu_magic.devices.nvml import Nvml
        from gpu_magic.testing import simulate

        assert pynvml.__file__ == {str(tmp_path / "pynvml.py")!r}
        assert not hasattr(pynvml, {name!r})
        with simulate("2xA100-80GB") as machine:
            machine.gpus[1].run("train.py", "maria", 5 << 30)
            for _ in range(2):
                print([one.name for gpu in gpu_magic.gpus() for one in gpu.status.processes])
            pynvml.nvmlShutdown()
            print([gpu.problem or gpu.status.memory_free >> 30 for gpu in Nvml().inventory()])
            print(gpu_magic.gpus()[1].status.memory_free >> 30, gpu_magic.choose(1).mask)
            gpu_magic.choose("reset")
        """,
        PYTHONPATH=f"{tmp_path}:{ROOT}",
    )
    assert found.splitlines() == ["['train.py']"] * 2 + ["[79, 74]", "74 1"]


@pytest.mark.parametrize("driver", ["530.41.03", "535.43.02", "535.54.03", "535.86.05", "535.98", "550.54"])
def test_a_driver_that_writes_wider_entries_is_asked_by_the_older_function(
    fresh: Fresh, native: Path, tmp_path: Path, driver: str
) -> None:
    """With 50 processes, it would also write behind an array for 64."""
    processes = tuple((5000 + number, number << 20) for number in range(1, 51))
    Driver((replace(CARDS[0], processes=processes),), version=driver).write(state := tmp_path / "machine")
    found = fresh(
        """
        import gpu_magic
        from gpu_magic.process.session import current
        (gpu,) = gpu_magic.gpus()
        print({one.pid: one.memory for one in gpu.status.processes})
        print(current().reader.counters([gpu.uuid], None)[gpu.uuid].memory)
        """,
        **environment(native, state),
    )
    assert found.splitlines() == [str(dict(processes))] * 2


@pytest.mark.parametrize(
    ("refusal", "says"),
    [
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "Reboot"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "not loaded"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "refuses this user"),
        (pynvml.NVML_ERROR_UNKNOWN, "restart the container"),
        (pynvml.NVML_ERROR_IRQ_ISSUE, "does not answer"),
    ],
)
def test_a_driver_that_refuses_is_explained(nvml: Nvml, refusal: int, says: str) -> None:
    with simulate("4xA100-80GB") as machine:
        machine.refusal = refusal
        inventory = nvml.inventory()
        assert says in str(inventory.problem)
        assert not inventory.gpus
        machine.refusal = 0
        assert len(nvml.inventory()) == 4


def test_a_gpu_that_is_closed_to_this_user_is_refused_in_a_sentence(nvml: Nvml) -> None:
    with simulate("2xT4") as machine:
        machine.gpus[1].fail("nvml", pynvml.NVML_ERROR_NO_PERMISSION)
        with pytest.raises(ChoiceError) as refused:
            select(parse("1"), nvml.inventory(), (None, None))
    assert str(refused.value) == (
        "GPU 1 cannot be chosen because it is closed to this user: an administrator can give access to /dev/nvidia*."
    )


def test_no_gpu_and_no_driver(nvml: Nvml) -> None:
    with simulate("0xT4"):
        for _ in range(2):
            assert "has no GPU" in str(nvml.inventory().problem)
    if pynvml.nvmlLib is None:  # on a machine without a driver
        assert "NVML is missing" in str(nvml.inventory().problem)


def test_mig_instances_stand_under_their_gpu(nvml: Nvml) -> None:
    with simulate("1xA100-80GB(3g.40gb,4g.40gb)+1xT4") as machine:
        first, second = machine.gpus[0].mig
        second.processes.append(machine.gpus[1].run("train.py", "maria", 5 * GIB))
        split, whole = nvml.inventory()
        assert split.is_split
        assert [part.uuid for part in split.mig] == [first.uuid, second.uuid]
        assert split.mig[1].memory_total == 40 * GIB
        assert [one.owner for one in split.mig[1].status.processes] == ["maria"]
        assert split.status.utilization is UNKNOWN
        assert not whole.is_split
        found = nvml.counters([first.uuid, second.uuid], 0)
        assert found[first.uuid].memory == {}
        assert found[second.uuid].memory == {second.processes[0].pid: 5 * GIB}
        assert found[first.uuid].energy is UNKNOWN  # the counter is the whole GPU's


def test_it_follows_when_another_machine_is_put_beneath_or_it_is_shut_by_others(
    aging: Nvml, clock: list[float]
) -> None:
    with simulate("2xT4"):
        assert len(aging.inventory()) == 2
        with simulate("1xT4+2xL4"):
            for _ in range(2):
                assert [gpu.index for gpu in aging.inventory().fastest_first] == [1, 2, 0]
                assert pynvml.nvmlLib.calls["nvmlDeviceGetNumGpuCores"] == 3
            clock[0] += 60
            assert [gpu.index for gpu in aging.inventory().fastest_first] == [1, 2, 0]
        assert len(aging.inventory()) == 2
        pynvml.nvmlShutdown()
        assert aging.inventory()[0].problem is None


class _Raw(str):
    """A name as bytes that are no UTF-8, which is how a driver could give it."""

    __slots__ = ("raw",)
    raw: bytes

    def __new__(cls, raw: bytes) -> Self:
        self = super().__new__(cls, "raw")
        self.raw = raw
        return self

    def encode(self, *_: object) -> bytes:
        return self.raw


def test_a_name_that_is_no_text_is_unknown(nvml: Nvml) -> None:
    with simulate("1xT4") as machine:
        machine.gpus[0].model = machine.gpus[0].model._replace(name=_Raw(b"T\xff4"))
        assert nvml.inventory()[0].name is UNKNOWN
        assert nvml.inventory()[0].problem is None


@pytest.mark.parametrize(
    ("reasons", "slowdowns"),
    [
        ("None", ()),
        ("GpuIdle", ()),
        ("ApplicationsClocksSetting", ()),
        ("DisplayClockSetting", ()),
        ("SwPowerCap", ("power limit",)),
        ("SwThermalSlowdown", ("heat",)),
        ("HwThermalSlowdown HwSlowdown", ("heat",)),
        ("HwPowerBrakeSlowdown HwSlowdown", ("power supply",)),
        ("HwSlowdown", ("hardware",)),
        ("SyncBoost", ("another GPU of its sync boost group",)),
        ("SwPowerCap SwThermalSlowdown", ("power limit", "heat")),
    ],
)
def test_what_slows_a_gpu_down_is_told_in_words(nvml: Nvml, reasons: str, slowdowns: tuple[str, ...]) -> None:
    with simulate("2xA100-80GB") as machine:
        for reason in reasons.split():
            machine.gpus[1].slowdowns |= getattr(pynvml, f"nvmlClocksEventReason{reason}")
        nvml.inventory()
        assert nvml.limits(1) == (400, slowdowns)


def read(nvml: Nvml, machine: Machine, since: int | None = 0) -> Counters:
    """Read what GPU 0 counts."""
    nvml.inventory()
    uuid = machine.gpus[0].uuid
    return nvml.counters([uuid], since)[uuid]


def test_energy_work_and_memory_are_counted(nvml: Nvml) -> None:
    now = [0.0]
    with simulate("2xA100-80GB", clock=lambda: now[0]) as machine:
        gpu = machine.gpus[0]
        assert read(nvml, machine).work == {}  # that nobody works is known
        gpu.run("ipykernel", "maria", 12 * GIB, pid=os.getpid(), work=60)
        other = gpu.run("train.py", "chen", None)
        before = read(nvml, machine)
        watts = gpu.power / 1000
        now[0] = 1.0
        after = read(nvml, machine)
        first = read(nvml, machine, None)  # before a block energy and memory alone are asked for
        seen: list[tuple[Any, ...]] = []
        for now[0] in (5.0, 5.04, 5.1, 5.19, 5.2):  # counters stand still between two steps
            seen.append((read(nvml, machine).energy, read(nvml, machine).utilization))
        for call, figure in [(ENERGY, "energy"), (WORK, "work"), ("nvmlDeviceGetUtil", "utilization")]:
            gpu.errors.clear()
            gpu.fail(call, REFUSALS[0])
            found = read(nvml, machine)
            assert {name for name in found._fields if getattr(found, name) is UNKNOWN} == {figure}
    assert before.memory == {os.getpid(): 12 * GIB, other.pid: UNKNOWN}
    assert before.work is not UNKNOWN
    work = {pid: [percent for _, percent in samples] for pid, samples in before.work.items()}
    assert work == {os.getpid(): [60]}  # the other one holds memory and does nothing
    assert before.utilization == pytest.approx(60, abs=12)
    assert float(after.energy) - float(before.energy) == pytest.approx(watts, rel=0.2)  # type: ignore[arg-type]
    assert (first.memory, first.utilization, first.work) == (before.memory, UNKNOWN, UNKNOWN)
    assert seen[0] == seen[1]
    assert seen[2] == seen[3]
    assert seen[0][0] < seen[2][0] < seen[4][0]


def test_work_from_before_the_block_does_not_count(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [SimpleNamespace(pid=pid, timeStamp=at, smUtil=50) for pid, at in [(1, 99), (2, 100), (3, 101)]]
    with simulate("1xA100-80GB") as machine:
        nvml.inventory()
        monkeypatch.setattr(pynvml, WORK, lambda *_: samples)
        assert read(nvml, machine, 100).work == {3: [(101, 50)]}
