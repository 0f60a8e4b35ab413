"""Reads GPUs through NVML, with nvidia-ml-py (`import pynvml`).

Memory, utilization, temperature, power and processes are read for every snapshot, with five calls for each
GPU. Handles, names, UUIDs and MIG instances are kept for a minute. None of NVML's slow calls is made
(`nvmlDeviceGetPcieThroughput` sleeps 20 ms).

This module imports pynvml, so it is imported for the first snapshot and not before.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pynvml

from gpu_magic.devices.call_timeout import CallTimeout
from gpu_magic.devices.model import Gpu, GpuProcess, GpuStatus, Inventory, MigInstance
from gpu_magic.devices.nvml_calls import Calls, ask, bytes_or_unknown, explain
from gpu_magic.devices.processes import ProcessTable
from gpu_magic.devices.record import record
from gpu_magic.devices.unknown import UNKNOWN, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_magic.devices.processes import Process

__all__ = ["Nvml"]

# An administrator can split a GPU, or bring a lost one back, while a kernel stays open for days.
_IDENTITY_SECONDS = 60.0
_SIMULATED = "gpu_magic.devices.simulated"

_HUNG = "not answering: a call into the driver did not come back in time"
_HUNG_DRIVER = "The NVIDIA driver does not answer: a call did not come back in time. It may do so later."
_NO_GPU = "The NVIDIA driver is there, and it has no GPU."


@record
class _Library:
    """The driver's library, opened.

    Parameters
    ----------
    handle
        What pynvml calls.
    count
        How many GPUs there are.
    machine
        The versions of the driver, without GPUs.
    look_up
        Returns the owner and the name of a process, given its number.

    """

    handle: object
    count: int
    machine: Inventory
    look_up: Callable[[int], Process]


class _Card:
    """A GPU as it was found, and the handles to ask for its figures; no handle: it is still to be found."""

    def __init__(
        self, gpu: Gpu, handle: Any = None, instances: tuple[tuple[Any, MigInstance], ...] = ()
    ) -> None:
        self.gpu = gpu
        self.handle = handle
        self.instances = instances


class Nvml:
    """Reads the machine's GPUs. The driver's library is opened for the first read.

    Parameters
    ----------
    timeout
        Seconds after which calls that hang are given up.

    """

    def __init__(self, timeout: float = 2.0) -> None:
        self._timeout = CallTimeout(timeout)
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._library: _Library | None = None
        self._simulate: str | None = None
        self._opened_at = -math.inf
        self._machine = Inventory()
        self._cards: list[_Card] = []
        self._calls = Calls()

    def inventory(self) -> Inventory:
        """Return all GPUs with their figures now.

        It never raises for what a driver can do: what can't be read is UNKNOWN, and `Inventory.problem`
        or `Gpu.problem` says why. A call that hangs delays it by the timeout; a GPU that is known to hang
        does not.
        """
        with self._locked():
            started = time.monotonic()
            if not self._is_current():
                self._open()
            machine = self._machine
            if machine.problem:
                return machine
            left = max(self._timeout.seconds / 4, self._timeout.seconds - (time.monotonic() - started))
            library = id(pynvml.nvmlLib)  # a GPU that hangs on one machine can be well on another
            reads = [((library, card.gpu.index), partial(self._read, card)) for card in self._cards]
            gpus = tuple(
                gpu or replace(card.gpu, problem=_HUNG)
                for card, gpu in zip(self._cards, self._timeout.call(reads, left), strict=True)
            )
        return Inventory(gpus, machine.driver_version, machine.cuda_version, machine.simulated)

    def close(self) -> None:
        """Shut NVML down, or take the simulated machine away; the next read opens it again."""
        with self._locked():
            if self._is_ours():
                self._timeout.call([(("shut down", id(pynvml.nvmlLib)), _shut_down)])
            self._library = None
            self._timeout.close()
            _leave_simulation()

    def _locked(self) -> threading.Lock:
        if os.getpid() != self._pid:  # a thread that held the lock did not survive the fork
            self._pid, self._lock = os.getpid(), threading.Lock()
        return self._lock

    def _is_ours(self) -> bool:
        """Return whether pynvml still has what we opened: others can replace it, or shut it down."""
        return (
            self._library is not None
            and pynvml.nvmlLib is self._library.handle
            and pynvml._nvmlLib_refcount > 0  # noqa: SLF001
        )

    def _is_current(self) -> bool:
        return (
            self._is_ours()
            and time.monotonic() - self._opened_at < _IDENTITY_SECONDS
            and self._simulate == os.environ.get("GPU_MAGIC_SIMULATE")
        )

    def _open(self) -> None:
        """Open the library, unless it is open, and count the GPUs.

        The GPUs themselves are found when they are read, so that one that hangs delays no other.
        """
        before = self._library if self._is_ours() else None
        simulate = self._simulate = os.environ.get("GPU_MAGIC_SIMULATE")
        self._opened_at = -math.inf
        problem = _HUNG_DRIVER
        library: _Library | None = None
        try:
            # A call that returns too late has no effect here: its result is dropped.
            (library,) = self._timeout.call([(("open", simulate), partial(_open_library, before, simulate))])
        except pynvml.NVMLError as error:
            problem = explain(error)
        if library is None:
            self._machine, self._cards = Inventory(problem=problem), []
            return
        if before and before.handle is library.handle and library.count == len(self._cards):
            for card in self._cards:  # kept, as a GPU that is lost by now is shown with its name
                card.handle = None
        else:
            self._cards = [_Card(Gpu(index)) for index in range(library.count)]
            self._calls = Calls()
        self._library = library
        self._machine = library.machine if library.count else replace(library.machine, problem=_NO_GPU)
        self._opened_at = time.monotonic()

    def _read(self, card: _Card) -> Gpu:
        """Find a GPU, unless it was found before, and read its figures."""
        try:
            if card.handle is None:
                _find(card)
            gpu = card.gpu
            total, status = self._figures(card.handle)
            mig = tuple([self._read_mig(handle, instance) for handle, instance in card.instances])
        except pynvml.NVMLError as error:
            card.handle = None
            return replace(card.gpu, problem=explain(error))
        # `replace` would take four times as long, for every GPU of every snapshot.
        return Gpu(gpu.index, gpu.uuid, gpu.name, gpu.bus_id, total, status, mig, gpu.is_split, "")

    def _figures(self, handle: Any) -> tuple[int | Unknown, GpuStatus]:
        """Return the total memory in bytes, and the figures."""
        total, used, free = self._memory(handle)
        utilization = ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
        power = ask(pynvml.nvmlDeviceGetPowerUsage, handle)  # milliwatts
        return total, GpuStatus(
            used,
            free,
            UNKNOWN if utilization is UNKNOWN else utilization.gpu,
            self._calls.temperature(handle),
            UNKNOWN if power is UNKNOWN else power / 1000,
            self._running(handle),
        )

    def _read_mig(self, handle: Any, instance: MigInstance) -> MigInstance:
        total, used, free = self._memory(handle)
        status = GpuStatus(memory_used=used, memory_free=free, processes=self._running(handle))
        return replace(instance, memory_total=total, status=status)

    def _memory(self, handle: Any) -> tuple[int | Unknown, int | Unknown, int | Unknown]:
        """Return total, used and free bytes: nvidia-smi's, without what the driver reserves for itself."""
        memory = self._calls.memory(handle)
        return (UNKNOWN,) * 3 if memory is UNKNOWN else (memory.total, memory.used, memory.free)

    def _running(self, handle: Any) -> tuple[GpuProcess, ...] | Unknown:
        """Return the processes with compute memory, without those that only draw (a desktop)."""
        running: list[Any] | Unknown = self._calls.processes(handle)
        if running is UNKNOWN or self._library is None:
            return UNKNOWN
        look_up = self._library.look_up
        found: list[GpuProcess] = []
        for process in running:
            pid = process.pid
            known = look_up(pid)
            memory = bytes_or_unknown(process.usedGpuMemory)
            found.append(GpuProcess(pid, known.name, known.owner, memory, known.mine))
        return tuple(found)


