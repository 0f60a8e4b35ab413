"""What a block has cost, on simulated machines: what is known is told, and what is not is UNKNOWN."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import threading
import time
from typing import TYPE_CHECKING

import pynvml
import pytest

import gpu_magic
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.display.usage import quiet_text, usage_lines
from gpu_magic.frameworks.answers import MemoryPool
from gpu_magic.process.session import current
from gpu_magic.testing import Machine, simulate
from gpu_magic.usage import targets
from gpu_magic.usage.analysis import analyze
from gpu_magic.usage.measurement import Measurement
from gpu_magic.usage.reading import DeviceReading, Reading, read
from gpu_magic.usage.recorder import recorder
from gpu_magic.usage.targets import MachineCache
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Iterator

GIB = 1 << 30
LONG = 1.3  # seconds: of less than one it is not known how busy a GPU was
ENERGY, WORK = "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetProcessUtilization"
RATES, PROCESSES = "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetComputeRunningProcesses"


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Return a machine on whose GPU 0 this process works."""
    with simulate("2xA100-80GB") as machine:
        machine.gpus[0].run("ipykernel", "maria", 12 * GIB, pid=os.getpid(), work=60)
        yield machine


def measure(seconds: float = 0.0) -> gpu_magic.CellUsage:
    with gpu_magic.gpu_time() as measured:
        time.sleep(seconds)
    return measured.usage


def test_all_figures_of_the_gpu_that_was_used(machine: Machine) -> None:
    usage = measure(LONG)
    (gpu,) = usage.gpus  # this process has nothing on the other one
    assert (gpu.name, gpu.gpu, gpu.model) == ("cuda:0", "GPU 0", "NVIDIA A100-SXM4-80GB")
    assert usage.wall >= LONG
    assert gpu.busy == pytest.approx(60, abs=12)
    assert gpu.busy_own == 60
    assert gpu.idle == pytest.approx(usage.wall * (1 - gpu.busy / 100))  # type: ignore[operator]
    assert (gpu.peak, gpu.peak_by, gpu.is_exact, gpu.stayed) == (12 * GIB, "driver", False, 0)
    assert gpu.others == ()
    # Between 14 % and all of 400 W, for at least as long as the block.
    assert 0.14 * 400 * LONG < gpu.energy < 400 * (usage.wall + 60)  # type: ignore[operator]
    assert usage.versions["driver"] == "580.65.06"
    assert usage.simulated == "2xA100-80GB"


def test_what_a_driver_does_not_give_is_unknown_and_never_zero(machine: Machine) -> None:
    for function in (ENERGY, WORK, RATES):
        machine.gpus[0].fail(function, pynvml.NVML_ERROR_NOT_SUPPORTED)
    (gpu,) = measure(LONG).gpus
    assert (gpu.busy, gpu.busy_own, gpu.idle, gpu.energy) == (UNKNOWN,) * 4
    assert gpu.peak == 12 * GIB
    (line,) = usage_lines(recorder().kept[-1])
    assert "how busy is not known, peak about 12.0 GiB (driver), nothing stayed, energy not known" in line


