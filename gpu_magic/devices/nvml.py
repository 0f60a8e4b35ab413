"""Reads NVIDIA's GPUs through NVML, with nvidia-ml-py (`import pynvml`).

Every snapshot reads memory, utilization, temperature, power and processes. Handles, names, UUIDs and MIG
instances are kept for a minute. NVML's slow calls are not made (`nvmlDeviceGetPcieThroughput` sleeps 20 ms).
A driver can be older or newer than pynvml, and other tools replace functions of pynvml. So if several
functions give a figure, they are tried in turn.

The first snapshot imports this module, which imports pynvml.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
import time
from ctypes import byref, c_uint, sizeof
from dataclasses import replace
from functools import partial
from pathlib import Path
from struct import iter_unpack
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gpu_magic.devices.binding import PROBLEM, gpu_problem_of, list_gpus, private, problem_of, pynvml
from gpu_magic.devices.call_timeout import IDENTITY_SECONDS, CallTimeout
from gpu_magic.devices.idle import LONGEST_GAP
from gpu_magic.devices.model import (
    UNKNOWN,
    ComputeMode,
    Counters,
    Gpu,
    GpuProcess,
    GpuStatus,
    Inventory,
    Limits,
    MigInstance,
    Speed,
    Unknown,
)
from gpu_magic.devices.problems import Cause, GpuCause, GpuProblem, Problem
from gpu_magic.devices.processes import ProcessTable, with_names
from gpu_magic.errors import show_as
from gpu_magic.interrupts import is_in_background
from gpu_magic.text import is_off

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable

__all__ = ["STARTING_SECONDS", "Nvml"]

T = TypeVar("T")

# How long a driver may take to start, which takes seconds for each GPU.
STARTING_SECONDS = 60.0
# Between two checks whether the driver has started. Short, so that an interrupt takes effect at once.
_LOOK_SECONDS = 0.02
_SIMULATED = "gpu_magic.devices.simulated"

_HUNG = GpuProblem(GpuCause.HUNG)
_ROOM = 64  # processes listed in one call
_LIST = "nvmlDeviceGetComputeRunningProcesses_v3"
_LIST_BEFORE_R510 = "nvmlDeviceGetComputeRunningProcesses_v2"
# From 535.43 on and before 535.98, version 3 writes 32 bytes for each process instead of 24, and so beyond
# the end of the array. NVIDIA added a field without a new version, and removed it (wookayin/gpustat#161,
# XuehaiPan/nvitop#89). Version 2 always writes 24 bytes.
_WIDE_FROM, _WIDE_TO = 43, 98

_STARTING = (
    "gpu_magic is waiting for the NVIDIA driver, which can take seconds to start each GPU. "
    "Interrupt to stop waiting."
)
# In the order of NVML's numbers (`nvmlComputeMode_t`).
_COMPUTE_MODES: tuple[ComputeMode, ...] = ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")
# NVML's reasons for a lower clock (`nvmlClocksEventReason…`, as bits) that slow work down. Idleness, clocks
# set by a user, and clocks for a display do not.
_SLOWDOWNS = (
    (0x04, "power limit"),  # SwPowerCap
    (0x20 | 0x40, "heat"),  # SwThermalSlowdown, HwThermalSlowdown
    (0x80, "power supply"),  # HwPowerBrakeSlowdown: the machine asks for it
    (0x10, "another GPU of its sync boost group"),  # SyncBoost
)
# HwSlowdown is set together with the hardware reasons above, or alone if the driver has no finer reason.
_HARDWARE, _FINER = 0x08, 0x40 | 0x80


class _Card:
    """The identity of a GPU, and the handles that read its figures. Without a handle, find it first."""

    def __init__(self, index: int) -> None:
        self.facts: dict[str, Any] = {"index": index}  # of `Gpu`
        self.handle: Any = None
        self.instances: tuple[tuple[Any, MigInstance], ...] = ()

    def with_problem(self, problem: GpuProblem) -> Gpu:
        return Gpu(**self.facts, problem=problem)


class _Library(NamedTuple):
    """The opened library: pynvml's handle, the number of GPUs, the versions, and the table of processes."""

    handle: object
    number: int
    machine: Inventory
    processes: Any  # a ProcessTable, or the simulated machine
    lister: str  # NVML's function that lists processes


