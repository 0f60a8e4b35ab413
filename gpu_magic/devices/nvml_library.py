"""Opens NVML's library, and finds the GPUs that it has: what is kept from one snapshot to the next."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.binding import pynvml
from gpu_magic.devices.inventory import Inventory
from gpu_magic.devices.model import ComputeMode, Gpu, MigInstance, Speed
from gpu_magic.devices.nvml_calls import ask
from gpu_magic.devices.processes import ProcessTable
from gpu_magic.devices.record import record
from gpu_magic.devices.unknown import UNKNOWN, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_magic.devices.process_detail import ProcessDetail
    from gpu_magic.devices.processes import Process

__all__ = ["Card", "Library", "find", "leave_simulation", "open_library", "shut_down"]

_SIMULATED = "gpu_magic.devices.simulated"

# In the order of NVML's numbers (`nvmlComputeMode_t`).
_COMPUTE_MODES: tuple[ComputeMode, ...] = ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")


@record
class Library:
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
    detail
        Returns more about it.

    """

    handle: object
    count: int
    machine: Inventory
    look_up: Callable[[int], Process]
    detail: Callable[[int], ProcessDetail]


class Card:
    """A GPU as it was found, and the handles to ask for its figures; no handle: it is still to be found."""

    def __init__(
        self, gpu: Gpu, handle: Any = None, instances: tuple[tuple[Any, MigInstance], ...] = ()
    ) -> None:
        self.gpu = gpu
        self.handle = handle
        self.instances = instances


def open_library(before: Library | None, simulate: str | None) -> Library:
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
        leave_simulation()
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
    processes = simulated_machine or ProcessTable()
    return Library(handle, count, machine, processes.look_up, processes.detail)


def shut_down() -> None:
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()


def leave_simulation() -> None:
    if simulated := sys.modules.get(_SIMULATED):
        simulated.leave()


def find(card: Card) -> None:
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
        compute_mode=_compute_mode(handle),
        speed=_speed(handle),
        minor=ask(pynvml.nvmlDeviceGetMinorNumber, handle),
    )
    instances = tuple(_find_mig(handle, index)) if is_split else ()
    card.gpu, card.handle, card.instances = gpu, handle, instances


def _compute_mode(handle: Any) -> ComputeMode | Unknown:
    number = ask(pynvml.nvmlDeviceGetComputeMode, handle)
    return _COMPUTE_MODES[number] if number in range(len(_COMPUTE_MODES)) else UNKNOWN


def _speed(handle: Any) -> Speed | Unknown:
    figures = (
        ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle),
        ask(pynvml.nvmlDeviceGetNumGpuCores, handle),
        ask(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM),
    )
    return UNKNOWN if UNKNOWN in figures else Speed(*figures)


def _find_mig(parent: Any, index: int) -> list[tuple[Any, MigInstance]]:
    most = ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, parent)
    found = []
    for position in range(0 if most is UNKNOWN else most):  # most positions are empty
        handle = ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, position)
        uuid = UNKNOWN if handle is UNKNOWN else ask(pynvml.nvmlDeviceGetUUID, handle)
        if uuid is not UNKNOWN:
            name, ids = ask(pynvml.nvmlDeviceGetName, handle), _instance_ids(handle)
            found.append((handle, MigInstance(uuid, name, index, number=position, ids=ids)))
    return found


def _instance_ids(handle: Any) -> tuple[int, int] | Unknown:
    ids = (
        ask(pynvml.nvmlDeviceGetGpuInstanceId, handle),
        ask(pynvml.nvmlDeviceGetComputeInstanceId, handle),
    )
    return UNKNOWN if UNKNOWN in ids else ids
