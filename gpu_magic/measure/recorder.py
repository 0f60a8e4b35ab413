"""Measures blocks: reads the driver and the frameworks before, twenty times a second, and after."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import sys
import threading
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Self
from weakref import WeakSet

from gpu_magic.devices.model import Gpu
from gpu_magic.devices.processes import UNKNOWN_PROCESS
from gpu_magic.devices.status import GpuProcess
from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.errors import GpuMagicError, MeasurementError
from gpu_magic.frameworks import imported
from gpu_magic.measure.record import CellUsage, GpuUsage, History, OtherProcess, Sample
from gpu_magic.process import driver
from gpu_magic.process.environment import variables_now
from gpu_magic.process.sampler import Sampler
from gpu_magic.process.session import current
from gpu_magic.process.state import probe
from gpu_magic.process.view import look_up_process, read_counters, take_snapshot
from gpu_magic.public import public
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from types import TracebackType

    from gpu_magic.devices.counters import Counters
    from gpu_magic.frameworks.answers import MemoryPool

__all__ = ["Block", "GpuTime", "Recorder", "gpu_time", "history", "read", "recorder"]

_MOST_KEPT, _MOST_READINGS, _MOST_OTHERS = 1000, 240, 8
_MACHINE_SECONDS = 60.0  # the reader keeps names and UUIDs for as long
_RESTS = 100  # readings: so long the thread waits for the next cell, as to start one takes 0.1 ms


@public
def gpu_time(label: str = "") -> GpuTime:
    """Measure a block: wall and CPU time, and how busy each GPU was, its peak of memory, and its energy.

    >>> with gpu_magic.gpu_time() as measured:
    ...     train(model)
    >>> measured.usage.gpus[0].peak
    10307921510

    The frameworks reset their own peaks when the block begins, as torch.cuda.reset_peak_memory_stats() does,
    so that the peak is exact.

    Parameters
    ----------
    label
        Its name in `history()`.

    Returns
    -------
    GpuTime
        A context manager, which can be used again. After the block `usage` is what it took, which is also the
        latest of `history()`.

    """
    return GpuTime(label)


@public
def history() -> History:
    """Return what cells and blocks of this process took, the latest last: a thousand at most.

    Returns
    -------
    History
        A list of `CellUsage`, with `to_pandas()`. It shows itself as a table.

    """
    return History(recorder().kept)


class GpuTime:
    """A context manager that measures its block, and keeps what it took.

    Parameters
    ----------
    label
        The name of the block.

    """

    def __init__(self, label: str = "") -> None:
        self._label = str(label)
        self._running: list[Block] = []
        self._usage: CellUsage | None = None

    @property
    @public
    def usage(self) -> CellUsage:
        """What the block took, the last time.

        Raises
        ------
        MeasurementError
            It has not ended.

        """
        if self._usage is None:
            raise MeasurementError("What the block took is known when it has ended: with … as measured.")
        return self._usage

    @public
    def __enter__(self) -> Self:
        self._running.append(recorder().begin(reset=True))
        return self

    @public
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        block = self._running.pop()
        self._usage = recorder().end(block, self._label, has_failed=kind is not None)
        recorder().keep(self._usage)


class _Device(NamedTuple):
    """What the driver says of a device: its joules so far, percent of it, and bytes and percent of ours."""

    energy: float | Unknown = UNKNOWN
    utilization: float | Unknown = UNKNOWN
    memory: int | Unknown = UNKNOWN
    work: float | Unknown = UNKNOWN
    others: tuple[OtherProcess, ...] = ()


class _Reading(NamedTuple):
    """What was read at one moment, or at some that are kept as one: devices by UUID, frameworks' pools."""

    at: float
    devices: Mapping[str, _Device]
    used: Mapping[str, int]  # bytes of all frameworks' arrays, by `cuda:i`
    pools: Mapping[str, Mapping[str, MemoryPool]]
    weight: int = 1

    def merged(self, later: _Reading) -> _Reading:
        """Return two readings as one: the mean of each rate, and the highest memory."""
        devices, weights = {}, (self.weight, later.weight)
        for uuid, two in later.devices.items():
            one = self.devices.get(uuid, two)
            devices[uuid] = _Device(
                two.energy,
                _mean((one.utilization, two.utilization), weights),
                max((size for size in (one.memory, two.memory) if size is not UNKNOWN), default=UNKNOWN),
                _mean((one.work, two.work), weights),
                tuple(dict.fromkeys(one.others + two.others))[:_MOST_OTHERS],
            )
        used = {name: max(size, self.used.get(name, 0)) for name, size in later.used.items()}
        devices, used = {**self.devices, **devices}, {**self.used, **used}
        return _Reading(later.at, devices, used, later.pools, sum(weights))


