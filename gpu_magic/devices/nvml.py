"""Reads GPUs through NVML, with nvidia-ml-py (`import pynvml`).

Memory, utilization, temperature, power and processes are read for every snapshot, with five calls for each
GPU. Handles, names, UUIDs and MIG instances are kept for a minute. None of NVML's slow calls is made
(`nvmlDeviceGetPcieThroughput` sleeps 20 ms).

This module imports pynvml, so it is imported for the first snapshot and not before.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.binding import PROBLEM, pynvml
from gpu_magic.devices.call_timeout import CallTimeout
from gpu_magic.devices.inventory import Inventory
from gpu_magic.devices.limits import UNKNOWN_LIMITS, Limits, read_limits
from gpu_magic.devices.model import Gpu, MigInstance
from gpu_magic.devices.nvml_calls import Calls, ask, bytes_or_unknown, explain, explain_of_gpu
from gpu_magic.devices.nvml_counters import read_counters
from gpu_magic.devices.nvml_library import Card, Library, find, leave_simulation, open_library, shut_down
from gpu_magic.devices.process_detail import UNKNOWN_DETAIL, ProcessDetail
from gpu_magic.devices.processes import UNKNOWN_PROCESS, Process, gpu_process
from gpu_magic.devices.status import GpuProcess, GpuStatus
from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.errors import show_as
from gpu_magic.interrupts import is_unasked

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from gpu_magic.devices.counters import Counters

__all__ = ["HUNG_DRIVER", "NO_GPU", "Nvml"]

# An administrator can split a GPU, or bring a lost one back, while a kernel stays open for days.
_IDENTITY_SECONDS = 60.0
_ROOT = Path("/")

# For as long as a driver may start, which takes seconds for each GPU.
STARTING_SECONDS = 60.0
# Between two looks at whether the driver has started: nobody notices it, and an interrupt comes at once.
_LOOK_SECONDS = 0.02
_STARTING = (
    "gpu_magic is waiting for the NVIDIA driver, which can take seconds to start each GPU. "
    "An interrupt ends the wait."
)
_HUNG = "not answering: a call into the driver did not come back in time"
HUNG_DRIVER = "The NVIDIA driver does not answer: a call did not come back in time. It may do so later."
NO_GPU = (
    "The NVIDIA driver is there, and it has no GPU. A container has to be given one: docker run --gpus all."
)


class Nvml:
    """Reads the machine's GPUs. The driver's library is opened for the first read.

    Parameters
    ----------
    timeout
        Seconds after which calls that hang are given up.
    starting
        Seconds that the driver may take to start; None: STARTING_SECONDS. Without persistence mode it starts
        a GPU for its first user, which takes seconds: in `nvmlInit`, and since NVML 5 in
        `nvmlDeviceGetHandleByIndex`.
    root
        The folder with `proc` and `dev`, where the kernel module tells of GPUs without NVML.

    """

    def __init__(self, timeout: float = 2.0, starting: float | None = None, root: Path = _ROOT) -> None:
        self._timeout = CallTimeout(timeout)
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._library: Library | None = None
        self._simulate: str | None = None
        self._opened_at = -math.inf
        self._machine = Inventory()  # without GPUs, but for those that are known without NVML
        self._cards: list[Card] = []
        self._calls: Calls
        self._starting = STARTING_SECONDS if starting is None else starting
        self._start_until = -math.inf
        self._root = root

    def inventory(self) -> Inventory:
        """Return all GPUs with their figures now.

        It never raises for what a driver can do: what can't be read is UNKNOWN, and `Inventory.problem`
        or `Gpu.problem` says why. A call that hangs delays it by the timeout; a GPU that is known to hang
        does not. A driver that starts is waited for, which a line on stderr says, unless nobody asked.

        Raises
        ------
        KeyboardInterrupt
            That wait was interrupted. The driver goes on starting.

        """
        if PROBLEM:
            return Inventory(problem=PROBLEM)
        is_told = is_unasked()
        while True:
            with self._locked():
                machine, starting = self._look()
            if not starting or is_unasked() or time.monotonic() >= self._start_until:
                return machine
            try:
                # Without the lock, so that other threads get their answer meanwhile.
                while any(map(self._timeout.hangs, starting)) and time.monotonic() < self._start_until:
                    if not is_told:
                        is_told = True
                        print(_STARTING, file=sys.stderr, flush=True)  # noqa: T201 - it comes while one waits
                    time.sleep(_LOOK_SECONDS)
            except KeyboardInterrupt as interrupt:
                show_as(interrupt, "KeyboardInterrupt: the NVIDIA driver is still starting.")
                raise

    def _look(self) -> tuple[Inventory, list[Hashable]]:
        """Read all GPUs; return them, and the keys of the calls that hang and may be the driver's start."""
        began = time.monotonic()
        if not self._is_current() and (starting := self._open()):
            return self._machine, starting
        machine = self._machine
        if machine.problem or machine.gpus:
            return machine, []
        left = max(self._timeout.seconds / 4, self._timeout.seconds - (time.monotonic() - began))
        library = id(pynvml.nvmlLib)  # a GPU that hangs on one machine can be well on another
        reads = [((library, card.gpu.index), partial(self._read, card)) for card in self._cards]
        answers = list(zip(reads, self._cards, self._timeout.call(reads, left), strict=True))
        gpus = tuple(gpu or replace(card.gpu, problem=_HUNG) for _, card, gpu in answers)
        # One that was found before has been started.
        starting = [
            key
            for (key, _), card, gpu in answers
            if gpu is None and card.handle is None and card.gpu.uuid is UNKNOWN
        ]
        return Inventory(gpus, machine.driver_version, machine.cuda_version, machine.simulated), starting

    def limits(self, index: int) -> Limits:
        """Return what holds a GPU back, by nvidia-smi's number; UNKNOWN where it does not answer."""
        with self._locked():
            if not self._is_ours() or index >= len(self._cards) or self._cards[index].handle is None:
                return UNKNOWN_LIMITS
            read = partial(_read_limits, self._cards[index], self._calls)
            # By the same key as its figures: a GPU that hangs is not asked again.
            (limits,) = self._timeout.call([((id(pynvml.nvmlLib), index), read)])
        return limits or UNKNOWN_LIMITS

    def utilization(self) -> dict[str, int | Unknown]:
        """Return each GPU's utilization now, in percent, by its UUID; after `inventory`, which finds them."""
        with self._locked():
            cards = self._answering()
            asked = [
                ((id(pynvml.nvmlLib), index), partial(ask, pynvml.nvmlDeviceGetUtilizationRates, card.handle))
                for index, card in cards.items()
            ]
            try:
                rates = self._timeout.call(asked)
            except pynvml.NVMLError:  # one is lost, and the next snapshot says so
                return {}
        found = zip(cards.values(), rates, strict=True)
        return {str(card.gpu.uuid): UNKNOWN if rate in (None, UNKNOWN) else rate.gpu for card, rate in found}

    def counters(self, uuids: Collection[str], since: int | None) -> dict[str, Counters]:
        """Return what devices count, by their UUIDs; after `inventory`, which finds them.

        Parameters
        ----------
        uuids
            Which GPUs and MIG instances.
        since
            As in `read_counters`.

        """
        with self._locked():
            handles = {index: _handles(card, uuids) for index, card in self._answering().items()}
            asked = {index: found for index, found in handles.items() if found}
            reads = [
                ((id(pynvml.nvmlLib), index), partial(read_counters, found, self._calls, since))
                for index, found in asked.items()
            ]
            answers = self._timeout.call(reads) if reads else []
        return {uuid: one for answer in answers if answer for uuid, one in answer.items()}

    def look_up(self, pid: int) -> Process:
        """Return the owner and the name of a process that the driver has listed."""
        library = self._library
        return UNKNOWN_PROCESS if library is None else library.look_up(pid)

    def process_detail(self, pid: int) -> ProcessDetail:
        """Return more about a process that a snapshot has listed."""
        library = self._library
        return UNKNOWN_DETAIL if library is None else library.detail(pid)

    def close(self) -> None:
        """Shut NVML down, or take the simulated machine away; the next read opens it again."""
        with self._locked():
            if self._is_ours():
                self._timeout.call([(("shut down", id(pynvml.nvmlLib)), shut_down)])
            self._library = None
            self._timeout.close()
            leave_simulation()

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

    def _answering(self) -> dict[int, Card]:
        """Return the GPUs that have answered, by their numbers."""
        cards = self._cards if self._is_ours() else []
        return {card.gpu.index: card for card in cards if card.handle is not None}

    def _is_current(self) -> bool:
        return (
            self._is_ours()
            and time.monotonic() - self._opened_at < _IDENTITY_SECONDS
            and self._simulate == os.environ.get("GPU_MAGIC_SIMULATE")
        )

    def _open(self) -> list[Hashable]:
        """Open the library, unless it is open, and count the GPUs; return as `_look` the call that hangs.

        The GPUs themselves are found when they are read, so that one that hangs delays no other.
        """
        simulate = self._simulate = os.environ.get("GPU_MAGIC_SIMULATE")
        key = ("open", simulate)
        if not self._is_ours():  # it can have been opened since that was given up
            self._library = self._timeout.late(key) or self._library
        before = self._library if self._is_ours() else None
        if before is None and not self._timeout.hangs(key):
            self._start_until = time.monotonic() + self._starting
        self._opened_at = -math.inf
        machine = Inventory(problem=HUNG_DRIVER)
        library: Library | None = None
        try:
            (library,) = self._timeout.call([(key, partial(open_library, before, simulate))])
        except pynvml.NVMLError as error:
            machine = Inventory(problem=explain(error))
            if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
                from gpu_magic.devices.kernel_module import NO_NVML, list_gpus  # needed by few

                if gpus := list_gpus(self._root):
                    machine = Inventory(gpus, limitation=NO_NVML)
        if library is None:
            self._machine, self._cards = machine, []
            return [key] if before is None and machine.problem is HUNG_DRIVER else []
        if before and before.handle is library.handle and library.count == len(self._cards):
            for card in self._cards:  # kept, as a GPU that is lost by now is shown with its name
                card.handle = None
        else:
            self._cards = [Card(Gpu(index)) for index in range(library.count)]
            self._calls = Calls()
        self._library = library
        self._machine = library.machine if library.count else replace(library.machine, problem=NO_GPU)
        self._opened_at = time.monotonic()
        return []

    def _read(self, card: Card) -> Gpu:
        """Find a GPU, unless it was found before, and read its figures."""
        try:
            if card.handle is None:
                find(card)
            gpu = card.gpu
            total, status = self._figures(card.handle)
            mig = tuple([self._read_mig(handle, instance) for handle, instance in card.instances])
        except pynvml.NVMLError as error:
            card.handle = None
            return replace(card.gpu, problem=explain_of_gpu(error))
        # `replace` would take four times as long, for every GPU of every snapshot.
        return Gpu(
            gpu.index,
            gpu.uuid,
            gpu.name,
            gpu.bus_id,
            total,
            status,
            mig,
            gpu.is_split,
            "",
            gpu.compute_mode,
            gpu.speed,
            gpu.minor,
        )

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
            (),
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
        # A list first: a generator would take longer, for every GPU of every snapshot.
        return tuple(
            [
                gpu_process(process.pid, look_up(process.pid), bytes_or_unknown(process.usedGpuMemory))
                for process in running
            ]
        )


def _handles(card: Card, uuids: Collection[str]) -> dict[str, Any]:
    """Return the handles of those of some devices that are a GPU, or a MIG instance of it, by their UUIDs."""
    found = {str(card.gpu.uuid): card.handle}
    found |= {str(instance.uuid): handle for handle, instance in card.instances}
    return {uuid: handle for uuid, handle in found.items() if uuid in uuids}


def _read_limits(card: Card, calls: Calls) -> Limits:
    try:
        return read_limits(card.handle, calls)
    except pynvml.NVMLError:  # it is lost, and the next snapshot says so
        return UNKNOWN_LIMITS
