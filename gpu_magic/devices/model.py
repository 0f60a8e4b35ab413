"""GPUs and their MIG instances as plain data; `status` has their figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gpu_magic.devices.status import NO_FIGURES, GpuStatus, has_work, is_busy
from gpu_magic.devices.unknown import UNKNOWN, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ComputeMode", "Device", "Gpu", "MigInstance", "Speed", "Vendor", "parts"]

Vendor = Literal["nvidia", "amd"]

# Which processes can use CUDA on a GPU: all, one at a time, or none. In nvidia-smi's words.
ComputeMode = Literal["Default", "Exclusive_Thread", "Exclusive_Process", "Prohibited"]


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A MIG instance: a part of a GPU that CUDA sees as a device of its own.

    Parameters
    ----------
    uuid, name
        The driver's: `MIG-41b7…`, `NVIDIA A100 80GB MIG 3g.40gb`.
    gpu_index
        The index of the GPU that it is a part of.
    memory_total
        Bytes.
    status
        Its figures. NVML has no utilization, temperature and power of a MIG instance.
    number
        Its number in its GPU: `Device` of nvidia-smi -L, `MIG Dev` of nvidia-smi.
    ids
        The numbers of its GPU instance and its compute instance: `GI ID` and `CI ID` of nvidia-smi. Drivers
        before R470 name it by them: `MIG-GPU-8f3a…/1/0`.

    """

    uuid: str
    name: str | Unknown
    gpu_index: int
    memory_total: int | Unknown = UNKNOWN
    status: GpuStatus = NO_FIGURES
    number: int | Unknown = UNKNOWN
    ids: tuple[int, int] | Unknown = UNKNOWN

    @property
    def number_text(self) -> str:
        """What one types for it: `2:1`, which is what NVIDIA's container toolkit calls it, too."""
        return self.uuid if self.number is UNKNOWN else f"{self.gpu_index}:{self.number}"

    @property
    def label(self) -> str:
        if self.number is UNKNOWN:
            return f"{self.uuid[:8]} on GPU {self.gpu_index}"
        return f"MIG instance {self.number_text}"

    @property
    def is_busy(self) -> bool | Unknown:
        """Whether it is in use; UNKNOWN where that can't be known. See `Gpu.is_busy`.

        NVML has no utilization of it. Its memory and its processes say it: a process that uses CUDA on it
        has memory there.
        """
        return is_busy(self.status)

    @property
    def is_free(self) -> bool:
        """Whether nobody uses or claims it. See `Gpu.is_free`."""
        return self.is_busy is False and not self.status.claims


@dataclass(frozen=True, slots=True)
class Speed:
    """What CUDA can tell the faster of two kinds of GPUs by.

    Parameters
    ----------
    capability
        CUDA's compute capability: (8, 0).
    cores
        How many CUDA cores it has.
    clock
        The highest frequency of its streaming multiprocessors in MHz.

    """

    capability: tuple[int, int]
    cores: int
    clock: int

    def is_above(self, other: Speed) -> bool:
        """Return whether it is better by each of the two figures that a rank can follow."""
        return self.capability > other.capability and self.cores * self.clock > other.cores * other.clock


@dataclass(frozen=True, slots=True)
class Gpu:
    """A physical GPU.

    Parameters
    ----------
    index
        Its number in nvidia-smi and NVML, which is PCI bus order; of an AMD GPU in rocm-smi and amd-smi.
    uuid, name, bus_id
        The driver's; UNKNOWN where a GPU does not answer.
    memory_total
        Bytes.
    status
        Its figures.
    mig
        Its MIG instances.
    is_split
        Whether MIG mode is on, even where no instance was made yet. CUDA can't use such a GPU as a whole.
    problem
        Why it does not answer; empty where it does.
    compute_mode
        Which processes can use CUDA on it.
    speed
        How fast it is beside other kinds.
    minor
        The number of its device file: 2 for /dev/nvidia2, of an AMD GPU 130 for /dev/dri/renderD130. It is
        the host's also where others can't be seen.
    vendor
        Whose it is: "nvidia" or "amd".
    prefix
        What one types before its number, where that alone is another GPU's: "amd:" on a machine with both.
    hip_id
        HIP's number of an AMD GPU, as long as no variable hides one; it can differ from rocm-smi's.

    """

    index: int
    uuid: str | Unknown = UNKNOWN
    name: str | Unknown = UNKNOWN
    bus_id: str | Unknown = UNKNOWN
    memory_total: int | Unknown = UNKNOWN
    status: GpuStatus = NO_FIGURES
    mig: tuple[MigInstance, ...] = ()
    is_split: bool = False
    problem: str = ""
    compute_mode: ComputeMode | Unknown = UNKNOWN
    speed: Speed | Unknown = UNKNOWN
    minor: int | Unknown = UNKNOWN
    vendor: Vendor = "nvidia"
    prefix: str = ""
    hip_id: int | Unknown = UNKNOWN

    @property
    def label(self) -> str:
        return f"AMD GPU {self.index}" if self.prefix else f"GPU {self.index}"

    @property
    def number_text(self) -> str:
        """What one types for it: `2`, or `amd:2`."""
        return f"{self.prefix}{self.index}"

    @property
    def is_prohibited(self) -> bool:
        """Whether its compute mode lets no process use CUDA on it."""
        return self.compute_mode == "Prohibited"

    @property
    def is_exclusive(self) -> bool:
        """Whether its compute mode lets one process at a time use CUDA on it."""
        return self.compute_mode in ("Exclusive_Process", "Exclusive_Thread")

    @property
    def is_taken(self) -> bool:
        """Whether its compute mode keeps this process away, as another one seems to use it.

        With MPS it does not: "Exclusive-mode restrictions are applied to the MPS server, not MPS clients"
        (CUDA MPS, "System considerations").
        """
        is_shared = bool(self.status.mps_servers)
        return self.is_exclusive and self.is_busy is True and not self.status.is_ours and not is_shared

    @property
    def is_free(self) -> bool:
        """Whether nobody uses or claims it: every figure that could show use was read, and shows none."""
        return self.is_busy is False and not self.status.claims

    @property
    def is_busy(self) -> bool | Unknown:
        """Whether a figure shows that somebody uses it; UNKNOWN where none does, and one is missing."""
        return is_busy(self.status, has_work(self.status))


Device = Gpu | MigInstance


def parts(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Return what CUDA can use of some devices: no GPU that is split by MIG."""
    return tuple(device for device in devices if isinstance(device, MigInstance) or not device.is_split)