def _open_library(before: _Library | None, simulate: str | None) -> _Library:
    """Open the library, unless it is still open, and count the GPUs.

    Raises
    ------
    pynvml.NVMLError
        The driver refuses.
    SimulationError
        `simulate` describes no machine.

    """
    if simulate:
        from gpu_magic.devices.simulated import ensure  # it is large, and needed by few

        ensure(simulate)
    else:
        _leave_simulation()
    if before is None or pynvml.nvmlLib is not before.handle:
        pynvml.nvmlInit()
    handle, count = pynvml.nvmlLib, pynvml.nvmlDeviceGetCount()
    # A simulated machine has its own processes. Where the package was not imported, there is none.
    simulated = sys.modules.get(_SIMULATED)
    simulated_machine = simulated.machine_of(handle) if simulated else None
    version = ask(pynvml.nvmlSystemGetCudaDriverVersion)  # 13000 for CUDA 13.0
    machine = Inventory(
        driver_version=ask(pynvml.nvmlSystemGetDriverVersion),
        cuda_version=UNKNOWN if version is UNKNOWN else f"{version // 1000}.{version % 1000 // 10}",
        simulated=simulated_machine.profile if simulated_machine else "",
    )
    return _Library(handle, count, machine, (simulated_machine or ProcessTable()).look_up)


def _shut_down() -> None:
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()


def _leave_simulation() -> None:
    if simulated := sys.modules.get(_SIMULATED):
        simulated.leave()


def _find(card: _Card) -> None:
    """Find the handle of a GPU, what it is, and its MIG instances."""
    index = card.gpu.index
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
    instances = tuple(_find_mig(handle, index)) if is_split else ()
    card.gpu, card.handle, card.instances = gpu, handle, instances


def _find_mig(parent: Any, index: int) -> list[tuple[Any, MigInstance]]:
    most = ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, parent)
    found = []
    for position in range(0 if most is UNKNOWN else most):  # most positions are empty
        handle = ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, position)
        uuid = UNKNOWN if handle is UNKNOWN else ask(pynvml.nvmlDeviceGetUUID, handle)
        if uuid is not UNKNOWN:
            found.append((handle, MigInstance(uuid, ask(pynvml.nvmlDeviceGetName, handle), index)))
    return found
