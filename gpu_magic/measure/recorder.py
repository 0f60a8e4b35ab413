"""Measures blocks. It reads the driver and the frameworks before, ten times a second, and after."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import sys
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

from gpu_magic.devices.model import UNKNOWN, Gpu, GpuProcess, Unknown, sum_of
from gpu_magic.errors import GpuMagicError, MeasurementError
from gpu_magic.frameworks import imported
from gpu_magic.measure.record import CellUsage, GpuUsage, History, OtherProcess, Sample
from gpu_magic.process.drivers import driver, probe
from gpu_magic.process.environment import variables_now
from gpu_magic.process.sampler import Sampler
from gpu_magic.process.session import current
from gpu_magic.process.view import Snapshot
from gpu_magic.public import public
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpu_magic.frameworks.base import MemoryPool

__all__ = ["Block", "GpuTime", "Reading", "gpu_time", "history", "read", "recorder"]

_MOST_KEPT, _MOST_READINGS, _MOST_OTHERS = 1000, 240, 8
SECONDS = 1 / 10  # between two readings. The driver updates its counters no more often
# The shortest and the longest period that the driver's utilization covers (`nvmlUtilization_t`).
PERIOD = (1 / 6, 1.0)
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


@dataclass(slots=True)
class Reading:
    """The figures at one moment, by a device's UUID or its name in frameworks. No entry: unknown."""

    at: float
    energy: dict[str, float] = field(default_factory=dict)  # joules so far
    busy: dict[str, int] = field(default_factory=dict)  # percent
    own: dict[str, int] = field(default_factory=dict)  # percent, by this process
    memory: dict[str, int] = field(default_factory=dict)  # bytes of this process
    others: dict[str, list[OtherProcess]] = field(default_factory=dict)
    pools: dict[tuple[str, str], MemoryPool] = field(default_factory=dict)  # by framework, and name


def read(uuids: Collection[str], since: float | None, *, with_energy: bool = True) -> Reading:
    """Read the driver and the frameworks now. Without `since`, read only the driver's energy and memory."""
    reading, reader = Reading(time.perf_counter()), current().reader
    after = None if since is None else int(since * 1e6)
    for uuid, one in reader.counters(uuids, after, with_energy=with_energy).items():
        memory, work = ({} if told is UNKNOWN else told for told in (one.memory, one.work))
        processes = {pid: reader.look_up(pid) for pid in {**memory, **work}}
        for known, told in ((reading.energy, one.energy), (reading.busy, one.utilization)):
            if told is not UNKNOWN:
                known[uuid] = told  # type: ignore[assignment] # utilization is an int
        for known, figures in ((reading.memory, one.memory), (reading.own, one.work)):
            if (total := _own(figures, processes)) is not UNKNOWN:
                known[uuid] = total
        # If the driver does not count work, each process with memory may work. Skip that before a block.
        others = reading.others[uuid] = []
        for pid in memory if one.work is UNKNOWN and since is not None else work:
            who = processes[pid]
            name, owner = ("" if text is UNKNOWN else str(text) for text in (who.name, who.owner))
            if who.is_this_process is False and who.owner is not UNKNOWN and not who.is_mps_server:
                others.append(OtherProcess(pid, name or "a process", owner))
    for framework in imported():
        with contextlib.suppress(Exception):  # after a CUDA error, each call can raise it again
            for device, pool in framework.pools().items():
                name = str(device)
                reading.pools[framework.name, name] = pool
                reading.memory[name] = reading.memory.get(name, 0) + pool.used
    return reading


def _own(
    figures: Mapping[int, int | Unknown] | Unknown, processes: Mapping[int, GpuProcess]
) -> int | Unknown:
    """Return the sum for this process. UNKNOWN if process numbers are hidden, as in a container."""
    if figures is UNKNOWN:
        return UNKNOWN
    return sum_of((processes[pid].is_this_process, figure) for pid, figure in figures.items())


