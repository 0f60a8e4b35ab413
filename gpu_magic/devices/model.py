"""The machine's GPUs as plain data: what `%gpus` shows and everything else decides on.

Inside, memory is in bytes, power in watts, temperature in degrees Celsius, utilisation in percent of
the last sampling period (NVML's `nvmlUtilization_t.gpu`, the figure of nvidia-smi). A figure that the
driver would not give is `UNKNOWN`: it is never zero and never "free".
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.record import record
from gpu_magic.devices.unknown import UNKNOWN, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Device", "Gpu", "GpuProcess", "GpuStatus", "Inventory", "MigInstance"]


# A GPU whose driver still holds this much of it, with no process and no work, is idle: an idle
# A100 shows 0.5 to 1 GiB in use. Above it somebody is there, even where a container hides who.
_IDLE_MEMORY_SHARE = 0.05
_IDLE_UTILIZATION = 10


@record
class GpuProcess:
    """A process that has memory on a GPU.

    Parameters
    ----------
    pid
        As the driver reports it; in a container that can be the host's number.
    name
        The script or module for Python programs, else the program: `train.py`, `ipykernel`.
    owner
        The user's name; UNKNOWN where the process can't be seen from here.
    memory
        Bytes on this GPU.
    mine
        Whether it is this very process or a descendant of it.

    """

    pid: int
    name: str | Unknown
    owner: str | Unknown
    memory: int | Unknown
    mine: bool = False


@record
class GpuStatus:
    """The figures of one GPU (or MIG instance) at one moment.

    Parameters
    ----------
    memory_used, memory_free
        Bytes. `memory_used` is nvidia-smi's: without what the driver reserves for itself, where the
        driver tells them apart (since R510), so used + free can be less than the total.
    utilization
        Percent of the last sampling period in which a kernel ran.
    temperature
        Degrees Celsius.
    power
        Watts.
    processes
        Those that have compute memory here; UNKNOWN where the driver does not say.

    """

    memory_used: int | Unknown = UNKNOWN
    memory_free: int | Unknown = UNKNOWN
    utilization: int | Unknown = UNKNOWN
    temperature: int | Unknown = UNKNOWN
    power: float | Unknown = UNKNOWN
    processes: tuple[GpuProcess, ...] | Unknown = UNKNOWN


_NO_FIGURES = GpuStatus()


def _shows_use(memory_total: int | Unknown, now: GpuStatus) -> bool | Unknown:
    """Tell whether a figure shows that somebody is there; UNKNOWN where none does and one is missing."""
    has_memory: bool | Unknown = UNKNOWN
    if now.memory_used is not UNKNOWN and memory_total is not UNKNOWN:
        has_memory = now.memory_used >= _IDLE_MEMORY_SHARE * memory_total
    works = UNKNOWN if now.utilization is UNKNOWN else now.utilization >= _IDLE_UTILIZATION
    runs = UNKNOWN if now.processes is UNKNOWN else bool(now.processes)
    signs = (has_memory, works, runs)
    return True if True in signs else UNKNOWN if UNKNOWN in signs else False


@record
class MigInstance:
    """A part of a GPU that is split by MIG: CUDA sees it as a device of its own."""

    uuid: str
    name: str | Unknown
    gpu_index: int
    memory_total: int | Unknown = UNKNOWN
    status: GpuStatus = _NO_FIGURES

    @property
    def label(self) -> str:
        return f"{self.uuid[:8]} on GPU {self.gpu_index}"

    @property
    def is_busy(self) -> bool | Unknown:
        """As `Gpu.shows_use`."""
        return _shows_use(self.memory_total, self.status)


@record
class Gpu:
    """A physical GPU.

    Parameters
    ----------
    index
        As nvidia-smi and NVML number it: PCI bus order.
    uuid, name, bus_id
        The driver's; UNKNOWN for a GPU that does not answer.
    memory_total
        Bytes.
    mig
        The instances it is split into; empty where it is not split, or where none was made yet.
    is_split
        Whether MIG mode is on. CUDA can't use a split GPU as a whole.
    problem
        Why it does not answer, as a sentence; empty when it does.

    """

    index: int
    uuid: str | Unknown = UNKNOWN
    name: str | Unknown = UNKNOWN
    bus_id: str | Unknown = UNKNOWN
    memory_total: int | Unknown = UNKNOWN
    status: GpuStatus = _NO_FIGURES
    mig: tuple[MigInstance, ...] = ()
    is_split: bool = False
    problem: str = ""

    @property
    def label(self) -> str:
        return f"GPU {self.index}"

    @property
    def is_free(self) -> bool:
        """Whether nobody uses it, as far as everything that could show use was read and shows none."""
        return self.is_busy is False

    @property
    def is_busy(self) -> bool | Unknown:
        """Whether anything that was read shows that somebody uses it; UNKNOWN where not all was read."""
        return _shows_use(self.memory_total, self.status)


Device = Gpu | MigInstance


@record
class Inventory:
    """All GPUs of a machine at one moment.

    Parameters
    ----------
    gpus
        In nvidia-smi's order.
    driver_version, cuda_version
        The driver's version and the newest CUDA version that it runs, "13.0".
    simulated
        The profile of the simulated machine this is; empty for a real one.
    problem
        Why nothing could be read (no driver, say), as a sentence.

    """

    gpus: tuple[Gpu, ...] = ()
    driver_version: str | Unknown = UNKNOWN
    cuda_version: str | Unknown = UNKNOWN
    simulated: str = ""
    problem: str = ""

    def __iter__(self) -> Iterator[Gpu]:
        return iter(self.gpus)

    def __len__(self) -> int:
        return len(self.gpus)

    def __getitem__(self, index: int) -> Gpu:
        return self.gpus[index]

    @property
    def devices(self) -> tuple[Device, ...]:
        """Every GPU and MIG instance that has a UUID."""
        found: list[Device] = []
        for gpu in self.gpus:
            if gpu.uuid is not UNKNOWN:
                found.append(gpu)
            found.extend(gpu.mig)
        return tuple(found)

    @property
    def is_uniform(self) -> bool:
        """Whether all GPUs are known to be alike, so that "fastest first" is the PCI order.

        One that does not answer still counts for CUDA: it has to be known by its name at least.
        """
        names = {gpu.name for gpu in self.gpus}
        sizes = {gpu.memory_total for gpu in self.gpus if not gpu.problem}
        return len(self.gpus) == 1 or (len(names) <= 1 and len(sizes) <= 1 and UNKNOWN not in names | sizes)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON's types; UNKNOWN becomes None. Units as in the classes."""
        plain: dict[str, Any] = _plain(self)
        return plain


def _plain(value: Any) -> Any:
    if value is UNKNOWN:
        return None
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