class Block:
    """A block that is measured: what was read of it, and the peaks that frameworks have counted within it."""

    def __init__(self, machine: _Machine, first: _Reading, reset: set[str]) -> None:
        self.machine, self.readings, self.reset = machine, [first], reset  # the frameworks that reset peaks
        self.peaks: dict[tuple[str, str], int] = {}  # by framework, and `cuda:i`
        self._most = 1  # readings that are kept as one
        self.started, self.cpu, self.began = time.time(), _cpu_time(), time.perf_counter()

    @property
    def since(self) -> float:
        """When it began, by the clock of now, which can have been set."""
        return time.time() - (time.perf_counter() - self.began)

    def add(self, reading: _Reading) -> None:
        """Keep a reading. Of a long block some are kept as one."""
        if len(self.readings) > 1 and self.readings[-1].weight < self._most:
            self.readings[-1] = self.readings[-1].merged(reading)
        else:
            self.readings.append(reading)
        if len(self.readings) > _MOST_READINGS:
            pairs = zip(self.readings[1::2], self.readings[2::2], strict=True)
            self.readings[1:] = [one.merged(later) for one, later in pairs]
            self._most *= 2

    def note_peaks(self, reading: _Reading) -> None:
        """Keep the frameworks' peaks, at the end or because they are about to be reset."""
        for framework, pools in reading.pools.items():
            before = {} if framework in self.reset else self.readings[0].pools.get(framework, {})
            for name, pool in pools.items():
                known = before[name].peak if name in before else 0
                if pool.peak is not None and known is not None and pool.peak > known:
                    self.peaks[framework, name] = max(pool.peak, self.peaks.get((framework, name), 0))


class _Machine(NamedTuple):
    """The devices that this process sees, in the order of frameworks, as records without figures."""

    devices: tuple[GpuUsage, ...]
    problem: str
    driver: str
    simulated: str

    @property
    def uuids(self) -> list[str]:
        return [device.uuid for device in self.devices]


class Recorder:
    """Measures blocks, and keeps the latest records.

    Parameters
    ----------
    seconds
        The time between two readings.
    period
        The shortest and the longest time that the driver's utilization covers before it is read: a sixth of a
        second to a second (`nvmlUtilization_t`).

    """

    def __init__(self, seconds: float = 1 / 20, period: tuple[float, float] = (1 / 6, 1.0)) -> None:
        self.kept: deque[CellUsage] = deque(maxlen=_MOST_KEPT)
        self.cells = 0  # that were kept, ever
        self.pid, self.period = os.getpid(), period
        self._machine: tuple[object, float, _Machine] | None = None  # what decides it, and when it was read
        self._lock = threading.Lock()  # guards the blocks that run, and their readings
        # Weak: if an interrupt comes before the caller has its block, nobody ends it.
        self._running: WeakSet[Block] = WeakSet()
        self._sampler = Sampler(self._tick, seconds, "usage")
        self._rests = 0  # how often nothing was to be read

    def begin(self, *, reset: bool) -> Block:
        """Begin to measure; `reset` has frameworks reset their peaks, so that the block's peak is exact."""
        machine = self._find_machine()
        first = read(machine.uuids, None)
        if machine.devices and not first.devices:  # an unload has closed the driver's library since
            self._machine = None
            machine = self._find_machine()
            first = read(machine.uuids, None)
        names: set[str] = set()
        with self._lock:
            if reset:
                for block in self._running:
                    block.note_peaks(first)
                for framework in imported():
                    with contextlib.suppress(Exception):  # as in `read`
                        names |= {framework.name} if framework.reset_peaks() else set()
                for block in self._running:
                    block.reset |= names
            block = Block(machine, first, names)
            self._running.add(block)
        self._sampler.start()
        return block

    def end(
        self,
        block: Block,
        code: str,
        cell: int | None = None,
        *,
        has_failed: bool,
        only_touched: bool = False,
    ) -> CellUsage:
        """End a block, and return what it took; `only_touched` leaves out GPUs where it only had memory."""
        wall, cpu = time.perf_counter() - block.began, _cpu_time()
        with self._lock:
            self._running.discard(block)
        block.readings.append(read(block.machine.uuids, block.since))
        block.note_peaks(block.readings[-1])
        machine = self._find_machine()  # the block can have chosen GPUs
        versions = {"driver": machine.driver, "Python": platform.python_version()}
        for name, module in [("gpu_magic", "gpu_magic"), *((one.name, one.module) for one in imported())]:
            versions[name] = str(getattr(sys.modules.get(module), "__version__", ""))
        gpus = (
            _analyze(block, device, wall, self.period, only_touched=only_touched)
            for device in _measured(block, machine)
        )
        return CellUsage(
            cell=cell,
            code=code,
            started=block.started,
            wall=wall,
            user=cpu[0] - block.cpu[0],
            system=cpu[1] - block.cpu[1],
            gpus=tuple(gpu for gpu in gpus if gpu is not None),
            problem=machine.problem,
            has_failed=has_failed,
            versions={name: version for name, version in versions.items() if version},
            simulated=machine.simulated,
        )

    def keep(self, usage: CellUsage) -> None:
        """Keep a record, for `gpu_magic.history()`."""
        self.kept.append(usage)
        self.cells += usage.cell is not None

    def _find_machine(self) -> _Machine:
        """Return the devices, read once while nothing changes that decides which they are."""
        key = current(), variables_now(), driver().is_initialized(), os.environ.get("GPU_MAGIC_SIMULATE")
        now = time.monotonic()
        if self._machine is None or self._machine[0] != key or now - self._machine[1] > _MACHINE_SECONDS:
            self._machine = key, now, _read_machine()
        return self._machine[2]

    def _tick(self) -> bool:
        """Read the machine for the blocks that run; return whether there are any."""
        with self._lock:
            running = list(self._running)
        self._rests = 0 if running else self._rests + 1
        if not running or os.getpid() != self.pid:  # a forked child has a recorder of its own
            return self._rests < _RESTS and os.getpid() == self.pid
        uuids = {uuid for block in running for uuid in block.machine.uuids}
        with contextlib.suppress(GpuMagicError):  # the simulated machine's description was changed
            reading = read(uuids, min(block.since for block in running))
            with self._lock:
                for block in running:
                    if block in self._running:
                        block.add(reading)
        return True