class Block:
    """A measured block: some of its readings, with the first and the last, and totals of all readings."""

    def __init__(self, devices: Mapping[str, GpuUsage], first: Reading) -> None:
        self.devices, self.readings = devices, [first]
        self._added, self._stride = 0, 1  # a long block keeps one of `_stride` readings
        self._most = dict(first.memory)
        self._rates: dict[str, dict[str, tuple[int, int]]] = {"busy": {}, "own": {}}  # sums and counts
        self._worked: set[str] = set()
        self._others: defaultdict[str, dict[OtherProcess, None]] = defaultdict(dict)
        # The frameworks' peaks before the block, and the higher ones in the block.
        self._before = {key: pool.peak or 0 for key, pool in first.pools.items()}
        self._peaks: dict[tuple[str, str], int] = {}
        self._pools = dict.fromkeys(first.pools)  # all that were seen, because one may not answer at the end
        self.started, self.cpu, self.began = time.time(), _cpu_time(), time.perf_counter()

    @property
    def since(self) -> float:
        """The start by the present clock, which may have been set during the block."""
        return time.time() - (time.perf_counter() - self.began)

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
        for uuid, others in reading.others.items():
            self._others[uuid] |= dict.fromkeys(others)
        self._worked |= {uuid for uuid, percent in reading.own.items() if percent}
        if reading.at - self.began >= PERIOD[0]:  # an earlier figure also covers time before the block
            for kind, sums in self._rates.items():
                for uuid, percent in getattr(reading, kind).items():
                    total, count = sums.get(uuid, (0, 0))
                    sums[uuid] = total + percent, count + 1

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
        stayed = UNKNOWN if before is UNKNOWN or after is UNKNOWN else after - before
        least = before if only_touched and before is not UNKNOWN else 0
        has_memory = (peak is not UNKNOWN and peak > least) or stayed not in (0, UNKNOWN)
        made = [sum(one.pools[p].allocations or 0 for p in pools if p in one.pools) for one in (first, last)]
        if not (has_memory or uuid in self._worked or made[1] > made[0]):
            return None
        busy, own = (
            sums[uuid][0] / sums[uuid][1] if uuid in sums and wall >= PERIOD[1] else UNKNOWN
            for sums in self._rates.values()
        )
        # A counter that has not increased was not updated, or was reset.
        then, now = (one.energy.get(uuid, UNKNOWN) for one in (first, last))
        energy: float | Unknown = UNKNOWN
        if then is not UNKNOWN and now is not UNKNOWN and now > then:
            energy = now - then
        return replace(
            device,
            busy=busy,
            busy_own=own,
            idle=UNKNOWN if busy is UNKNOWN else wall * (1 - busy / 100),
            peak=peak,
            peak_by="" if peak is UNKNOWN else by,
            is_exact=is_exact,
            stayed=stayed,
            energy=energy,
            others=tuple(self._others[uuid])[:_MOST_OTHERS],
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
        self._sampler = Sampler(self._tick, SECONDS, "usage")

    def begin(self, *, reset: bool) -> Block:
        """Start a block. With `reset`, frameworks reset their peaks, so that the block's peak is exact."""
        devices, _ = self._find_machine()
        _synchronize()
        first = read(devices, None)
        if devices and not first.others:  # `%unload_ext` has closed the driver's library
            self._machine = None
            devices, _ = self._find_machine()
            first = read(devices, None)
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
        """End a block, and return its record. `only_touched` omits GPUs that only hold memory."""
        try:
            _synchronize()
        finally:  # also after an interrupt of the wait
            with self._lock:
                self._running.discard(block)
        wall, cpu = time.perf_counter() - block.began, _cpu_time()
        last = read(block.devices, block.since)
        block.add(last)
        block.note_peaks(last)
        # Use the present names, because the block can have chosen GPUs.
        (now, snapshot), before = self._find_machine(), block.devices
        devices = [one for uuid, one in now.items() if uuid in before]
        devices += [replace(one, name="") for uuid, one in before.items() if uuid not in now]
        # Accelerators that the driver does not report
        devices += map(GpuUsage, sorted({name for _, name in last.pools} - {one.name for one in devices}))
        gpus = (block.usage(device, wall, only_touched=only_touched) for device in devices)
        versions = {"driver": snapshot.driver_version, "Python": platform.python_version()}
        for name, module in (("gpu_magic", "gpu_magic"), *((one.name, one.module) for one in imported())):
            versions[name] = getattr(sys.modules.get(module), "__version__", UNKNOWN)
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
            versions={name: str(version) for name, version in versions.items() if version is not UNKNOWN},
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
                one.identity: GpuUsage(
                    "", one.label, "" if one.name is UNKNOWN else str(one.name), one.identity
                )
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
                # Without energy, which is slow to read and needed only at a block's start and end.
                reading = read(uuids, min(block.since for block in running), with_energy=False)
                with self._lock:
                    for block in self._running.intersection(running):
                        block.add(reading)
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
