"""The one reader of NVML, through nvidia-ml-py (`import pynvml`).

What changes is read anew for every snapshot: memory, utilisation, temperature, power and processes, five
calls a GPU. What does not is kept for a minute: handles, names, UUIDs, how a GPU is split. None of the
slow calls is made (`nvmlDeviceGetPcieThroughput` sleeps 20 ms).

This module loads pynvml, so it is itself loaded at the first read and not before.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pynvml

from gpu_magic.devices.call_timeout import CallTimeout
from gpu_magic.devices.model import Gpu, GpuProcess, GpuStatus, Inventory, MigInstance
from gpu_magic.devices.nvml_calls import Calls, ask, bytes_or_unknown, explain
from gpu_magic.devices.processes import Processes, ProcessTable
from gpu_magic.devices.unknown import UNKNOWN, Unknown

__all__ = ["Nvml"]

# Somebody can split a GPU, or bring a lost one back, while a kernel stays open for days.
_IDENTITY_SECONDS = 60.0
_SIMULATED = "gpu_magic.devices.simulated"

_HUNG = "not answering: a call into the driver did not come back in time"
_HUNG_DRIVER = "The NVIDIA driver does not answer: a call did not come back in time. It may do so later."
_NO_GPU = "The NVIDIA driver is there, and it has no GPU."


@dataclass(slots=True)
class _Card:
    """A GPU as it was found: what stays, and the handles to ask for the rest."""

    gpu: Gpu
    handle: Any = None
    mig: tuple[tuple[Any, MigInstance], ...] = ()


@dataclass(slots=True)
class _Opened:
    """What opening the library has found, or why it could not."""

    library: object = None
    count: int = 0
    machine: Inventory = field(default_factory=Inventory)
    processes: Processes = field(default_factory=ProcessTable)
    problem: str = ""


class Nvml:
    """Reads the machine's GPUs; opens the driver's library at the first read.

    Parameters
    ----------
    timeout
        Seconds after which a read that hangs is given up.

    """

    def __init__(self, timeout: float = 2.0) -> None:
        self._timeout = CallTimeout(timeout)
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._library: object = None
        self._cards: list[_Card] = []
        self._found_at = -math.inf
        self._simulate: str | None = None
        self._machine = Inventory()
        self._processes: Processes = ProcessTable()
        self._calls = Calls()

    def inventory(self) -> Inventory:
        """Return all GPUs with their figures now.

        It never raises for what a driver can do: what can't be read is UNKNOWN, and `Inventory.problem`
        or `Gpu.problem` says why. A driver that hangs delays it by the timeout; a GPU that is known to
        hang, by nothing.
        """
        with self._locked():
            started = time.monotonic()
            if not self._is_open() and (problem := self._open()):
                return replace(self._machine, problem=problem)
            left = max(self._timeout.seconds / 4, self._timeout.seconds - (time.monotonic() - started))
            answers = self._timeout.call(
                [((id(self._library), card.gpu.index), partial(self._read, card)) for card in self._cards],
                left,
            )
            gpus = tuple(
                gpu or replace(card.gpu, problem=_HUNG)
                for card, gpu in zip(self._cards, answers, strict=True)
            )
        return replace(self._machine, gpus=gpus)

    def close(self) -> None:
        """Let the driver's library go, a simulated one too; the next read opens it again."""
        with self._locked():
            if self._is_ours():
                self._timeout.call([(("shut down", id(self._library)), _shut_down)])
            self._library = None
            self._timeout.close()
            _leave_simulation()

    def _locked(self) -> threading.Lock:
        if os.getpid() != self._pid:  # a thread that held the lock did not survive the fork
            self._pid, self._lock = os.getpid(), threading.Lock()
        return self._lock

    def _is_ours(self) -> bool:
        """Whether what we opened is still beneath pynvml: others can replace it, or shut it down."""
        return (
            pynvml.nvmlLib is not None and pynvml.nvmlLib is self._library and pynvml._nvmlLib_refcount > 0  # noqa: SLF001
        )

    def _is_open(self) -> bool:
        return (
            self._is_ours()
            and time.monotonic() - self._found_at < _IDENTITY_SECONDS
            and self._simulate == os.environ.get("GPU_MAGIC_SIMULATE")
        )

    def _open(self) -> str:
        """Open the library and count the GPUs; return what is wrong with the machine, or nothing.

        The GPUs themselves are found when they are read, each on its own: one that hangs keeps no other.
        """
        before, self._found_at = self._library if self._is_ours() else None, -math.inf
        self._simulate = os.environ.get("GPU_MAGIC_SIMULATE")
        # What a hanging call finds when it comes back at last is nobody's any more, so it only returns it.
        (opened,) = self._timeout.call(
            [(("open", self._simulate), partial(_open_library, before, self._simulate))]
        )
        if opened is None or opened.problem:
            self._machine, self._cards = Inventory(), []
            return opened.problem if opened else _HUNG_DRIVER
        if opened.library is before and opened.count == len(self._cards):
            for card in self._cards:  # found anew, and remembered for what they were if they are lost by now
                card.handle = None
        else:
            self._cards = [_Card(Gpu(index)) for index in range(opened.count)]
            self._calls = Calls()
        self._library, self._machine, self._processes = opened.library, opened.machine, opened.processes
        self._found_at = time.monotonic()
        return "" if self._cards else _NO_GPU

    def _read(self, card: _Card) -> Gpu:
        """Find one GPU, where that is to do, and read its figures: five calls, and two for each part."""
        if card.handle is None:
            found = _find(card.gpu.index)
            if found.handle is None:
                return replace(card.gpu, problem=found.gpu.problem)
            card.gpu, card.handle, card.mig = found.gpu, found.handle, found.mig
        try:
            total, status = self._figures(card.handle)
            mig = tuple([self._read_mig(handle, part) for handle, part in card.mig])
        except pynvml.NVMLError as error:
            card.handle = None
            return replace(card.gpu, problem=explain(error))
        gpu = card.gpu  # `replace` would take twice as long, at every GPU of every snapshot
        return Gpu(gpu.index, gpu.uuid, gpu.name, gpu.bus_id, total, status, mig, gpu.is_split)

    def _figures(self, handle: Any) -> tuple[int | Unknown, GpuStatus]:
        total, used, free = self._memory(handle)
        utilization = ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
        power = ask(pynvml.nvmlDeviceGetPowerUsage, handle)
        return total, GpuStatus(
            memory_used=used,
            memory_free=free,
            utilization=UNKNOWN if utilization is UNKNOWN else utilization.gpu,
            temperature=self._calls.temperature(handle),
            power=UNKNOWN if power is UNKNOWN else power / 1000,
            processes=self._running(handle),
        )

    def _read_mig(self, handle: Any, part: MigInstance) -> MigInstance:
        total, used, free = self._memory(handle)
        status = GpuStatus(memory_used=used, memory_free=free, processes=self._running(handle))
        return replace(part, memory_total=total, status=status)

    def _memory(self, handle: Any) -> tuple[int | Unknown, int | Unknown, int | Unknown]:
        """Return total, used and free bytes: nvidia-smi's, without the driver's own reserve."""
        memory = self._calls.memory(handle)
        return (UNKNOWN,) * 3 if memory is UNKNOWN else (memory.total, memory.used, memory.free)

    def _running(self, handle: Any) -> tuple[GpuProcess, ...] | Unknown:
        """List the processes with compute memory. Graphics alone (a desktop) is not among them."""
        running: list[Any] | Unknown = self._calls.processes(handle)
        if running is UNKNOWN:
            return UNKNOWN
        found: list[GpuProcess] = []
        for process in running:
            pid = process.pid
            name, owner, mine = self._processes.look_up(pid)
            found.append(GpuProcess(pid, name, owner, bytes_or_unknown(process.usedGpuMemory), mine))
        return tuple(found)


