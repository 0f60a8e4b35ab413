"""Measures blocks. It reads the driver and the frameworks before, ten times a second, and after."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Self
from weakref import WeakSet

from gpu_magic.devices.model import UNKNOWN, Gpu, Unknown, sum_of
from gpu_magic.errors import GpuMagicError, MeasurementError
from gpu_magic.frameworks import imported
from gpu_magic.measure.record import CellUsage, GpuUsage, History, Sample
from gpu_magic.measure.sampler import Sampler
from gpu_magic.process.drivers import driver, probe
from gpu_magic.process.environment import variables_now
from gpu_magic.process.session import current
from gpu_magic.process.view import Snapshot
from gpu_magic.public import public
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gpu_magic.frameworks.base import MemoryPool

__all__ = ["Block", "GpuTime", "Reading", "gpu_time", "history", "read", "recorder"]

_MOST_KEPT, _MOST_READINGS = 1000, 240
_SECONDS = 1 / 10  # between two readings. The driver updates its counters no more often
# From a block's start to the first reading of the energy counter, which takes 2 to 3 ms (on an H200) and runs
# beside the block. A shorter block has no energy: the counter has hardly moved.
_ENERGY_AFTER = 1 / 50
# The shortest and the longest period that the driver's utilization covers (`nvmlUtilization_t`).
_PERIOD = (1 / 6, 1.0)
_LATE = 1.5  # times the driver's period: how late its next sample can be
_MACHINE_SECONDS = 60.0  # the reader keeps names and UUIDs as long


@public
def gpu_time(label: str = "") -> GpuTime:
    """Measure a block: wall and CPU time, and the utilization, peak memory and energy of each GPU.

    >>> with gpu_magic.gpu_time() as measured:
    ...     train(model)
    >>> measured.usage.gpus[0].peak
    10307921510

    When the block starts, gpu_magic resets the peaks of PyTorch and TensorFlow, as
    torch.cuda.reset_peak_memory_stats() does. So their peaks are exact.

    Parameters
    ----------
    label
        The name of the block in `history()`.

    Returns
    -------
    GpuTime
        A context manager, which you can use again after its block has ended. `usage` is then the record of
        the block, which is also the last one of `history()`.

    Raises
    ------
    MeasurementError
        A block starts while another block of the same context manager runs. That block has not started.

    """
    return GpuTime(label)


@public
def history() -> History:
    """Return the 1000 newest records of measured cells and blocks of this process, the newest last.

    Returns
    -------
    History
        A list of `CellUsage`, with `to_pandas()`. It shows itself as a table.

    """
    return History(recorder().kept)


class GpuTime:
    """A context manager that measures its block, and keeps the record."""

    def __init__(self, label: str = "") -> None:
        self._label = str(label)
        self._usage: CellUsage | None = None
        self._is_running = False

    @property
    @public
    def usage(self) -> CellUsage:
        """The record of the last block. `usage` raises MeasurementError until the block has ended."""
        if self._usage is None:
            raise MeasurementError("The figures are known when the block has ended.")
        return self._usage

    @public
    def __enter__(self) -> Self:
        was_running, self._is_running = self._is_running, True
        if was_running:
            raise MeasurementError(
                "This gpu_time measures another block. Use a new one: gpu_magic.gpu_time()"
            )
        try:
            self._block = recorder().begin(reset=True)
        except BaseException:  # Python does not call __exit__ then
            self._is_running = False
            raise
        return self

    @public
    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._usage = recorder().end(self._block, self._label, has_failed=kind is not None)
            recorder().kept.append(self._usage)
        finally:
            self._is_running = False


class Work(NamedTuple):
    """A sample of how much a process has kept a GPU busy since its last sample."""

    pid: int
    at: float  # seconds of time.perf_counter()
    percent: int


@dataclass(slots=True)
class Reading:
    """The figures at one moment, by a device's UUID or its name in frameworks. No entry: unknown."""

    at: float  # seconds of time.perf_counter()
    has_driver: bool = False  # a driver has answered
    energy: dict[str, float] = field(default_factory=dict)  # joules so far
    busy: dict[str, int] = field(default_factory=dict)  # percent
    work: dict[str, list[Work]] = field(default_factory=dict)  # of this process
    others: dict[str, float] = field(default_factory=dict)  # when other processes last worked
    memory: dict[str, int] = field(default_factory=dict)  # bytes of this process
    pools: dict[tuple[str, str], MemoryPool] = field(default_factory=dict)  # by framework, and name

    def add_memory(self, uuid: str, sizes: Mapping[int, int | Unknown]) -> None:
        """Add this process's memory on a device, given the bytes of each process there."""
        reader = current().reader
        total = sum_of((reader.look_up(pid).is_this_process, size) for pid, size in sizes.items())
        if total is not UNKNOWN:
            self.memory[uuid] = total

    def add_work(self, uuid: str, work: Mapping[int, Sequence[tuple[int, int]]], clock: float) -> None:
        """Add the work on a device, given the driver's samples of each process. `clock` is the time now."""
        processes = {pid: current().reader.look_up(pid) for pid in work}
        samples = [
            Work(pid, self.at - (clock - at / 1e6), percent)
            for pid, found in work.items()
            for at, percent in found
            if at / 1e6 <= clock  # not from before the clock was set back
        ]
        if all(process.is_this_process is not UNKNOWN for process in processes.values()):
            self.work[uuid] = [one for one in samples if processes[one.pid].is_this_process is True]
        for one in samples:
            who = processes[one.pid]
            if who.is_this_process is False and who.owner is not UNKNOWN and not who.is_mps_server:
                self.others[uuid] = max(one.at, self.others.get(uuid, one.at))


