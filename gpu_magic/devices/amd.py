"""Reads AMD's GPUs through AMD SMI, with AMD's Python binding (`import amdsmi`).

The numbers of GPUs are those of the library, `rocm-smi` and `amd-smi`. HIP can count in another order: its
number of a GPU is `Gpu.hip_id` (`amdsmi_get_gpu_enumeration_info`). The UUID is the one that HIP and ROCr
know: `GPU-` and the 16 hexadecimal digits of the GPU's serial number (ROCm documentation, "GPU isolation
techniques"). HIP and ROCr do not know the UUID of `amdsmi_get_gpu_device_uuid`.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
import time
from dataclasses import replace
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.call_timeout import IDENTITY_SECONDS, CallTimeout
from gpu_magic.devices.model import UNKNOWN, Counters, Gpu, GpuProcess, GpuStatus, Inventory, Limits, Unknown
from gpu_magic.devices.problems import Cause, GpuCause, GpuProblem, Problem
from gpu_magic.devices.processes import ProcessTable, with_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

__all__ = ["Amd", "find_amdsmi"]

# For an unknown figure, the library's call succeeds and returns the highest number of 16 or 32 bits.
_HIGHEST, _HIGHEST_OF_32 = 0xFFFF, 0xFFFFFFFF

# AMDSMI_STATUS_NOT_SUPPORTED, _NOT_YET_IMPLEMENTED and _NO_PERM (amdsmi.h): the figure is missing, but the
# GPU works.
_REFUSALS = (2, 3, 10)


class _Card:
    """The identity of a GPU, and the handle that reads its figures."""

    def __init__(self, index: int, handle: Any) -> None:
        self.gpu, self.handle, self.is_found = Gpu(index, vendor="amd"), handle, False


class Amd:
    """Reads the machine's AMD GPUs, as `Nvml` reads NVIDIA's. The first read starts the library."""

    def __init__(self, amdsmi: Any, timeout: float = 2.0, now: Callable[[], float] = time.monotonic) -> None:
        self._amdsmi = amdsmi
        self._timeout = CallTimeout(timeout)
        self._processes = ProcessTable()
        self._is_started = False
        self._now, self._opened_at = now, -math.inf
        self._cards: list[_Card] = []
        self._machine = Inventory(vendor="amd")  # without GPUs

    def inventory(self) -> Inventory:
        """Return all AMD GPUs with their current figures. Like `Nvml.inventory`, it never raises."""
        with self._timeout.lock:
            started = time.monotonic()
            if self._now() - self._opened_at >= IDENTITY_SECONDS:
                self._open()
            if self._machine.problem:
                return self._machine
            reads = [(card.gpu.index, partial(self._read, card)) for card in self._cards]
            gpus = tuple(
                gpu or card.gpu._replace(problem=GpuProblem(GpuCause.HUNG))
                for card, gpu in zip(self._cards, self._timeout.call(reads, started), strict=True)
            )
            machine = replace(self._machine, gpus=gpus)
        return with_names(machine, self._processes.look_up)

    def limits(self, index: int) -> Limits:
        """Return the power limit of the GPU with this rocm-smi number. Slowdowns are UNKNOWN."""
        with self._timeout.lock:
            if index >= len(self._cards):
                return Limits()
            card = self._cards[index]
            (limits,) = self._timeout.call([(index, partial(self._read_limits, card))])
        return limits or Limits()

    def counters(self, identities: Collection[str]) -> dict[str, Counters]:
        """Return the counters of GPUs by identity. Call `inventory` first. Work of processes is UNKNOWN."""
        with self._timeout.lock:
            cards = [card for card in self._cards if card.is_found and card.gpu.identity in identities]
            reads = [(card.gpu.index, partial(self._read_counters, card)) for card in cards]
            found = self._timeout.call(reads) if reads else []
        return {card.gpu.identity: one or Counters() for card, one in zip(cards, found, strict=True)}

    def close(self) -> None:
        """Shut AMD SMI down. The next read starts it again."""
        with self._timeout.lock:
            if self._is_started:
                self._timeout.call([("shut down", partial(self._ask, "amdsmi_shut_down"))])
            self._is_started, self._opened_at, self._cards = False, -math.inf, []
            self._timeout.close()

    def _open(self) -> None:
        """Start the library if necessary, and list the GPUs."""
        handles: list[Any] | None = None
        self._machine = Inventory(vendor="amd", problem=Problem(Cause.AMD_HUNG))
        try:
            (handles,) = self._timeout.call([("open", self._list_handles)])
        except self._amdsmi.AmdSmiException as error:
            problem = Problem(Cause.AMD_ERROR, _reason(error))
            self._machine = Inventory(vendor="amd", problem=problem)
        if handles is None:
            self._cards = []
            return
        if len(handles) != len(self._cards):
            self._cards = [_Card(*one) for one in enumerate(handles)]
        for card in self._cards:  # kept, so that a lost GPU is still shown with its name
            card.is_found = False
        self._processes = ProcessTable()  # a process can rename itself
        self._machine, self._opened_at = Inventory(vendor="amd"), self._now()

    def _list_handles(self) -> list[Any]:
        if not self._is_started:
            self._amdsmi.amdsmi_init()  # INIT_AMD_GPUS: no CPUs
            self._is_started = True
        handles: list[Any] = self._amdsmi.amdsmi_get_processor_handles()
        return handles

    def _read(self, card: _Card) -> Gpu:
        """Identify a GPU, unless it is identified, and read its figures."""
        refusals: list[Exception] = []
        ask = partial(self._ask, refusals=refusals)
        if not card.is_found:
            card.gpu = self._identify(card, ask)
            card.is_found = card.gpu.identity != ""
        vram = self._amdsmi.AmdSmiMemoryType.VRAM
        total = ask("amdsmi_get_gpu_memory_total", card.handle, vram)
        used = ask("amdsmi_get_gpu_memory_usage", card.handle, vram)
        status = GpuStatus(
            used,
            UNKNOWN if UNKNOWN in (total, used) else max(0, total - used),
            _known(ask("amdsmi_get_gpu_activity", card.handle), "gfx_activity"),
            self._temperature(card, ask),
            _power(ask("amdsmi_get_power_info", card.handle)),
            self._running(card, ask),
        )
        is_refused = all(getattr(error, "err_code", None) in _REFUSALS for error in refusals)
        if (total, status) == (UNKNOWN, GpuStatus()) and not is_refused:
            return card.gpu._replace(problem=GpuProblem(GpuCause.AMD_ERROR, _reason(refusals[-1])))
        return card.gpu._replace(memory_total=total, status=status)

    def _read_limits(self, card: _Card) -> Limits:
        cap = self._ask("amdsmi_get_power_cap_info", card.handle)
        microwatts = 0 if cap is UNKNOWN else cap.get("power_cap")  # 0 if the library could not read it
        is_known = isinstance(microwatts, int) and 0 < microwatts < _HIGHEST_OF_32
        return Limits(microwatts / 1e6 if is_known else UNKNOWN)

    def _read_counters(self, card: _Card) -> Counters:
        energy = self._ask("amdsmi_get_energy_count", card.handle)
        running = self._ask("amdsmi_get_gpu_process_list", card.handle)
        return Counters(
            UNKNOWN
            if energy is UNKNOWN  # in units of counter_resolution microjoules
            else energy["energy_accumulator"] * energy["counter_resolution"] / 1e6,
            _known(self._ask("amdsmi_get_gpu_activity", card.handle), "gfx_activity"),
            UNKNOWN if running is UNKNOWN else {one["pid"]: _memory(one) for one in running},
        )

    def _identify(self, card: _Card, ask: Callable[..., Any]) -> Gpu:
        asic = ask("amdsmi_get_gpu_asic_info", card.handle)
        numbers = ask("amdsmi_get_gpu_enumeration_info", card.handle)
        driver = _known(ask("amdsmi_get_gpu_driver_info", card.handle), "driver_version")
        if driver is not UNKNOWN:
            self._machine = replace(self._machine, driver_version=driver)
        if asic is UNKNOWN:
            return card.gpu
        serial = str(_known(asic, "asic_serial"))
        number = int(serial, 16) if re.fullmatch(r"(0[xX])?[0-9A-Fa-f]{1,16}", serial) else 0
        return card.gpu._replace(
            uuid=f"GPU-{number:016x}" if number else UNKNOWN,
            name=_known(asic, "market_name"),
            bus_id=ask("amdsmi_get_gpu_device_bdf", card.handle),
            minor=_known(numbers, "drm_render"),
            hip_id=_known(numbers, "hip_id"),
        )

    def _temperature(self, card: _Card, ask: Callable[..., Any]) -> int | Unknown:
        """Return the temperature of the hottest spot, or at the edge if there is no such sensor."""
        sensors, metrics = self._amdsmi.AmdSmiTemperatureType, self._amdsmi.AmdSmiTemperatureMetric
        for sensor in (sensors.JUNCTION, sensors.EDGE):
            found: int | Unknown = ask("amdsmi_get_temp_metric", card.handle, sensor, metrics.CURRENT)
            if found is not UNKNOWN:
                return found
        return UNKNOWN

    def _running(self, card: _Card, ask: Callable[..., Any]) -> tuple[GpuProcess, ...] | Unknown:
        """Return the processes with memory on a GPU, without names."""
        running: list[dict[str, Any]] | Unknown = ask("amdsmi_get_gpu_process_list", card.handle)
        if running is UNKNOWN:
            return UNKNOWN
        return tuple([GpuProcess(one["pid"], memory=_memory(one)) for one in running])

    def _ask(self, function: str, *arguments: Any, refusals: list[Exception] | None = None) -> Any:
        """Call a function of amdsmi. Return UNKNOWN if the library refuses or lacks the function."""
        try:
            return getattr(self._amdsmi, function)(*arguments)
        except (self._amdsmi.AmdSmiException, AttributeError, KeyError, ValueError) as error:
            if refusals is not None:
                refusals.append(error)
            return UNKNOWN


def _known(answer: Any, name: str) -> Any:
    """Return a field of an answer. UNKNOWN if the library does not know it."""
    value = UNKNOWN if answer is UNKNOWN else answer.get(name, "N/A")
    if isinstance(value, int) and value >= _HIGHEST:
        return UNKNOWN
    return UNKNOWN if value in ("N/A", "") else value


def _power(answer: Any) -> float | Unknown:
    """Return the current power in watts, or the average. Which of them exists depends on the model."""
    for name in ("current_socket_power", "average_socket_power", "socket_power"):
        watts: float | Unknown = _known(answer, name)
        if watts is not UNKNOWN and watts:
            return watts
    return UNKNOWN


def _memory(process: dict[str, Any]) -> int | Unknown:
    """Return a process's bytes of video memory."""
    size: int | Unknown = process.get("memory_usage", {}).get("vram_mem", UNKNOWN)
    return size