_recorder: Recorder | None = None


def recorder() -> Recorder:
    """Return this process's recorder; the first call makes it, and the first one in a forked process."""
    global _recorder  # noqa: PLW0603
    if _recorder is None or _recorder.pid != os.getpid():
        _recorder = Recorder()
    return _recorder


def _read_machine() -> _Machine:
    snapshot = take_snapshot(current(), probe())
    names = snapshot.kernel.names
    found = {}
    for device in snapshot.devices:
        if not (isinstance(device, Gpu) and device.is_split):  # nothing runs on it but on its instances
            uuid, model = str(device.uuid), "" if device.name is UNKNOWN else str(device.name)
            found[uuid] = GpuUsage("" if names is UNKNOWN else names.get(uuid, ""), device.label, model, uuid)
    seen = found if names is UNKNOWN else [uuid for uuid in names if uuid in found]
    version = "" if snapshot.driver_version is UNKNOWN else str(snapshot.driver_version)
    return _Machine(tuple(found[uuid] for uuid in seen), snapshot.problem, version, snapshot.simulated)


def read(uuids: Collection[str], since: float | None) -> _Reading:
    """Read the driver and the frameworks now; without `since`, the driver's energy and memory alone."""
    counters = read_counters(current(), uuids, since) if uuids else {}
    pools: dict[str, dict[str, MemoryPool]] = {}
    used: dict[str, int] = {}
    for framework in imported():
        with contextlib.suppress(Exception):  # after an error of CUDA's, each call can raise it again
            found = {str(device): pool for device, pool in framework.pools().items()}
            pools[framework.name] = found
            used |= {name: used.get(name, 0) + pool.used for name, pool in found.items()}
    devices = {uuid: _read_device(one, has_begun=since is not None) for uuid, one in counters.items()}
    return _Reading(time.perf_counter(), devices, used, pools)


def _read_device(counters: Counters, *, has_begun: bool) -> _Device:
    memory = {} if counters.memory is UNKNOWN else counters.memory
    work = {} if counters.work is UNKNOWN else counters.work
    processes = {pid: look_up_process(current(), pid) for pid in {**memory, **work}}

    def own(figures: Mapping[int, int | Unknown] | Unknown) -> int | Unknown:
        """Return the sum of this process's. In a container numbers are not ours, and any can be."""
        if figures is UNKNOWN:
            return UNKNOWN
        ours = [size for pid, size in figures.items() if processes[pid].mine]
        known = [size for size in ours if size is not UNKNOWN]
        has_strangers = not ours and any(processes[pid] is UNKNOWN_PROCESS for pid in figures)
        return UNKNOWN if has_strangers or len(known) < len(ours) else sum(known)

    others = []
    # If the driver does not count work, who has memory can be at work. Before a block nobody is asked.
    for pid in processes if counters.work is UNKNOWN and has_begun else work:
        one = processes[pid]
        is_server = GpuProcess(pid, one.name, one.owner, UNKNOWN).is_mps_server
        if not one.mine and one is not UNKNOWN_PROCESS and not is_server:
            name = "a process" if one.name is UNKNOWN else str(one.name)
            others.append(OtherProcess(pid, name, "" if one.owner is UNKNOWN else str(one.owner)))
    energy, utilization = counters.energy, counters.utilization
    return _Device(energy, utilization, own(counters.memory), own(counters.work), tuple(others))