def read(uuids: Collection[str], since: float | None, *, with_energy: bool = True) -> Reading:
    """Read the driver and the frameworks now.

    `since` is the time of the last reading. Without it, the driver is asked only for energy and memory.
    """
    reading, clock = Reading(time.perf_counter()), time.time()
    # The driver's clock may have been set since. It can also publish a sample late.
    after = None if since is None else int((clock - (reading.at - since) - _PERIOD[1]) * 1e6)
    for uuid, counters in current().reader.counters(uuids, after, with_energy=with_energy).items():
        reading.has_driver = True
        if counters.energy is not UNKNOWN:
            reading.energy[uuid] = counters.energy
        if counters.utilization is not UNKNOWN:
            reading.busy[uuid] = counters.utilization
        if counters.memory is not UNKNOWN:
            reading.add_memory(uuid, counters.memory)
        if counters.work is not UNKNOWN:
            reading.add_work(uuid, counters.work, clock)
    for framework in imported():
        with contextlib.suppress(Exception):  # after a CUDA error, each call can raise it again
            for device, pool in framework.pools().items():
                name = str(device)
                reading.pools[framework.name, name] = pool
                reading.memory[name] = reading.memory.get(name, 0) + pool.used
    return reading


class Block:
    """A measured block: some of its readings, with the first and the last, and totals of all readings."""

    def __init__(self, devices: Mapping[str, GpuUsage], first: Reading) -> None:
        self.devices, self.readings = devices, [first]
        self._added, self._stride = 0, 1  # a long block keeps one of `_stride` readings
        self._most = dict(first.memory)
        self.energy, self.energy_at = first.energy or None, first.at  # the counters as first read, and when
        self._busy: dict[str, tuple[int, int]] = {}  # sums and counts
        self._work: dict[str, float] = {}  # seconds in which this process kept each device busy
        self._work_unknown: set[str] = set()  # devices for which a reading does not tell
        # The last sample of each process on each device, and how many seconds it covers.
        self._sampled: dict[tuple[str, int], tuple[Work, float]] = {}
        self._shared: set[str] = set()
        # The frameworks' peaks before the block, and the higher ones in the block.
        self._before = {key: pool.peak or 0 for key, pool in first.pools.items()}
        self._peaks: dict[tuple[str, str], int] = {}
        self._pools = dict.fromkeys(first.pools)  # all that were seen, because one may not answer at the end
        self.started, self.cpu, self.began = time.time(), _cpu_time(), time.perf_counter()

    def add(self, reading: Reading) -> None:
        """Add a reading. The latest reading is the last of `readings`."""
        if self._added % self._stride:
            self.readings[-1] = reading
        else:
            self.readings.append(reading)
        self._added += 1
        if len(self.readings) > _MOST_READINGS:
            del self.readings[1::2]
            self._stride *= 2
        self._pools |= dict.fromkeys(reading.pools)
        for device, size in reading.memory.items():
            self._most[device] = max(size, self._most.get(device, 0))
        self._work_unknown |= self.devices.keys() - reading.work.keys()
        for uuid, samples in reading.work.items():
            self._add_work(uuid, samples)
        self._shared |= {uuid for uuid, at in reading.others.items() if at > self.began}
        if reading.at - self.began >= _PERIOD[0]:  # an earlier figure also covers time before the block
            for uuid, percent in reading.busy.items():
                total, count = self._busy.get(uuid, (0, 0))
                self._busy[uuid] = total + percent, count + 1

    def _add_work(self, uuid: str, samples: Sequence[Work]) -> None:
        """Add up work. A sample covers the time since the last one of its process.

        The driver gives no sample of a process that rests. So after a pause, a sample covers as much time as
        the last one.
        """
        for sample in sorted(samples, key=lambda sample: sample.at):
            last, covered = self._sampled.get((uuid, sample.pid), (None, _PERIOD[0]))
            seconds = sample.at - (self.began if last is None else last.at)
            if seconds > 0:  # not yet added, and not from before the block
                covered = seconds if seconds <= _PERIOD[1] * _LATE else covered
                self._sampled[uuid, sample.pid] = sample, covered
                self._work[uuid] = self._work.get(uuid, 0.0) + sample.percent / 100 * covered

    def _own_share(self, uuid: str) -> float:
        """Return how much this process has kept a device busy until the last reading, in percent."""
        seconds, end = self._work.get(uuid, 0.0), self.readings[-1].at
        for (of, _), (sample, covered) in self._sampled.items():
            if of == uuid and end - sample.at <= covered * _LATE:  # the driver's next sample comes later
                seconds += sample.percent / 100 * (end - sample.at)
        return seconds / (end - self.began) * 100

    def note_peaks(self, reading: Reading, reset: Collection[str] = ()) -> None:
        """Keep the frameworks' peaks in the block so far. The frameworks in `reset` have reset theirs."""
        for key, pool in reading.pools.items():
            if pool.peak is not None and pool.peak > self._before.get(key, 0):
                self._peaks[key] = max(pool.peak, self._peaks.get(key, 0))
        self._before = {key: 0 if key[0] in reset else peak for key, peak in self._before.items()}

    def usage(self, device: GpuUsage, wall: float, *, only_touched: bool) -> GpuUsage | None:
        """Return the use of a device by the block, after its end. None if the block has not used it."""
        uuid, name, first, last = device.uuid, device.name, self.readings[0], self.readings[-1]
        # Memory is the frameworks' count, or the driver's if they count none.
        pools = [key for key in self._pools if key[1] == name]
        counted = [self._peaks.get(key) for key in pools]
        peak: int | Unknown = max(self._most.get(name, 0), sum(filter(None, counted)))
        default: int | Unknown = 0
        key, by, is_exact = name, listed(pool for pool, _ in pools), None not in counted
        if not peak:
            peak, default = self._most.get(uuid, UNKNOWN), UNKNOWN
            key, by, is_exact = uuid, "driver", False
        before, after = first.memory.get(key, default), last.memory.get(key, UNKNOWN)
        change = UNKNOWN if before is UNKNOWN or after is UNKNOWN else after - before
        least = before if only_touched and before is not UNKNOWN else 0
        has_memory = (peak is not UNKNOWN and peak > least) or change not in (0, UNKNOWN)
        made = [sum(one.pools[p].allocations or 0 for p in pools if p in one.pools) for one in (first, last)]
        if not (has_memory or uuid in self._work or made[1] > made[0]):
            return None
        busy: float | Unknown = UNKNOWN
        if wall >= _PERIOD[1] and uuid in self._busy:
            busy = self._busy[uuid][0] / self._busy[uuid][1]
        is_known = wall >= _PERIOD[1] and uuid not in self._work_unknown
        own: float | Unknown = self._own_share(uuid) if is_known else UNKNOWN
        # A first reading that came late, as in a cell that lets no other thread run, misses too much.
        is_whole = self.energy_at - self.began <= max(_SECONDS, wall / 20)
        # A counter that has not increased was not updated, or was reset.
        then, now = (energy.get(uuid, UNKNOWN) for energy in (self.energy or {}, last.energy))
        energy: float | Unknown = UNKNOWN
        if is_whole and then is not UNKNOWN and now is not UNKNOWN and now > then:
            energy = now - then
        return replace(
            device,
            busy=busy,
            busy_own=own,
            is_shared=uuid in self._shared,
            peak=peak,
            peak_by="" if peak is UNKNOWN else by,
            is_exact=is_exact,
            memory_change=change,
            energy=energy,
            samples=tuple(
                Sample(
                    max(0.0, one.at - self.began), one.memory.get(key, default), one.busy.get(uuid, UNKNOWN)
                )
                for one in self.readings
            ),
        )