class Nvml:
    """Reads the machine's GPUs. The first read opens the driver's library.

    A call that hangs is abandoned after `timeout` seconds, the driver's start after `starting` seconds.
    Without persistence mode, the driver starts a GPU for its first user, which takes seconds: in `nvmlInit`,
    and since NVML 5 in `nvmlDeviceGetHandleByIndex`. `root` contains `proc` and `dev`, which show GPUs
    without NVML. `now` is the clock that tells when GPUs are found again.
    """

    def __init__(
        self,
        timeout: float = 2.0,
        starting: float = STARTING_SECONDS,
        root: Path = Path("/"),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeout = CallTimeout(timeout)
        self._library: _Library | None = None
        self._simulate: str | None = None
        self._opened_at = -math.inf
        self._machine = Inventory()  # without GPUs, except those that were found without NVML
        self._cards: list[_Card] = []
        self._starting = starting
        self._start_until = -math.inf
        self._root = root
        self._now = now
        self._looked_at = self._watched_from = 0.0

    def inventory(self) -> Inventory:
        """Return all GPUs with their current figures.

        No failure of a driver raises an error. A figure that cannot be read is UNKNOWN, and
        `Inventory.problem` or `Gpu.problem` has the reason. A call that hangs delays the result by the
        timeout. A GPU that is known to hang does not delay it. If the driver is starting, this waits and
        prints a line to stderr, but not in a block of `in_background`. An interrupt ends the wait, but not
        the driver's start.
        """
        if PROBLEM:
            return Inventory(problem=PROBLEM)
        is_told = is_in_background()
        while True:
            with self._timeout.lock:
                machine, starting = self._look()
                library = self._library
            if not starting or is_in_background() or time.monotonic() >= self._start_until:
                # On this thread: a name that is slow to find is no sign of a driver that hangs.
                return machine if library is None else with_names(machine, library.processes.look_up)
            try:
                # Without the lock, so that other threads get an answer meanwhile.
                while any(map(self._timeout.hangs, starting)) and time.monotonic() < self._start_until:
                    if not is_told:
                        is_told = True
                        print(_STARTING, file=sys.stderr, flush=True)  # noqa: T201 - for the user who waits
                    time.sleep(_LOOK_SECONDS)
            except KeyboardInterrupt as interrupt:
                show_as(interrupt, "KeyboardInterrupt: the NVIDIA driver is still starting.")
                raise

    def limits(self, index: int) -> Limits:
        """Return the limits of the GPU with this nvidia-smi number. UNKNOWN if it does not answer."""
        with self._timeout.lock:
            cards = [card for card in self._answering() if card.facts["index"] == index]
            return next(iter(self._each(cards, _limits)), None) or Limits()

    def counters(
        self, identities: Collection[str], since: int | None, *, with_energy: bool = True
    ) -> dict[str, Counters]:
        """Return the counters of devices by identity. Call `inventory` first, which finds the devices.

        The work of processes counts from `since`, in microseconds since 1970, the driver's unit
        (`nvmlProcessUtilizationSample_t.timeStamp`). With None, only energy and memory are read, as needed
        before a block. Reading energy takes 3 ms, and energy changes ten times a second (on an H200, driver
        580.159).
        """
        with self._timeout.lock:
            cards = [card for card in self._answering() if not _handles(card).keys().isdisjoint(identities)]
            lister = self._library.lister if self._library else _LIST

            def read(card: _Card) -> dict[str, Counters]:
                handles = {name: handle for name, handle in _handles(card).items() if name in identities}
                found = dict.fromkeys(handles, Counters())
                with contextlib.suppress(pynvml.NVMLError):  # the GPU is lost
                    for name, handle in handles.items():
                        found[name] = _counters(handle, since, lister, with_energy=with_energy)
                return found

            answers = self._each(cards, read)
        return {name: one for answer in answers if answer for name, one in answer.items()}

    def look_up(self, pid: int) -> GpuProcess:
        """Return the facts about a process that the driver has listed, except its memory."""
        found: GpuProcess = (self._library.processes if self._library else ProcessTable()).look_up([pid])[pid]
        return found

    def close(self) -> None:
        """Shut NVML down, and remove a simulated machine. The next read opens the library again."""
        with self._timeout.lock:
            if self._is_open():
                self._timeout.call([(("shut down", id(pynvml.nvmlLib)), partial(_ask, "nvmlShutdown"))])
            self._library = None
            self._timeout.close()
            _leave_simulation()

    def _look(self) -> tuple[Inventory, list[Hashable]]:
        """Read all GPUs. Return them, and the keys of the hanging calls that may be starting the driver."""
        began = time.monotonic()
        is_current = (
            self._is_open()
            and self._now() - self._opened_at < IDENTITY_SECONDS
            and self._simulate == os.environ.get("GPU_MAGIC_SIMULATE")
        )
        if not is_current and (starting := self._open()):
            return self._machine, starting
        if self._machine.problem or self._machine.gpus:
            return self._machine, []
        before, self._looked_at = self._looked_at, time.time()
        self._watched_from = before if 0 <= self._looked_at - before <= LONGEST_GAP else 0.0
        answers = list(zip(self._cards, self._each(self._cards, self._read, began), strict=True))
        gpus = tuple(gpu or card.with_problem(_HUNG) for card, gpu in answers)
        # A GPU that was found before has been started.
        never_found = [card for card, gpu in answers if gpu is None and "uuid" not in card.facts]
        return replace(self._machine, gpus=gpus), list(map(self._key, never_found))

    def _key(self, card: _Card) -> Hashable:
        # A GPU with the same number on another (simulated) machine may work.
        return id(pynvml.nvmlLib), card.facts["index"]

    def _each(
        self, cards: Iterable[_Card], read: Callable[[_Card], T], since: float | None = None
    ) -> list[T | None]:
        """Return the result of `read` for each GPU. None for one that hangs."""
        return self._timeout.call([(self._key(card), partial(read, card)) for card in cards], since)

    def _is_open(self) -> bool:
        """Return whether pynvml still has the library that we opened. Other code can replace or close it."""
        if self._library is None or pynvml.nvmlLib is not self._library.handle:
            return False
        users = private("_nvmlLib_refcount")
        return _ask("nvmlDeviceGetCount") is not UNKNOWN if users is None else users > 0

    def _answering(self) -> list[_Card]:
        """Return the GPUs that have answered."""
        return [card for card in self._cards if card.handle is not None] if self._is_open() else []

    def _open(self) -> list[Hashable]:
        """Open the library if necessary, and count the GPUs. Return the keys of hanging calls.

        The GPUs are found only when they are read, so that a hanging GPU does not delay the others.
        """
        simulate = self._simulate = os.environ.get("GPU_MAGIC_SIMULATE")
        key = ("open", simulate)
        if not self._is_open():  # an abandoned call can have opened it since
            self._library = self._timeout.late(key) or self._library
        before = self._library if self._is_open() else None
        if before is None and not self._timeout.hangs(key):
            self._start_until = time.monotonic() + self._starting
        self._opened_at = -math.inf
        machine = Inventory(problem=Problem(Cause.HUNG))
        library: _Library | None = None
        is_hanging = True
        try:
            (library,) = self._timeout.call([(key, partial(_open_library, before, simulate))])
        except pynvml.NVMLError as error:
            problem, is_hanging = problem_of(error), False
            gpus = list_gpus(self._root) if problem.cause is Cause.NO_LIBRARY else ()
            limited = Inventory(gpus, limitation=Problem(Cause.NO_FIGURES))
            machine = limited if gpus else Inventory(problem=problem)
        if library is None:
            self._machine, self._cards = machine, []
            return [key] if before is None and is_hanging else []
        if before and before.handle is library.handle and library.number == len(self._cards):
            for card in self._cards:  # kept, so that a lost GPU is still shown with its name
                card.handle = None
        else:
            self._cards = list(map(_Card, range(library.number)))
        self._library = library
        self._machine = (
            library.machine if library.number else replace(library.machine, problem=Problem(Cause.NO_GPU))
        )
        self._opened_at = self._now()
        return []

    def _read(self, card: _Card) -> Gpu:
        """Find a GPU, unless it was found before, and read its figures."""
        try:
            if card.handle is None:
                _find(card)
            handle = card.handle
            total, used, free = _memory(handle)
            rates = _ask("nvmlDeviceGetUtilizationRates", handle)
            power = _ask("nvmlDeviceGetPowerUsage", handle)  # milliwatts
            sensor = pynvml.NVML_TEMPERATURE_GPU
            # nvmlDeviceGetTemperature is deprecated, but faster, because it needs no structure.
            newer = ("nvmlDeviceGetTemperatureV", handle, sensor)
            status = GpuStatus(
                used,
                free,
                UNKNOWN if rates is UNKNOWN else rates.gpu,
                _ask("nvmlDeviceGetTemperature", handle, sensor, other=newer),
                UNKNOWN if power is UNKNOWN else power / 1000,
                self._running(handle),
            )
            mig = tuple([self._read_mig(*one) for one in card.instances])
        except pynvml.NVMLError as error:
            card.handle = None
            return card.with_problem(gpu_problem_of(error))
        return Gpu(**card.facts, memory_total=total, status=status, mig=mig)

    def _read_mig(self, handle: Any, instance: MigInstance) -> MigInstance:
        total, used, free = _memory(handle)
        status = GpuStatus(memory_used=used, memory_free=free, processes=self._running(handle))
        return instance._replace(memory_total=total, status=status)

    def _running(self, handle: Any) -> tuple[GpuProcess, ...] | Unknown:
        """Return the processes with compute memory, not those that only draw (a desktop). Without names."""
        running = _processes(handle, self._library.lister if self._library else _LIST)
        if running is UNKNOWN:
            return UNKNOWN
        since = int(self._watched_from * 1e6)
        work = _work(handle, since) if running and since else UNKNOWN
        found = []
        for pid, memory in running.items():
            percents = UNKNOWN if work is UNKNOWN else [percent for _, percent in work.get(pid, ())]
            most = UNKNOWN if percents is UNKNOWN else max(percents, default=0)
            found.append(GpuProcess(pid, memory=memory, work=most))
        return tuple(found)


def _ask(function: str | Callable[..., Any], *arguments: Any, other: tuple[Any, ...] = ()) -> Any:
    """Call a function of pynvml. Return UNKNOWN if the driver refuses.

    `other` is a function with its arguments, for a driver or a pynvml that lacks the first one. If the GPU is
    lost, it raises, because none of the GPU's figures can be read.
    """
    try:
        call = getattr(pynvml, function) if isinstance(function, str) else function
        return call(*arguments)
    except pynvml.NVMLError_GpuIsLost:
        raise
    # TypeError: when imported, gpustat replaces functions of pynvml with its own, without a version argument.
    except (pynvml.NVMLError_FunctionNotFound, AttributeError, TypeError):
        return _ask(*other) if other else UNKNOWN
    except (pynvml.NVMLError, UnicodeDecodeError):
        return UNKNOWN


def _memory(handle: Any) -> tuple[int | Unknown, int | Unknown, int | Unknown]:
    """Return total, used and free bytes as nvidia-smi does. Used is without the driver's own memory."""
    before_r510 = ("nvmlDeviceGetMemoryInfo", handle)
    memory = _ask("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2, other=before_r510)
    return (UNKNOWN,) * 3 if memory is UNKNOWN else (memory.total, memory.used, memory.free)


def _processes(handle: Any, lister: str) -> dict[int, int | Unknown] | Unknown:
    """Return the bytes of each process with compute memory, by PID."""
    before_r510 = (_list_processes, handle, _LIST_BEFORE_R510)
    found: dict[int, int | Unknown] | Unknown = _ask(_list_processes, handle, lister, other=before_r510)
    return found


def _lister(driver_version: str | Unknown) -> str:
    """Return the newest function of NVML that lists processes in entries of 24 bytes."""
    match = re.match(r"535\.([0-9]{1,4})\b", str(driver_version))
    is_wide = match is not None and _WIDE_FROM <= int(match[1]) < _WIDE_TO
    return _LIST_BEFORE_R510 if is_wide else _LIST


def _list_processes(handle: Any, function: str) -> dict[int, int | Unknown]:
    """List processes with one NVML call. pynvml's function makes two, and an object for each process."""
    count, room = c_uint(_ROOM), _ROOM
    call = getattr(pynvml.nvmlLib, function)  # AttributeError: the driver is older
    while True:
        array = (pynvml.c_nvmlProcessInfo_v3_t * room)()  # the same in version 2
        status = call(handle, byref(count), array)
        if status != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
            break
        count.value = room = 2 * count.value  # more may come meanwhile
    if status != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(status)
    hidden = pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value
    # PID, bytes, and two numbers of the MIG instance. Reading a structure's fields takes ten times as long.
    found = iter_unpack("IQII", bytes(array)[: count.value * sizeof(pynvml.c_nvmlProcessInfo_v3_t)])
    return {pid: UNKNOWN if memory == hidden else memory for pid, memory, _, _ in found}


def _counters(handle: Any, since: int | None, lister: str, *, with_energy: bool) -> Counters:
    energy = UNKNOWN  # in millijoules
    if with_energy:
        energy = _ask("nvmlDeviceGetTotalEnergyConsumption", handle)
    rates = UNKNOWN if since is None else _ask("nvmlDeviceGetUtilizationRates", handle)
    return Counters(
        UNKNOWN if energy is UNKNOWN else energy / 1000,
        UNKNOWN if rates is UNKNOWN else rates.gpu,
        _processes(handle, lister),
        UNKNOWN if since is None else _work(handle, since),
    )


def _work(handle: Any, since: int) -> dict[int, list[tuple[int, int]]] | Unknown:
    """Return the samples of each process's work on a GPU: microseconds since 1970, and percent."""
    try:
        samples = pynvml.nvmlDeviceGetProcessUtilization(handle, since)
    except pynvml.NVMLError_GpuIsLost:
        raise
    except pynvml.NVMLError_NotFound:  # no process has worked since
        return {}
    except pynvml.NVMLError:
        return UNKNOWN
    work: dict[int, list[tuple[int, int]]] = {}
    for sample in samples:  # a process can have several
        if sample.smUtil and sample.timeStamp > since:
            work.setdefault(sample.pid, []).append((sample.timeStamp, sample.smUtil))
    return work


def _limits(card: _Card) -> Limits:
    try:
        power = _ask("nvmlDeviceGetEnforcedPowerLimit", card.handle)  # milliwatts
        before_r535 = ("nvmlDeviceGetCurrentClocksThrottleReasons", card.handle)
        reasons = _ask("nvmlDeviceGetCurrentClocksEventReasons", card.handle, other=before_r535)
    except pynvml.NVMLError:  # the GPU is lost, which the next snapshot shows
        return Limits()
    slowdowns: tuple[str, ...] | Unknown = UNKNOWN
    if reasons is not UNKNOWN:
        slowdowns = tuple(words for bits, words in _SLOWDOWNS if reasons & bits)
        slowdowns += ("hardware",) if reasons & _HARDWARE and not reasons & _FINER else ()
    return Limits(UNKNOWN if power is UNKNOWN else power / 1000, slowdowns)


def _open_library(before: _Library | None, simulate: str | None) -> _Library:
    """Open the library, unless it is still open, and count the GPUs."""
    if simulate and not is_off(simulate):
        from gpu_magic.devices.simulated import ensure  # large, and rarely needed

        ensure(simulate)
    else:
        _leave_simulation()
    if before is None or pynvml.nvmlLib is not before.handle:
        pynvml.nvmlInit()
    handle, count = pynvml.nvmlLib, pynvml.nvmlDeviceGetCount()
    # A simulated machine has its own processes. If the package was not imported, there is no such machine.
    simulated = sys.modules.get(_SIMULATED)
    pretended = simulated.machine_of(handle) if simulated else None
    driver, version = _ask("nvmlSystemGetDriverVersion"), _ask("nvmlSystemGetCudaDriverVersion")
    machine = Inventory(
        driver_version=driver,
        # 13000 is CUDA 13.0.
        cuda_version=UNKNOWN if version is UNKNOWN else f"{version // 1000}.{version % 1000 // 10}",
        simulated=pretended.profile if pretended else "",
    )
    return _Library(handle, count, machine, pretended or ProcessTable(), _lister(driver))


def _leave_simulation() -> None:
    if simulated := sys.modules.get(_SIMULATED):
        simulated.leave()


def _find(card: _Card) -> None:
    """Find the handle of a GPU, its identity, and its MIG instances."""
    index = card.facts["index"]
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    pci = _ask("nvmlDeviceGetPciInfo", handle)
    mig = _ask("nvmlDeviceGetMigMode", handle)
    is_split = mig is not UNKNOWN and mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    mode = _ask("nvmlDeviceGetComputeMode", handle)
    speed = (
        _ask("nvmlDeviceGetCudaComputeCapability", handle),
        _ask("nvmlDeviceGetNumGpuCores", handle),
        _ask("nvmlDeviceGetMaxClockInfo", handle, pynvml.NVML_CLOCK_SM),
    )
    facts = {
        "index": index,
        "uuid": _ask("nvmlDeviceGetUUID", handle),
        "name": _ask("nvmlDeviceGetName", handle),
        "bus_id": UNKNOWN if pci is UNKNOWN else pci.busId,
        "is_split": is_split,
        "compute_mode": _COMPUTE_MODES[mode] if mode in range(len(_COMPUTE_MODES)) else UNKNOWN,
        "speed": UNKNOWN if UNKNOWN in speed else Speed(*speed),
        "minor": _ask("nvmlDeviceGetMinorNumber", handle),
    }
    most = _ask("nvmlDeviceGetMaxMigDeviceCount", handle) if is_split else 0
    positions = range(0 if most is UNKNOWN else most)  # most of them are empty
    instances = tuple(filter(None, [_find_mig(handle, index, position) for position in positions]))
    card.facts, card.handle, card.instances = facts, handle, instances


def _find_mig(parent: Any, index: int, position: int) -> tuple[Any, MigInstance] | None:
    handle = _ask("nvmlDeviceGetMigDeviceHandleByIndex", parent, position)
    uuid = UNKNOWN if handle is UNKNOWN else _ask("nvmlDeviceGetUUID", handle)
    if uuid is UNKNOWN:
        return None
    ids = _ask("nvmlDeviceGetGpuInstanceId", handle), _ask("nvmlDeviceGetComputeInstanceId", handle)
    found = UNKNOWN if UNKNOWN in ids else ids
    return handle, MigInstance(uuid, _ask("nvmlDeviceGetName", handle), index, position, ids=found)


def _handles(card: _Card) -> dict[str, Any]:
    """Return the handles of a GPU and of its MIG instances, by their identities."""
    gpu = Gpu(**card.facts)
    return {gpu.identity: card.handle, **{one.identity: handle for handle, one in card.instances}}