def _reason(error: Exception) -> str:
    """Return the short text of an amdsmi error."""
    text = str(getattr(error, "err_info", error))
    return text.partition(" - ")[2] or text


def find_amdsmi() -> Any:
    """Return the module amdsmi. None if it or its library is missing.

    Without the library, importing amdsmi prints lines and raises KeyError (7.0.2, amdsmi_wrapper.py). So the
    library is opened first, from the places where amdsmi searches. Opening it starts nothing. If the library
    is of another version, the import raises AttributeError, KeyError or OSError.
    """
    spec = PathFinder.find_spec("amdsmi")
    if spec is None or spec.origin is None or not _opens(_places(Path(spec.origin).parent)):
        return None
    import amdsmi

    return amdsmi


def _places(package: Path) -> Iterator[str]:
    """Yield the places where amdsmi searches for its library, in order (`find_smi_library`, 7.0.2)."""
    if rocm := os.environ.get("ROCM_HOME", os.environ.get("ROCM_PATH")):
        yield str(Path(rocm, "lib", "libamd_smi.so"))
    yield "libamd_smi.so"  # on the loader's path
    yield str(package / "libamd_smi.so")
    yield str(Path(os.environ.get("ROCM_PATH", "/opt/rocm"), "lib", "libamd_smi.so"))


def _opens(places: Iterable[str]) -> bool:
    for place in places:
        with contextlib.suppress(OSError):
            ctypes.CDLL(place)
            return True
    return False