class Recorder:
    """Measures blocks, and keeps the latest records."""

    def __init__(self) -> None:
        self.kept: deque[CellUsage] = deque(maxlen=_MOST_KEPT)
        # A cache key, the time of reading, the devices as records without figures, and the snapshot.
        self._machine: tuple[object, float, dict[str, GpuUsage], Snapshot] | None = None
        self._lock = threading.Lock()  # guards the blocks that run, and their readings
        # Weak, because after an interrupt before `begin` returns, nobody ends the block.
        self._running: WeakSet[Block] = WeakSet()
        self._sampler = Sampler(self._tick, _SECONDS, "usage")

    def begin(self, *, reset: bool) -> Block:
        """Start a block. With `reset`, frameworks reset their peaks, so that the block's peak is exact."""
        devices, _ = self._find_machine()
        _synchronize()
        first = read(devices, None, with_energy=False)
        if devices and not first.has_driver:  # `%unload_ext` has closed the driver's library
            self._machine = None
            devices, _ = self._find_machine()
            first = read(devices, None, with_energy=False)
        block = Block(devices, first)
        with self._lock:
            if reset:
                names = set()
                for framework in imported():
                    with contextlib.suppress(Exception):  # as in `read`
                        names |= {framework.name} if framework.reset_peaks() else set()
                for one in (*self._running, block):
                    one.note_peaks(first, names)
            self._running.add(block)
        self._sampler.start(_ENERGY_AFTER)
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
        """End a block, and return its record. `only_touched` omits GPUs that only hold memory."""
        try:
            _synchronize()
        finally:  # also after an interrupt of the wait
            with self._lock:
                self._running.discard(block)
        wall, cpu = time.perf_counter() - block.began, _cpu_time()
        # The driver's utilization covers a longer time than a short block.
        since = block.readings[-1].at if wall >= _PERIOD[0] else None
        last = read(block.devices, since, with_energy=block.energy is not None)
        block.add(last)
        block.note_peaks(last)
        # Use the present names, because the block can have chosen GPUs.
        (now, snapshot), before = self._find_machine(), block.devices
        devices = [one for uuid, one in now.items() if uuid in before]
        devices += [replace(one, name="") for uuid, one in before.items() if uuid not in now]
        # Accelerators that the driver does not report
        devices += map(GpuUsage, sorted({name for _, name in last.pools} - {one.name for one in devices}))
        gpus = (block.usage(device, wall, only_touched=only_touched) for device in devices)
        return CellUsage(
            cell=cell,
            code=code,
            started=block.started,
            wall=wall,
            user=cpu[0] - block.cpu[0],
            system=cpu[1] - block.cpu[1],
            gpus=tuple(gpu for gpu in gpus if gpu is not None),
            problem=snapshot.problem.what if snapshot.problem else "",
            has_failed=has_failed,
            simulated=snapshot.simulated,
        )

    def _find_machine(self) -> tuple[dict[str, GpuUsage], Snapshot]:
        """Return the devices that this process sees. They are read again after a change or a minute."""
        key = current(), variables_now(), driver().is_started(), os.environ.get("GPU_MAGIC_SIMULATE")
        now = time.monotonic()
        if self._machine is None or self._machine[0] != key or now - self._machine[1] > _MACHINE_SECONDS:
            snapshot = Snapshot.take(current(), probe())
            # Leave out split GPUs, because work runs only on their instances.
            found = {
                one.identity: GpuUsage("", one.label, one.identity)
                for one in snapshot.devices
                if not (isinstance(one, Gpu) and one.is_split)
            }
            if snapshot.visible is not UNKNOWN:
                found = {
                    one.identity: replace(found[one.identity], name=f"cuda:{ordinal}")
                    for ordinal, one in enumerate(snapshot.visible)
                    if not isinstance(one, str) and one.identity in found
                }
            self._machine = key, now, found, snapshot
        return self._machine[2:]

    def _tick(self) -> bool:
        """Read the machine for the running blocks. Return whether there are any."""
        with self._lock:
            running = list(self._running)
        if running:
            with contextlib.suppress(GpuMagicError):  # the simulation's description changed
                uuids = {uuid for block in running for uuid in block.devices}
                # Energy is slow to read, and needed only at a block's start and end.
                with_energy = any(block.energy is None for block in running)
                last = min(block.readings[-1].at for block in running)
                reading = read(uuids, last, with_energy=with_energy)
                with self._lock:
                    for block in self._running.intersection(running):
                        block.add(reading)
                        if block.energy is None:
                            block.energy, block.energy_at = reading.energy, reading.at
        return bool(running)


def recorder() -> Recorder:
    """Return this process's recorder. A forked process has its own."""
    return _recorder_of(os.getpid())


@lru_cache(maxsize=1)
def _recorder_of(_pid: int) -> Recorder:
    return Recorder()


def _synchronize() -> None:
    """Wait for the GPUs, so that a block includes all of its own GPU work and none from before."""
    for framework in imported():
        with contextlib.suppress(Exception):  # as in `read`
            framework.synchronize()


def _cpu_time() -> tuple[float, float]:
    """Return the CPU seconds of all threads, in user code and in the system."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime, used.ru_stime
