"""What a block took: what is known is told, what is not is UNKNOWN, and records show themselves."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

import gpu_magic
from gpu_magic.devices.model import UNKNOWN, Unknown
from gpu_magic.frameworks.base import MemoryPool
from gpu_magic.measure.record import CellUsage, GpuUsage, History, Sample
from gpu_magic.measure.recorder import Block, Reading, Work, read, recorder
from gpu_magic.testing import Machine, simulate
from tests.eight_gpus import installed
from tests.machine import CARDS, Driver, environment
from tests.processes import until
from tests.programs.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

    from tests.conftest import Typed

pytestmark = pytest.mark.machine("2xA100-80GB", clock=time.monotonic)

GIB = 1 << 30
LONG = 1.1  # seconds: of less than the driver's period it is not known how busy a GPU was


@pytest.fixture
def machine(machine: Machine) -> Machine:
    """Return a machine on whose GPU 0 this process works."""
    machine.gpus[0].run("ipykernel", "maria", 12 * GIB, pid=os.getpid(), work=60)
    return machine


def measure(seconds: float = 0.0) -> CellUsage:
    with gpu_magic.gpu_time() as measured:
        time.sleep(seconds)
    return measured.usage


def test_all_figures_of_the_gpu_that_was_used(machine: Machine) -> None:
    machine.gpus[0].run("nvidia-cuda-mps-server", "root", GIB, work=5)  # it works for others
    assert not measure(LONG).gpus[0].is_shared
    machine.gpus[0].run("train.py", "chen", 20 * GIB, work=20)
    usage = measure(LONG)
    (gpu,) = usage.gpus  # this process has nothing on the other one
    assert (gpu.name, gpu.gpu) == ("cuda:0", "GPU 0")
    assert usage.wall >= LONG
    assert gpu.busy == pytest.approx(85, abs=12)
    assert 0 < gpu.busy_own < 61  # type: ignore[operator]
    assert gpu.is_shared
    assert (gpu.peak, gpu.peak_by, gpu.is_exact, gpu.memory_change) == (12 * GIB, "driver", False, 0)
    assert 0 < gpu.energy < 400 * (usage.wall + 60)  # type: ignore[operator] # of 400 W at most
    assert usage.simulated == "2xA100-80GB"
    assert gpu_magic.history()[-1] is usage


def test_the_share_of_this_process_is_a_mean_and_not_its_highest(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver keeps the samples of the last seconds, and tells those that it is asked for, again and again."""
    load = [time.time_ns() // 1000 + step * 20_000 for step in range(1, 11)]  # a fifth of a second
    samples = [SimpleNamespace(pid=os.getpid(), timeStamp=at, smUtil=100) for at in load]

    def work(_: object, since: int) -> list[SimpleNamespace]:
        return [one for one in samples if since < one.timeStamp <= time.time_ns() // 1000]

    monkeypatch.setattr(pynvml, "nvmlDeviceGetProcessUtilization", work)
    gpu = measure(1.0).gpus[0]
    assert 0 < gpu.busy_own < 30  # type: ignore[operator]


def test_what_a_driver_does_not_give_is_unknown_and_never_zero(machine: Machine) -> None:
    for what in ("TotalEnergyConsumption", "ProcessUtilization", "UtilizationRates"):
        machine.gpus[0].fail(f"nvmlDeviceGet{what}", pynvml.NVML_ERROR_NOT_SUPPORTED)
    (gpu,) = measure(LONG).gpus
    assert (gpu.busy, gpu.busy_own, gpu.energy) == (UNKNOWN,) * 3
    assert gpu.peak == 12 * GIB
    machine.gpus[0].fail("nvmlDeviceGetComputeRunningProcesses", pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert measure().gpus == ()


def test_without_a_driver_the_times_are_told_and_why_there_are_no_gpus() -> None:
    with simulate("1xA100-80GB") as machine:
        machine.refusal = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
        usage = measure()
    assert usage.gpus == ()
    assert "driver is installed but not loaded" in usage.problem


def test_what_stays_and_what_a_gpu_that_is_lost_leaves(machine: Machine) -> None:
    first = machine.gpus[0]
    for is_lost, change in ((False, 3 * GIB), (True, UNKNOWN)):
        first.processes[0].memory = 12 * GIB
        with gpu_magic.gpu_time() as measured:
            first.processes[0].memory = 20 * GIB
            samples = measured._block.readings
            # Two: the first can have begun before the change.
            until(lambda seen=samples: sum(one.memory.get(first.uuid) == 20 * GIB for one in seen) > 1)  # type: ignore[misc]
            assert sum(bool(one.energy) for one in samples) == 1  # slow to read, and needed at the ends alone
            first.processes[0].memory = 15 * GIB
            if is_lost:
                first.lose()
        (gpu,) = measured.usage.gpus
        assert (gpu.peak, gpu.memory_change) == (20 * GIB, change)
        assert not is_lost or gpu.energy is UNKNOWN


def test_no_block_waits_for_the_energy_counter_at_its_start(machine: Machine) -> None:
    block = recorder().begin(reset=False)
    assert not block.readings[0].energy
    until(lambda: block.energy)  # read beside it
    recorder().end(block, "", has_failed=False)
    assert block.readings[-1].energy


def test_gpus_have_the_names_of_the_blocks_end() -> None:
    with simulate("4xA100-80GB", mask="2,0") as machine:
        for gpu in machine.gpus:
            gpu.run("ipykernel", "maria", GIB, pid=os.getpid())
        assert [(gpu.name, gpu.gpu) for gpu in measure().gpus] == [("cuda:0", "GPU 2"), ("cuda:1", "GPU 0")]
        with gpu_magic.gpu_time() as measured:
            gpu_magic.choose("0")
        found = [(gpu.name, gpu.gpu) for gpu in measured.usage.gpus]
    assert found == [("cuda:0", "GPU 0"), ("", "GPU 2")]


def test_a_mig_instance_has_its_own_memory_and_no_joules() -> None:
    with simulate("1xA100-80GB(3g.40gb,4g.40gb)") as machine:
        instance = machine.gpus[0].mig[1]
        instance.processes.append(machine.gpus[0].run("ipykernel", "maria", GIB, pid=os.getpid()))
        (gpu,) = measure().gpus
    assert (gpu.gpu, gpu.uuid, gpu.peak, gpu.energy) == ("MIG instance 0:1", instance.uuid, GIB, UNKNOWN)


def test_nothing_is_read_once_no_block_runs_also_where_an_interrupt_has_lost_one(machine: Machine) -> None:
    measure()
    recorder().begin(reset=False)  # its caller never got it
    gc.collect()
    until(lambda: not recorder()._sampler.is_running)


def test_a_forked_child_measures_for_itself_and_leaves_its_parents_block(machine: Machine) -> None:
    child = 0
    try:
        with gpu_magic.gpu_time():
            if not (child := os.fork()):
                assert len(measure(0.1).gpus) <= 1
                raise KeyError("the child's own")  # noqa: TRY301
    except KeyError:
        os._exit(7)
    finally:
        if not child:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7


def test_a_clock_that_is_set_back_hides_no_work(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    before = time.time
    with gpu_magic.gpu_time() as measured:
        monkeypatch.setattr(time, "time", lambda: before() - 3600)
        monkeypatch.setattr(time, "time_ns", lambda: int((before() - 3600) * 1e9))
        time.sleep(LONG)
    assert measured.usage.gpus[0].busy_own > 0  # type: ignore[operator]


# From here on readings are given.

DEVICE = GpuUsage("cuda:0", "GPU 0", "GPU-1")


def block_of(*readings: Reading, reset: tuple[str, ...] = ()) -> Block:
    block = Block({"GPU-1": DEVICE}, readings[0])
    block.began = 0.0
    block.note_peaks(readings[0], reset)
    for reading in readings[1:]:
        block.add(reading)
    return block


def used(block: Block, wall: float = 1.0) -> GpuUsage:
    usage = block.usage(DEVICE, wall, only_touched=False)
    assert usage is not None
    return usage


def reading(at: float, *, busy: int = 0, memory: int = GIB, **pools: MemoryPool) -> Reading:
    """Return a reading of one device, and of frameworks' pools on it."""
    work = [Work(7, at, busy)] if busy else []
    told = Reading(at, busy={"GPU-1": busy}, work={"GPU-1": work}, memory={"GPU-1": memory})
    if pools:
        told.memory["cuda:0"] = sum(pool.used for pool in pools.values())
        told.pools = {(name, "cuda:0"): pool for name, pool in pools.items()}
    return told


def pool(used: int = GIB, peak: int | None = GIB, allocations: int | None = None) -> MemoryPool:
    return MemoryPool(used, used, peak, allocations=allocations)


def joules(*counted: float) -> list[Reading]:
    return [replace(reading(at), energy={"GPU-1": energy}) for at, energy in enumerate(counted)]


def peaks(*counted: int | None) -> list[Reading]:
    """Return readings of a framework that holds 2 GiB, and has counted these peaks in GiB."""
    pools = (pool(2 * GIB, None if peak is None else peak * GIB) for peak in counted)
    return [reading(at, JAX=one) for at, one in enumerate(pools)]


def of_jax(peak: int, change: int | Unknown = 0, *, is_exact: bool = False) -> dict[str, object]:
    return {"peak": peak * GIB, "is_exact": is_exact, "peak_by": "JAX", "memory_change": change}


@pytest.mark.parametrize(
    ("readings", "reset", "expected"),
    [
        (joules(5, 9), "", {"energy": 4}),
        (joules(5, 5), "", {"energy": UNKNOWN}),  # it was not brought up to date
        (joules(5, 1), "", {"energy": UNKNOWN}),  # it was set back
        # The peak that a framework counts is exact if it is the block's.
        (peaks(30, 30), "", of_jax(2)),  # it was higher before, and what this block's was nobody knows
        (peaks(30, 31), "", of_jax(31, is_exact=True)),
        (peaks(30, 3), "JAX", of_jax(3, is_exact=True)),
        (peaks(None, None), "", of_jax(2)),
        # One that does not answer at the end has not given memory back; it can have been imported in the block.
        ([*peaks(3, 3), reading(2)], "", of_jax(2, UNKNOWN)),
        ([reading(0), *peaks(3), reading(2)], "", of_jax(2, UNKNOWN)),
    ],
)
def test_what_readings_tell(readings: list[Reading], reset: str, expected: dict[str, object]) -> None:
    block = block_of(*readings, reset=(reset,))
    block.note_peaks(readings[-1])
    usage = used(block)
    assert {name: getattr(usage, name) for name in expected} == expected


@pytest.mark.parametrize(("late", "known"), [(0.1, 4), (0.2, UNKNOWN)])
def test_joules_that_were_first_read_late_are_not_those_of_the_block(late: float, known: object) -> None:
    """A cell that lets no other thread run delays the reading."""
    block = block_of(reading(0), *joules(5, 9))
    block.energy, block.energy_at = {"GPU-1": 5}, block.began + late
    assert used(block).energy == known


@pytest.mark.parametrize(("at", "expected"), [(0.16, 30), (1 / 6, 160 / 3)])
def test_how_busy_a_gpu_was_before_the_block_does_not_count(at: float, expected: float) -> None:
    block = block_of(reading(-0.1), reading(at, busy=100), reading(0.7, busy=20), reading(1.3, busy=40))
    usage = used(block, 1.3)
    assert usage.busy == pytest.approx(expected)
    for wall, knows in ((0.99, False), (1.0, True)):  # of less than the driver's period it is not known
        usage = used(block, wall)
        assert [one is not UNKNOWN for one in (usage.busy, usage.busy_own)] == [knows] * 2


def ten_seconds(*work: Work) -> list[Reading]:
    """Return readings every tenth of a second, of a driver that tells each sample late, and more than once."""
    times = [step / 10 for step in range(101)]
    known = {at: [one for one in work if at - 0.5 < one.at <= at - 0.05] for at in times}
    return [Reading(at, work={"GPU-1": known[at]}, memory={"GPU-1": GIB}) for at in times]


SAMPLED = [step / 6 for step in range(1, 61)]


@pytest.mark.parametrize(
    ("work", "share"),
    [
        ([Work(7, at, 100) for at in SAMPLED if at <= 2], 20),  # load, then rest
        ([Work(7, at, 50) for at in SAMPLED if at > 8], 10),  # rest, then load
        ([Work(pid, at + 0.3, 30) for pid in (7, 8) for at in range(10)], 60),  # this process and its child
        ([Work(7, -0.1, 100)], 0),  # from before the block
        ([], 0),
    ],
)
def test_the_share_of_this_process_is_its_work_over_the_time(work: list[Work], share: float) -> None:
    assert used(block_of(*ten_seconds(*work)), 10.0).busy_own == pytest.approx(share, abs=1)


def test_the_share_of_this_process_is_unknown_if_one_reading_does_not_tell() -> None:
    first, *others = ten_seconds(Work(7, 1.0, 100))
    assert used(block_of(first, *others[:50], Reading(9.9), *others), 10.0).busy_own is UNKNOWN


def test_a_long_block_keeps_few_readings_and_every_peak() -> None:
    readings = (reading(at / 20, busy=at % 100, memory=GIB if at != 1501 else 40 * GIB) for at in range(2000))
    block = block_of(reading(-0.1), *readings)
    assert len(block.readings) < 300
    usage = used(block, 100.0)
    assert usage.peak == 40 * GIB
    assert usage.busy == pytest.approx(49.5, abs=0.1)
    times = [sample.at for sample in usage.samples[1:-1]]  # of the whole block, evenly
    assert max(later - one for one, later in pairwise(times)) < 1


def test_in_a_container_a_process_of_nobody_can_be_this_one() -> None:
    with simulate("1xA100-80GB") as machine:
        machine.gpus[0].run("", UNKNOWN, GIB, work=60)
        gpu_magic.gpus()  # finds the devices
        found = read([machine.gpus[0].uuid], time.perf_counter())
    assert (found.has_driver, found.memory, found.work) == (True, {}, {})


class Pretended:
    """A framework whose pools are given."""

    needs = ()

    def __init__(self, name: str, used: int, *, fails: bool = False) -> None:
        self.name, self.used, self.peak, self.fails = name, used, used, fails
        self.module = f"pretended_{name}"

    def pools(self) -> dict[str, MemoryPool]:
        if self.fails:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return {"pretend:0": pool(self.used, self.peak)}

    def synchronize(self) -> None:
        self.pools()

    def reset_peaks(self) -> bool:
        self.pools()
        self.peak = self.used
        return True


BROKEN, ONE, OTHER = Pretended("broken", 0, fails=True), Pretended("one", 2 * GIB), Pretended("other", GIB)


def test_the_peak_of_frameworks_on_one_device_through_a_block_within(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {one.module: f"{__name__}:{one.name.upper()}" for one in (BROKEN, ONE, OTHER)}
    for name in places:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    outer, inner = gpu_magic.gpu_time("outer"), gpu_magic.gpu_time("inner")
    with installed(tmp_path, places), contextlib.suppress(ZeroDivisionError), outer:
        ONE.peak = 30 * GIB
        with inner:
            ONE.peak, ONE.used = 5 * GIB, 3 * GIB
            OTHER.peak = OTHER.used = 2 * GIB
        _ = 1 / 0
    found = [(usage.code, usage.has_failed) for usage in gpu_magic.history()[-2:]]
    assert found == [("inner", False), ("outer", True)]
    assert inner.usage.wall < outer.usage.wall
    for measured, peak in ((inner, 7 * GIB), (outer, 32 * GIB)):
        (gpu,) = (gpu for gpu in measured.usage.gpus if not gpu.uuid)
        assert (gpu.name, gpu.peak, gpu.is_exact, gpu.memory_change) == ("pretend:0", peak, True, 2 * GIB)


def test_a_block_within_itself_is_refused_and_measured_again_later(machine: Machine) -> None:
    measured, before = gpu_magic.gpu_time("again"), len(gpu_magic.history())
    with measured:
        with pytest.raises(gpu_magic.MeasurementError):
            measured.__enter__()
        assert len(gpu_magic.history()) == before
    outer = measured.usage
    with measured:
        pass
    assert [*gpu_magic.history()][before:] == [outer, measured.usage]


def test_a_gpu_that_the_block_does_not_touch() -> None:
    five, six = (pool(allocations=count) for count in (5, 6))
    still, made = (block_of(reading(0.0, JAX=five), reading(1.0, JAX=last)) for last in (five, six))
    worked = block_of(reading(0.0), reading(0.5, busy=50), reading(1.0))
    touched = [block.usage(DEVICE, 1.0, only_touched=True) is not None for block in (still, made, worked)]
    assert touched == [False, True, True]
    assert used(still)


def jax_is_waited_for():
    import jax
    import jax.numpy as jnp

    long = jax.jit(lambda x: jax.lax.fori_loop(0, 60, lambda _, x: jnp.tanh(x @ x), x))
    x = jnp.ones((800, 800))
    long(x).block_until_ready()
    with gpu_magic.gpu_time():
        found = long(x)
    return found.is_ready()


def tensorflow_is_waited_for():
    import time

    import tensorflow as tf

    tf.config.experimental.set_synchronous_execution(False)
    done = []
    with gpu_magic.gpu_time():
        tf.py_function(lambda: (time.sleep(0.3), done.append(1))[0], [], [])
    return bool(done)


@pytest.mark.parametrize(
    "program", [jax_is_waited_for, pytest.param(tensorflow_is_waited_for, marks=pytest.mark.nightly)]
)
def test_a_block_ends_when_what_it_has_asked_for_is_computed(
    run: Runner, program: Callable[[], bool]
) -> None:
    assert run(program)


def joules_of_both(seconds: float) -> list[float]:
    """Return the joules of a block of some seconds, as zeus says and as we do, and its wall time."""
    from zeus.monitor import ZeusMonitor

    state = Path(os.environ["GPU_MAGIC_TEST_STATE"])
    new = state.with_name("next")
    new.write_text(state.read_text().replace("proc 1 ", f"proc {os.getpid()} "))
    new.replace(state)
    monitor = ZeusMonitor(gpu_indices=[0])
    monitor.begin_window("block", sync_execution=False)
    with gpu_magic.gpu_time() as measured:
        time.sleep(seconds)
    window = monitor.end_window("block", sync_execution=False)
    (gpu,) = measured.usage.gpus
    return [window.gpu_energy[0], gpu.energy, measured.usage.wall]


@pytest.mark.nightly  # the counter's own figures are read in tests/devices, and added up above
def test_joules_are_zeus_joules(native: Path, tmp_path: Path) -> None:
    """Zeus measures the same block over the same driver."""
    card = replace(CARDS[0], milliwatts=391_000, energy=7_000_000, processes=((1, GIB, 30),))
    Driver((card, CARDS[1])).write(tmp_path / "machine")
    zeus, ours, wall = Runner(environment(native, tmp_path / "machine"))(joules_of_both, 0.5)
    # We read soon after the block begins and at its end, zeus before and after us; the counter is up to a step of 0.1 s behind.
    assert 391 * (wall - 0.2) - 0.01 <= ours <= zeus + 0.01


# What is shown

GPU = GpuUsage("cuda:0", "GPU 2", "GPU-1", 80.0, 60.0, False, 12 * GIB, "driver", False, 0, 532.4)
USAGE = CellUsage(3, "train()", 0.0, 2.0, 1.0, 0.5, (GPU,))


def of(usage: CellUsage = USAGE, **gpu: Any) -> CellUsage:
    """Return what a cell has used of a GPU of which some figures differ."""
    return replace(usage, gpus=(replace(GPU, **gpu),))


@pytest.mark.parametrize(
    ("gpu", "says"),
    [
        ({}, "80 % busy, peak about 12.0 GiB (driver), nothing stayed, 532 J (whole GPU)"),
        ({"busy": UNKNOWN, "energy": UNKNOWN}, "utilization unknown, peak about 12.0 GiB (driver), noth"),
        ({"energy": UNKNOWN}, "nothing stayed, energy unknown"),
        ({"is_shared": True}, "80 % busy (60 % by this process), peak"),
        ({"is_shared": True, "busy_own": UNKNOWN}, "80 % busy, peak"),
        ({"peak": UNKNOWN}, "80 % busy, memory unknown, 532 J"),
        ({"is_exact": True, "peak_by": "JAX", "memory_change": -GIB}, "peak 12.0 GiB (JAX), 1.0 GiB freed"),
        ({"energy": 0.236, "memory_change": 6 << 20}, "6.0 MiB stayed, 0.24 J (whole GPU)"),
    ],
)
def test_the_line_of_a_gpu(gpu: dict[str, Any], says: str) -> None:
    text = repr(of(**gpu))
    assert text.startswith("Wall 2 s · CPU 1.5 s (user 1 s, sys 500 ms) · cuda:0 = GPU 2: ")
    assert says in text
    assert text.isprintable()


def test_a_line_for_each_gpu_and_for_none_why() -> None:
    other = replace(GPU, name="pretend:0", gpu="", uuid="", busy=UNKNOWN)
    lines = repr(replace(USAGE, gpus=(GPU, other), simulated="2xA100-80GB")).splitlines()[1:]
    assert [line.partition(": ")[0] for line in lines] == ["cuda:0 = SIMULATED GPU 2", "pretend:0"]
    assert "busy" not in lines[1]  # nobody tells it, and its energy
    assert repr(replace(USAGE, gpus=())).endswith(" · no GPU was used")
    why = replace(USAGE, gpus=(), problem="No driver is here")
    assert repr(why).endswith(" · No driver is here")
    assert "too short to measure utilization" in repr(of(replace(USAGE, wall=0.5), busy=UNKNOWN))
    short = replace(USAGE, gpus=(replace(GPU, energy=UNKNOWN), GpuUsage("cuda:1"))).summary()
    assert short == "[3] 2 s · cuda:0 = GPU 2: 80 % busy, peak about 12.0 GiB · cuda:1: used"


def test_json_has_null_for_unknown_and_metadata_has_no_code() -> None:
    usage = of(energy=UNKNOWN, samples=(Sample(0.0, 1, 2),))
    values = json.loads(json.dumps(usage.to_dict()))
    (gpu,) = values["gpus"]
    assert (gpu["energy"], gpu["busy"], values["code"]) == (None, 80.0, "train()")
    assert "samples" not in gpu
    assert usage.metadata() == {name: value for name, value in usage.to_dict().items() if name != "code"}


def test_a_chart_has_no_point_where_nothing_was_known() -> None:
    def page(*samples: Sample, **more: Any) -> str:
        return of(samples=samples, **more)._repr_html_()

    samples = [Sample(at / 2, at * GIB, 50) for at in range(4)]
    plain = page(*samples)
    assert "points='0.0,47.0 0.0,47.0 90.0,32.0 180.0,17.0 270.0,2.0 270.0,47.0'" in plain
    assert "memory (area), up to <span style='white-space:nowrap'>3.0 GiB</span>, busy" in plain
    assert page(*samples, Sample(1.8, UNKNOWN, UNKNOWN)) == plain
    # The last reading is made when the time is taken.
    assert "360.0,32.0 360.0,47.0'" in page(*samples, Sample(4.0, GIB, 50))
    for few in (samples[:3], [Sample(at, UNKNOWN, UNKNOWN) for at in range(9)]):
        assert "<svg" not in page(*few)


def test_the_history_is_a_table_the_longest_first_and_a_data_frame() -> None:
    assert repr(History()).startswith("No cell was measured")
    history = History([replace(USAGE, cell=None, code="short()", wall=0.1, gpus=()), USAGE])
    heading, *rows, total = repr(history).splitlines()
    assert heading.split() == ["Cell", "Wall", "CPU", "Busy", "Peak", "Energy", "GPUs"]
    assert rows[0].split() == "[3] 2 s 1.5 s 80 % 12.0 GiB 532 J GPU 2 train()".split()
    assert rows[1].endswith("short()")
    assert total == "2 measured, 2.1 s in all, 532 J of whole GPUs (all users)."
    # Joules of some GPUs are not those of the cell.
    two = replace(USAGE, gpus=(GPU, replace(GPU, gpu="GPU 3", busy=40.0, energy=UNKNOWN)))
    row = repr(History([two])).splitlines()[1]
    assert row.split() == "[3] 2 s 1.5 s 60 % 12.0 GiB ? GPU 2 and GPU 3 train()".split()
    frame = history.to_pandas()
    assert list(frame["code"]) == ["short()", "train()"]
    assert frame["peak"][1] == 12 * GIB
    many = repr(History([USAGE] * 50))
    assert (len(many.splitlines()), "showing the 40 longest" in many) == (42, True)


def test_a_simulation_that_is_described_wrongly(
    typed: Typed, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "1xT4")
    cell = typed("%%gpu_time\n%env GPU_MAGIC_SIMULATE=bogus\n42")
    assert cell.value == 42
    assert "The cell was not measured: GPU_MAGIC_SIMULATE: 'bogus' is not a machine" in cell.text
    cell = typed("%%gpu_time\nx = 1")
    assert "The cell did not run." in cell.text
    assert "x" not in shell.user_ns