def _open_library(ours: object, simulate: str | None) -> _Opened:
    """Open the library, unless it is still open, and count the GPUs."""
    if simulate:
        from gpu_magic.devices.simulated import ensure

        ensure(simulate)
    else:
        _leave_simulation()
    try:
        if ours is None or pynvml.nvmlLib is not ours:
            pynvml.nvmlInit()
        library, count = pynvml.nvmlLib, pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        return _Opened(problem=explain(error))
    # A simulated machine brings its own owners; where none was imported, none is beneath.
    simulated = sys.modules.get(_SIMULATED)
    machine = simulated.machine_of(library) if simulated else None
    version = ask(pynvml.nvmlSystemGetCudaDriverVersion)
    inventory = Inventory(
        driver_version=ask(pynvml.nvmlSystemGetDriverVersion),
        cuda_version=UNKNOWN if version is UNKNOWN else f"{version // 1000}.{version % 1000 // 10}",
        simulated=machine.profile if machine else "",
    )
    return _Opened(library, count, inventory, machine or ProcessTable())


def _shut_down() -> bool:
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()
    return True


def _leave_simulation() -> None:
    if simulated := sys.modules.get(_SIMULATED):
        simulated.leave()


def _find(index: int) -> _Card:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        pci = ask(pynvml.nvmlDeviceGetPciInfo, handle)
        mode = ask(pynvml.nvmlDeviceGetMigMode, handle)
        is_split = mode is not UNKNOWN and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE
        gpu = Gpu(
            index=index,
            uuid=ask(pynvml.nvmlDeviceGetUUID, handle),
            name=ask(pynvml.nvmlDeviceGetName, handle),
            bus_id=UNKNOWN if pci is UNKNOWN else pci.busId,
            is_split=is_split,
        )
        return _Card(gpu, handle, tuple(_find_mig(handle, index)) if is_split else ())
    except pynvml.NVMLError as error:
        return _Card(Gpu(index=index, problem=explain(error)))


def _find_mig(parent: Any, index: int) -> list[tuple[Any, MigInstance]]:
    count = ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, parent)
    found = []
    for place in range(0 if count is UNKNOWN else count):
        # The places are those that could be; most are empty.
        handle = ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, place)
        uuid = UNKNOWN if handle is UNKNOWN else ask(pynvml.nvmlDeviceGetUUID, handle)
        if uuid is not UNKNOWN:
            found.append((handle, MigInstance(uuid, ask(pynvml.nvmlDeviceGetName, handle), index)))
    return found