def test_a_driver_that_lists_no_processes_leaves_nothing_to_say(machine: Machine) -> None:
    machine.gpus[0].fail(PROCESSES, pynvml.NVML_ERROR_NOT_SUPPORTED)
    machine.gpus[0].fail(WORK, pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert measure().gpus == ()


def test_a_short_block_says_that_it_is_too_short(machine: Machine) -> None:
    usage = measure()
    assert usage.gpus[0].busy is UNKNOWN
    assert "too short to tell how busy" in usage_lines(usage)[0]
    assert "busy" not in quiet_text(usage)


@pytest.mark.parametrize(("at", "counts"), [(0.0, False), (0.16, False), (1 / 6, True), (0.2, True)])
def test_how_busy_a_gpu_was_before_the_block_does_not_count(at: float, counts: bool) -> None:
    target = targets.Target("GPU-1", "cuda:0", "GPU 0", "A100")
    block = Measurement(targets.Machine((target,), "", "", ""), Reading(0.0, {}, {}), ())
    block.began = 0.0
    # The driver's figure is of a sixth of a second before it is read.
    for moment, busy in ((at, 100), (0.7, 20), (1.3, 40)):
        one = DeviceReading(utilization=busy, memory=GIB, work=busy)
        block.add(Reading(moment, {target.uuid: one}, {}))
    usage = analyze(block, target, LONG, only_touched=False)
    assert usage is not None
    assert usage.busy == usage.busy_own == pytest.approx(160 / 3 if counts else 30)


def test_a_counter_that_stands_still_says_nothing() -> None:
    with simulate("1xA100-80GB", clock=lambda: 0.0) as machine:
        machine.gpus[0].run("ipykernel", "maria", GIB, pid=os.getpid())
        assert measure().gpus[0].energy is UNKNOWN


def test_what_stays_and_what_is_given_back(machine: Machine) -> None:
    own = machine.gpus[0].processes[0]
    with gpu_magic.gpu_time() as measured:
        own.memory = 20 * GIB
        until(lambda: len(threading.enumerate()) > 1)
        samples = next(iter(recorder()._running)).readings
        until(lambda: any(one.devices[machine.gpus[0].uuid].memory == 20 * GIB for one in samples))
        own.memory = 15 * GIB
    (gpu,) = measured.usage.gpus
    assert (gpu.peak, gpu.stayed) == (20 * GIB, 3 * GIB)
    own.memory = 15 * GIB
    with gpu_magic.gpu_time() as measured:
        own.memory = 2 * GIB
    assert measured.usage.gpus[0].stayed == -13 * GIB
    assert "13.0 GiB given back" in usage_lines(measured.usage)[0]


def test_who_else_worked_there_is_named_and_who_only_holds_memory_is_not(machine: Machine) -> None:
    machine.gpus[0].run("train.py", "chen", 20 * GIB, work=20)
    machine.gpus[0].run("idle.py", "tom", 20 * GIB)
    usage = measure(LONG)
    (gpu,) = usage.gpus
    assert [(other.name, other.owner) for other in gpu.others] == [("train.py", "chen")]
    assert gpu.busy == pytest.approx(80, abs=12)
    (line,) = usage_lines(usage)
    assert "(60 % by this process), idle for" in line
    assert line.endswith("(whole GPU), shared with train.py (chen)")


def test_where_the_driver_does_not_tell_who_works_all_who_have_memory_are_named(machine: Machine) -> None:
    machine.gpus[0].fail(WORK, pynvml.NVML_ERROR_NOT_SUPPORTED)
    machine.gpus[0].run("idle.py", "tom", 20 * GIB)
    assert [other.name for other in measure().gpus[0].others] == ["idle.py"]


def test_a_gpu_that_is_lost_meanwhile_leaves_what_was_seen(machine: Machine) -> None:
    with gpu_magic.gpu_time() as measured:
        until(lambda: len(next(iter(recorder()._running)).readings) > 1)
        machine.gpus[0].lose()
    (gpu,) = measured.usage.gpus
    assert (gpu.peak, gpu.stayed, gpu.energy) == (12 * GIB, UNKNOWN, UNKNOWN)


def test_no_gpu_that_this_process_sees_is_left_out() -> None:
    with simulate("4xA100-80GB", mask="2,0") as machine:
        for gpu in machine.gpus:
            gpu.run("ipykernel", "maria", GIB, pid=os.getpid())
        found = measure().gpus
    assert [(gpu.name, gpu.gpu) for gpu in found] == [("cuda:0", "GPU 2"), ("cuda:1", "GPU 0")]


def test_gpus_that_the_block_itself_chooses_have_the_names_of_its_end() -> None:
    with simulate("4xA100-80GB") as machine:
        with gpu_magic.gpu_time() as measured:
            gpu_magic.choose("3,1")
            machine.gpus[1].run("ipykernel", "maria", GIB, pid=os.getpid())
        (gpu,) = measured.usage.gpus
    assert (gpu.name, gpu.gpu) == ("cuda:1", "GPU 1")


def test_a_mig_instance_has_its_own_memory_and_no_joules() -> None:
    with simulate("1xA100-80GB(3g.40gb,4g.40gb)") as machine:
        instance = machine.gpus[0].mig[1]
        instance.processes.append(machine.gpus[0].run("ipykernel", "maria", GIB, pid=os.getpid()))
        (gpu,) = measure().gpus
    assert (gpu.gpu, gpu.uuid, gpu.peak, gpu.energy) == ("MIG instance 0:1", instance.uuid, GIB, UNKNOWN)


def test_without_a_driver_the_times_are_told_and_why_there_are_no_gpus() -> None:
    with simulate("1xA100-80GB") as machine:
        machine.refusal = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
        usage = measure()
    assert usage.gpus == ()
    assert usage_lines(usage)[0].endswith(
        "· The NVIDIA driver is installed and not loaded: running nvidia-smi "
        "as an administrator, or a reboot, loads it"
    )


def test_blocks_within_blocks_each_have_their_own(machine: Machine) -> None:
    with gpu_magic.gpu_time("outer") as outer:
        time.sleep(0.1)
        with gpu_magic.gpu_time("inner") as inner:
            time.sleep(0.1)
    assert inner.usage.wall < outer.usage.wall
    assert [usage.code for usage in gpu_magic.history()[-2:]] == ["inner", "outer"]


def test_a_block_that_fails_is_told_and_its_error_goes_on(machine: Machine) -> None:
    with pytest.raises(ZeroDivisionError), gpu_magic.gpu_time() as measured:
        _ = 1 / 0
    assert measured.usage.has_failed


def test_before_its_end_a_block_has_no_usage(machine: Machine) -> None:
    with (
        gpu_magic.gpu_time() as measured,
        pytest.raises(gpu_magic.MeasurementError, match="known when it has ended"),
    ):
        _ = measured.usage


def test_nothing_is_read_any_more(machine: Machine) -> None:
    measure(0.1)
    until(lambda: not recorder()._sampler.is_running)


def test_the_record_is_json_and_its_unknown_figures_are_null(machine: Machine) -> None:
    machine.gpus[0].fail(ENERGY, pynvml.NVML_ERROR_NOT_SUPPORTED)
    machine.gpus[0].run("train.py", "chen", 20 * GIB, work=20)
    found = json.loads(json.dumps(measure(0.15).to_dict()))  # within a step nobody is known to work
    (gpu,) = found["gpus"]
    assert (gpu["energy"], gpu["busy"], gpu["peak"]) == (None, None, 12 * GIB)
    assert [other["owner"] for other in gpu["others"]] == ["chen"]
    assert "samples" not in gpu


def test_the_history_is_a_table_and_a_data_frame(machine: Machine) -> None:
    recorder().kept.clear()
    assert repr(gpu_magic.history()).startswith("No cell was measured")
    with gpu_magic.gpu_time("<b>short</b>"):
        pass
    with gpu_magic.gpu_time("long"):
        time.sleep(0.2)
    table = gpu_magic.history()
    assert [line.split()[-1] for line in repr(table).splitlines()[1:3]] == ["long", "<b>short</b>"]
    assert "<b>" not in table._repr_html_().partition("<table>")[2]
    frame = table.to_pandas()
    assert list(frame["code"]) == ["<b>short</b>", "long"]
    assert list(frame["peak"]) == [12 * GIB] * 2
    assert [one.code for one in table] == ["<b>short</b>", "long"]


def test_names_of_processes_are_printable(machine: Machine) -> None:
    machine.gpus[0].run("train\n\x1b[31m.py", "chen", 20 * GIB, work=20)
    usage = measure()
    assert all(line.isprintable() for line in usage_lines(usage))
    assert quiet_text(usage).isprintable()


def test_a_forked_child_measures_for_itself(machine: Machine) -> None:
    with gpu_magic.gpu_time():
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                with gpu_magic.gpu_time() as measured:
                    time.sleep(0.2)
                os.write(writing, str(len(measured.usage.gpus) <= 1).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        assert answer.read() == "True"


def test_a_peak_of_a_moment_in_a_long_block_is_kept(machine: Machine) -> None:
    """Of a long block not every reading is kept."""
    own = machine.gpus[0].processes[0]
    block = recorder().begin(reset=False)
    uuid = machine.gpus[0].uuid
    for number in range(2000):
        own.memory = 40 * GIB if number == 1501 else GIB
        block.add(read(current(), (uuid,), block.since))
    own.memory = GIB
    usage = recorder().end(block, cell=None, code="", has_failed=False, only_touched=False)
    assert len(block.readings) < 300
    assert usage.gpus[0].peak == 40 * GIB


def test_a_block_whose_begin_was_interrupted_is_not_measured_for_ever(machine: Machine) -> None:
    recorder().begin(reset=False)  # its caller never got it
    gc.collect()
    until(lambda: not recorder()._sampler.is_running)


def test_a_clock_that_is_set_back_hides_nobody(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.gpus[0].run("train.py", "chen", 20 * GIB, work=20)
    before = time.time
    with gpu_magic.gpu_time() as measured:
        monkeypatch.setattr(time, "time", lambda: before() - 3600)
        monkeypatch.setattr(time, "time_ns", lambda: int((before() - 3600) * 1e9))
        time.sleep(LONG)
    (gpu,) = measured.usage.gpus
    assert gpu.busy_own == 60
    assert [other.name for other in gpu.others] == ["train.py"]


def test_a_child_that_ends_in_a_measured_block_ends_as_it_wants(machine: Machine) -> None:
    with gpu_magic.gpu_time():
        child = os.fork()
        if not child:
            code = 1
            try:
                with contextlib.suppress(SystemExit), gpu_magic.gpu_time():
                    raise SystemExit(0)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_child_that_leaves_its_parents_block_raises_nothing(machine: Machine) -> None:
    child = 0
    try:
        with gpu_magic.gpu_time():
            child = os.fork()
            if not child:
                raise KeyError("the child's own")  # noqa: TRY301
    except KeyError:
        os._exit(0)
    except BaseException:  # noqa: BLE001
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_gpu_that_is_not_seen_any_more_has_no_name(machine: Machine) -> None:
    with gpu_magic.gpu_time() as measured:
        gpu_magic.choose("1")
        machine.gpus[1].run("ipykernel", "maria", GIB, pid=os.getpid())
    assert [(gpu.name, gpu.gpu) for gpu in measured.usage.gpus] == [("cuda:0", "GPU 1"), ("", "GPU 0")]


def test_an_old_peak_is_not_a_nested_blocks(machine: Machine) -> None:
    """Of a framework that can't count anew, what it counted before the blocks is of none of them."""
    pool = MemoryPool(GIB, GIB, peak=30 * GIB)
    reading = Reading(time.perf_counter(), {}, {"JAX": {"cuda:0": pool}})
    block = Measurement(MachineCache().find(current()), reading, ())
    block.keep_peaks(reading)  # a block within it begins
    block.was_reset(())
    block.keep_peaks(reading)
    assert block.peaks == {}
