"""The reader, over the real pynvml and a simulated machine beneath it."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Self

import pynvml
import pytest

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.errors import ChoiceError, SimulationError
from gpu_magic.gpus.request import parse
from gpu_magic.gpus.select import select
from gpu_magic.testing import Machine, simulate
from tests.conftest import IMPATIENT

if TYPE_CHECKING:
    from gpu_magic.devices.model import ComputeMode
    from gpu_magic.devices.nvml import Nvml
    from tests.conftest import Fresh

GIB = 1 << 30


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


def test_a_snapshot_reads_six_figures_of_a_gpu_and_makes_none_of_the_slow_calls(nvml: Nvml) -> None:
    with simulate("8xA100-80GB") as machine:
        for gpu in machine.gpus:
            gpu.run("train.py", "maria", GIB)
        nvml.inventory()
        pynvml.nvmlLib.calls.clear()
        nvml.inventory()
        calls = pynvml.nvmlLib.calls
        assert calls.total() == 8 * 7  # pynvml lists processes with two calls; at a first look nobody works
        assert "nvmlDeviceGetPcieThroughput" not in calls


def test_a_lost_gpu_is_said_and_the_rest_is_read(nvml: Nvml) -> None:
    with simulate("4xA100-80GB") as machine:
        before = nvml.inventory()
        machine.gpus[2].lose()
        after = nvml.inventory()
        assert "lost" in after[2].problem
        assert (after[2].uuid, after[2].name) == (before[2].uuid, before[2].name)
        assert after[2].status.memory_used is UNKNOWN
        assert not after[2].is_free
        assert [gpu.problem for gpu in after if gpu.index != 2] == [""] * 3
        machine.gpus[2].recover()
        assert nvml.inventory()[2].problem == ""


def test_a_gpu_that_was_lost_from_the_start_is_there_without_a_name(nvml: Nvml) -> None:
    with simulate("2xA100-80GB") as machine:
        machine.gpus[0].lose()
        gpus = nvml.inventory().gpus
        assert len(gpus) == 2
        assert gpus[0].uuid is UNKNOWN
        assert "lost" in gpus[0].problem


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("nvmlDeviceGetMemoryInfo", "memory_used"),
        ("nvmlDeviceGetUtilizationRates", "utilization"),
        ("nvmlDeviceGetTemperature", "temperature"),
        ("nvmlDeviceGetPowerUsage", "power"),
        ("nvmlDeviceGetComputeRunningProcesses", "processes"),
    ],
)
@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NO_PERMISSION])
def test_a_figure_that_is_refused_is_unknown_and_the_others_are_read(
    nvml: Nvml, call: str, field: str, error: int
) -> None:
    with simulate("1xA100-80GB") as machine:
        machine.gpus[0].fail(call, error)
        gpu = nvml.inventory()[0]
        figures = {name: getattr(gpu.status, name) for name in gpu.status.__slots__}
        unknown = {name for name, value in figures.items() if value is UNKNOWN}
        assert unknown == ({"memory_used", "memory_free"} if field == "memory_used" else {field})
        assert gpu.problem == ""
        assert gpu.is_free is (field in ("temperature", "power"))


@pytest.mark.parametrize("mode", ["Default", "Exclusive_Process", "Prohibited"])
def test_the_compute_mode_is_read(nvml: Nvml, mode: ComputeMode) -> None:
    with simulate("1xT4") as machine:
        machine.gpus[0].compute_mode = mode
        assert nvml.inventory()[0].compute_mode == mode


def test_a_compute_mode_that_is_refused_is_unknown_and_nothing_is_said_of_it(nvml: Nvml) -> None:
    with simulate("1xT4") as machine:
        machine.gpus[0].fail("nvmlDeviceGetComputeMode", pynvml.NVML_ERROR_NOT_SUPPORTED)
        gpu = nvml.inventory()[0]
        assert gpu.compute_mode is UNKNOWN
        assert not gpu.is_prohibited
        assert not gpu.is_exclusive


def test_an_old_driver_without_version_2_of_memory_is_read_by_version_1(nvml: Nvml) -> None:
    with simulate("2xA100-80GB") as machine:
        machine.missing.add("nvmlDeviceGetMemoryInfo_v2")
        gpu, status = machine.gpus[1], nvml.inventory()[1].status
        assert status.memory_used == gpu.memory_used + gpu.reserved  # which version 1 does not tell apart
        assert status.memory_free == gpu.model.memory - gpu.memory_used - gpu.reserved


def test_a_driver_before_r510_has_the_second_process_list(nvml: Nvml) -> None:
    with simulate("2xA100-80GB") as machine:
        machine.gpus[1].run("train.py", "maria", GIB)
        machine.missing.add("nvmlDeviceGetComputeRunningProcesses_v3")
        assert nvml.inventory()[1].status.processes[0].owner == "maria"


def test_a_driver_without_any_of_the_symbols_leaves_the_figures_unknown(nvml: Nvml) -> None:
    with simulate("2xA100-80GB") as machine:
        machine.missing |= {
            "nvmlDeviceGetMemoryInfo",
            "nvmlDeviceGetMemoryInfo_v2",
            "nvmlDeviceGetComputeRunningProcesses_v2",
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetMigMode",
        }
        gpu = nvml.inventory()[1]
        assert gpu.problem == ""
        assert gpu.status.memory_used is UNKNOWN
        assert gpu.status.processes is UNKNOWN
        assert gpu.status.temperature is not UNKNOWN


def test_a_gpu_with_more_processes_than_expected(nvml: Nvml) -> None:
    with simulate("1xA100-80GB") as machine:
        for _ in range(70):
            machine.gpus[0].run("worker.py", "maria", GIB >> 1)
        processes = nvml.inventory()[0].status.processes
        assert [process.pid for process in processes] == [one.pid for one in machine.gpus[0].processes]
        assert {process.memory for process in processes} == {GIB >> 1}


def test_a_process_whose_memory_is_not_told(nvml: Nvml) -> None:
    with simulate("1xA100-80GB") as machine:
        machine.gpus[0].run("train.py", "maria", None)
        (process,) = nvml.inventory()[0].status.processes
        assert process.memory is UNKNOWN
        assert (process.owner, process.name) == ("maria", "train.py")


def test_a_call_that_hangs_is_given_up_and_the_others_are_read(impatient: Nvml) -> None:
    with simulate("4xA100-80GB") as machine:
        impatient.inventory()
        comes_back = machine.hang("nvmlDeviceGetTemperature", 1)
        started = time.monotonic()
        gpus = impatient.inventory().gpus
        assert time.monotonic() - started < 5
        assert "did not come back" in gpus[1].problem
        assert [gpu.problem for gpu in gpus if gpu.index != 1] == [""] * 3
        # It is not called again while it hangs, so nobody waits a second time, and no thread is lost to it.
        impatient.inventory()
        threads = threading.active_count()
        for _ in range(5):
            assert "did not come back" in impatient.inventory()[1].problem
        assert threading.active_count() == threads
        comes_back.set()
        assert _becomes(lambda: impatient.inventory()[1].problem == "")


def test_a_driver_that_hangs_when_opened_is_given_up(impatient: Nvml) -> None:
    with simulate("4xA100-80GB") as machine:
        comes_back = machine.hang("nvmlInitWithFlags")
        assert "did not come back" in impatient.inventory().problem
        comes_back.set()
        assert _becomes(lambda: len(impatient.inventory()) == 4)


@pytest.mark.parametrize(
    ("refusal", "says"),
    [
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "reboot"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "not loaded"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "refuses this user"),
        (pynvml.NVML_ERROR_UNKNOWN, "not answering"),
    ],
)
def test_a_driver_that_refuses_is_explained(nvml: Nvml, refusal: int, says: str) -> None:
    with simulate("4xA100-80GB") as machine:
        machine.refusal = refusal
        inventory = nvml.inventory()
        assert says in inventory.problem
        assert not inventory.gpus
        machine.refusal = 0
        assert len(nvml.inventory()) == 4


def test_a_gpu_that_is_closed_to_this_user_is_refused_in_a_sentence(nvml: Nvml) -> None:
    with simulate("2xT4") as machine:
        machine.gpus[1].fail("nvml", pynvml.NVML_ERROR_NO_PERMISSION)
        with pytest.raises(ChoiceError) as refused:
            select(parse("1"), nvml.inventory(), (None, None))
    assert str(refused.value) == (
        "GPU 1 can't be chosen, as it is closed to this user: an administrator can give access to /dev/nvidia*."
    )


def test_no_gpu_and_no_driver(nvml: Nvml) -> None:
    with simulate("0xT4"):
        for _ in range(2):
            assert "has no GPU" in nvml.inventory().problem
    if pynvml.nvmlLib is None:  # on a machine without a driver
        assert "NVML is not here" in nvml.inventory().problem


def test_mig_instances_stand_under_their_gpu(nvml: Nvml) -> None:
    with simulate("1xA100-80GB(3g.40gb,4g.40gb)+1xT4") as machine:
        machine.gpus[0].mig[1].processes.append(machine.gpus[1].run("train.py", "maria", 5 * GIB))
        split, whole = nvml.inventory()
        assert split.is_split
        assert [part.uuid for part in split.mig] == [part.uuid for part in machine.gpus[0].mig]
        assert split.mig[1].memory_total == 40 * GIB
        assert split.mig[1].status.processes[0].owner == "maria"
        assert split.status.utilization is UNKNOWN
        assert not whole.is_split


def test_it_follows_when_another_machine_is_put_beneath_or_it_is_shut_by_others(nvml: Nvml) -> None:
    with simulate("2xT4"):
        assert len(nvml.inventory()) == 2
        with simulate("3xT4"):
            assert len(nvml.inventory()) == 3
        assert len(nvml.inventory()) == 2
        pynvml.nvmlShutdown()
        assert nvml.inventory()[0].problem == ""


def test_a_forked_child_can_read(nvml: Nvml) -> None:
    with simulate("2xT4"):
        nvml.inventory()
        child = os.fork()
        if child == 0:
            os._exit(len(nvml.inventory()))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2


def _becomes(condition: object, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.01)
    return False


def test_gpus_behind_several_that_hang_are_read_the_next_time(impatient: Nvml) -> None:
    with simulate("12xT4") as machine:
        impatient.inventory()
        events = [machine.hang("nvmlDeviceGetPowerUsage", number) for number in range(8)]
        impatient.inventory()
        for _ in range(2):
            second = impatient.inventory()
        assert [bool(gpu.problem) for gpu in second] == [True] * 8 + [False] * 4
        for event in events:
            event.set()
        assert _becomes(lambda: not any(gpu.problem for gpu in impatient.inventory()))


def test_one_gpu_that_hangs_when_found_and_one_when_read_cost_one_wait(impatient: Nvml) -> None:
    with simulate("4xT4") as machine:
        events = [machine.hang("nvmlDeviceGetName", 1), machine.hang("nvmlDeviceGetPowerUsage", 2)]
        started = time.monotonic()
        gpus = impatient.inventory().gpus
        assert time.monotonic() - started < 2 * IMPATIENT
        assert [bool(gpu.problem) for gpu in gpus] == [False, True, True, False]
        for event in events:
            event.set()


def test_closing_does_not_wait_for_a_driver_that_hangs(impatient: Nvml) -> None:
    with simulate("2xT4") as machine:
        impatient.inventory()
        comes_back = machine.hang("nvmlShutdown")
        started = time.monotonic()
        impatient.close()
        assert time.monotonic() - started < 3
        comes_back.set()


def test_a_child_forked_while_another_thread_reads_can_read(impatient: Nvml) -> None:
    with simulate("2xT4") as machine:
        impatient.inventory()
        comes_back = machine.hang("nvmlDeviceGetPowerUsage", 0)
        reader = threading.Thread(target=impatient.inventory)
        reader.start()
        time.sleep(0.1)
        child = os.fork()
        if child == 0:
            comes_back.set()
            os._exit(len(impatient.inventory()))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        comes_back.set()
        reader.join()


def test_after_a_bad_word_the_next_read_says_it_again(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "2xT4 clock=0")
    assert len(nvml.inventory()) == 2
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "bogus")
    for _ in range(2):
        with pytest.raises(SimulationError):
            nvml.inventory()
    monkeypatch.delenv("GPU_MAGIC_SIMULATE")
    assert nvml.inventory().simulated == ""


def test_a_simulated_machine_can_have_this_process_at_work(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "2xT4 clock=0 own=1:12GiB:60")
    gpu = nvml.inventory()[1]
    assert gpu.status.processes is not UNKNOWN
    assert [(process.pid, process.memory) for process in gpu.status.processes] == [(os.getpid(), 12 << 30)]
    for wrong in ("own=1:12GB:60", "own=1", "own=2:12GiB:60", "own=1:12GiB:101"):
        monkeypatch.setenv("GPU_MAGIC_SIMULATE", f"2xT4 {wrong}")
        with pytest.raises(SimulationError, match="own="):
            nvml.inventory()
    monkeypatch.delenv("GPU_MAGIC_SIMULATE")
    nvml.inventory()


def test_gpus_that_are_slow_and_well_leave_no_threads_behind(nvml: Nvml) -> None:
    class Slow(Machine):
        def wait_if_hanging(self, call: str, gpu: int | None) -> None:
            time.sleep(0.1 if call == "nvmlDeviceGetPowerUsage" else 0)

    with simulate(Slow("4xT4")):
        nvml.inventory()
        threads = threading.active_count()
        for _ in range(4):
            assert not any(gpu.problem for gpu in nvml.inventory())
        assert _becomes(lambda: threading.active_count() <= threads)


def test_a_driver_that_hangs_does_not_keep_the_simulated_one_away(
    impatient: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    with simulate("2xT4") as machine:
        comes_back = machine.hang("nvmlInitWithFlags")
        assert "does not answer" in impatient.inventory().problem
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "3xL4")
    assert len(impatient.inventory()) == 3
    comes_back.set()
    time.sleep(0.1)
    assert impatient.inventory()[0].name == "NVIDIA L4"
    monkeypatch.delenv("GPU_MAGIC_SIMULATE")
    impatient.inventory()


def test_a_gpu_that_hangs_on_one_machine_is_well_on_another(impatient: Nvml) -> None:
    with simulate("2xT4") as machine:
        impatient.inventory()
        comes_back = machine.hang("nvmlDeviceGetPowerUsage", 0)
        assert impatient.inventory()[0].problem
        with simulate("2xL4"):
            assert not impatient.inventory()[0].problem
        comes_back.set()


def test_a_name_that_is_no_text_is_unknown(nvml: Nvml) -> None:
    with simulate("1xT4") as machine:
        machine.gpus[0].model = machine.gpus[0].model._replace(name=_Raw(b"T\xff4"))
        assert nvml.inventory()[0].name is UNKNOWN
        assert nvml.inventory()[0].problem == ""


class _Raw(str):
    """A name as bytes that are no UTF-8, which is how a driver could give it."""

    __slots__ = ("raw",)

    def __new__(cls, raw: bytes) -> Self:
        self = super().__new__(cls, "raw")
        self.raw = raw
        return self

    def encode(self, *_: object) -> bytes:
        return self.raw


def test_this_process_can_work_on_a_simulated_gpu(nvml: Nvml) -> None:
    with simulate("2xA100-80GB") as machine:
        machine.gpus[1].run("train.py", "maria", GIB, pid=os.getpid())
        machine.gpus[1].run("train.py", "maria", GIB)
        assert [process.mine for process in nvml.inventory()[1].status.processes] == [True, False]