def _measured(block: Block, machine: _Machine) -> Iterator[GpuUsage]:
    """Yield the devices that were measured, by their names of now, and frameworks' other devices."""
    before, now = block.machine, machine.uuids
    yield from (device for device in machine.devices if device.uuid in before.uuids)
    yield from (replace(device, name="") for device in before.devices if device.uuid not in now)
    # Accelerators that no driver here tells of.
    named = {device.name for device in (*machine.devices, *before.devices)}
    yield from (GpuUsage(name) for name in sorted(block.readings[-1].used.keys() - named))


def _analyze(
    block: Block, device: GpuUsage, wall: float, period: tuple[float, float], *, only_touched: bool
) -> GpuUsage | None:
    """Return what a block that has ended took of a device; None if it has used nothing of it."""
    readings, name = block.readings, device.name
    times = [reading.at - block.began for reading in readings]
    told = [one.devices.get(device.uuid, _Device()) for one in readings]
    # Memory is what frameworks count, or what the driver does if they count none.
    frameworks = list(dict.fromkeys(key for one in readings for key in one.pools if name in one.pools[key]))
    used = [reading.used.get(name, 0) for reading in readings]
    counted = [block.peaks.get((framework, name)) for framework in frameworks]
    memory: Sequence[int | Unknown] = used
    peak: int | Unknown = max(*used, sum(filter(None, counted)))
    source, is_exact = listed(frameworks), None not in counted
    if not peak:
        memory, is_exact = [one.memory for one in told], False
        peak = max((size for size in memory if size is not UNKNOWN), default=UNKNOWN)
        source = "" if peak is UNKNOWN else "driver"
    before, after = memory[0], memory[-1]
    stayed = UNKNOWN if before is UNKNOWN or after is UNKNOWN else after - before
    least = before if only_touched and before is not UNKNOWN else 0
    made = [
        sum(pools[name].allocations or 0 for pools in reading.pools.values() if name in pools)
        for reading in (readings[0], readings[-1])
    ]
    has_worked = any(one.work is not UNKNOWN and one.work for one in told)
    has_memory = (peak is not UNKNOWN and peak > least) or stayed not in (0, UNKNOWN)
    if not (has_memory or has_worked or made[1] > made[0]):
        return None
    weights = [one.weight if at >= period[0] else 0 for one, at in zip(readings, times, strict=True)]
    is_long = wall >= period[1]
    busy = _mean([one.utilization for one in told], weights) if is_long else UNKNOWN
    # A counter that has not moved was not brought up to date; or it was set back.
    first, last = told[0].energy, told[-1].energy
    has_moved = first is not UNKNOWN and last is not UNKNOWN and last > first
    return replace(
        device,
        busy=busy,
        busy_own=_mean([one.work for one in told], weights) if is_long else UNKNOWN,
        idle=UNKNOWN if busy is UNKNOWN else wall * (1 - busy / 100),
        peak=peak,
        peak_by=source,
        is_exact=is_exact,
        stayed=stayed,
        energy=last - first if has_moved else UNKNOWN,  # type: ignore[operator] # both are known
        others=tuple(dict.fromkeys(other for one in told for other in one.others))[:_MOST_OTHERS],
        samples=tuple(
            Sample(max(0.0, at), size, one.utilization)
            for at, size, one in zip(times, memory, told, strict=True)
        ),
    )


def _mean(figures: Sequence[float | Unknown], weights: Sequence[int]) -> float | Unknown:
    known = [(one, weight) for one, weight in zip(figures, weights, strict=True) if one is not UNKNOWN]
    total = sum(weight for _, weight in known)
    return sum(one * weight for one, weight in known) / total if total else UNKNOWN


def _cpu_time() -> tuple[float, float]:
    """Return the seconds of CPU time of all threads, in the process's own code and in the system's."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime, used.ru_stime
