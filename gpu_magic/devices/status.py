"""The figures of a GPU at one moment, the processes on it, and whether they show that it is in use.

Memory is in bytes, power in watts, temperature in degrees Celsius, utilization in percent of the last
sampling period (NVML's `nvmlUtilization_t.gpu`, the figure of nvidia-smi). A figure that the driver does not
give is `UNKNOWN`, never zero and never "free".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN, Unknown

if TYPE_CHECKING:
    from gpu_magic.devices.claim import Claim

__all__ = ["NO_FIGURES", "GpuProcess", "GpuStatus", "has_work", "is_busy"]

# Up to this much memory can be in use on an idle GPU, of whatever size: the driver shows 0.5 to 1 GiB on an
# idle A100, a desktop takes about as much, and a CUDA context half a GiB. Above it somebody uses the GPU,
# even where a container hides who.
_IDLE_MEMORY = 3 << 29  # bytes: 1.5 GiB
_IDLE_UTILIZATION = 10  # percent


# What serves all MPS clients on a GPU. The driver lists these as processes, too (nvidia-smi's type M+C), but
# for GPUs older than Volta: all that they hold is the server's there (CUDA MPS, "nvidia-cuda-mps-server").
_MPS_SERVER = "nvidia-cuda-mps-server"


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that has memory on a GPU.

    Parameters
    ----------
    pid
        As the driver reports it. In a container this can be the host's number.
    name
        Of a Python program the script or the module, else the program: `train.py`, `ipykernel`, `Xorg`.
    owner
        The name of its user; UNKNOWN where the process can't be seen from here.
    memory
        Bytes on this GPU.
    mine
        Whether it is this process or a descendant.
    is_own
        Whether it belongs to the user of this process, by its effective user ID.
    notebook
        The path of the notebook whose kernel it is, or was started in. Only of one's own; empty where there
        is none, or that is not known.
    started
        When it was started, in the clock's ticks since the machine was: with its number, it tells a process
        from a later one with the same number.
    age
        Whole seconds since then.
    work
        Percent of the time since the last look in which its kernels ran, at most; UNKNOWN at the first look.
    idle
        Whole seconds since it did something, as far as that is known: see `Idleness`.

    """

    pid: int
    name: str | Unknown
    owner: str | Unknown
    memory: int | Unknown
    mine: bool = False
    is_own: bool = False
    notebook: str = ""
    started: int | Unknown = UNKNOWN
    age: int | Unknown = UNKNOWN
    work: int | Unknown = field(default=UNKNOWN, compare=False)
    idle: int | Unknown = UNKNOWN

    @property
    def is_kernel(self) -> bool:
        """Whether it is the kernel of its notebook, and not a program that was started there."""
        return bool(self.notebook) and self.name == "ipykernel"

    @property
    def is_mps_server(self) -> bool:
        """Whether it serves others' processes, and is nobody's job."""
        return self.name == _MPS_SERVER


@dataclass(frozen=True, slots=True)
class GpuStatus:
    """The figures of one GPU (or MIG instance) at one moment.

    Parameters
    ----------
    memory_used, memory_free
        Bytes. `memory_used` is nvidia-smi's figure. Since R510 it does not include what the driver reserves
        for itself, so used + free can be less than the total.
    utilization
        Percent of the last sampling period during which a kernel ran on the GPU.
    temperature
        Degrees Celsius.
    power
        Watts.
    processes
        Those that have compute memory on it; UNKNOWN where the driver does not list them.
    claims
        What other processes have claimed of it.

    """

    memory_used: int | Unknown = UNKNOWN
    memory_free: int | Unknown = UNKNOWN
    utilization: int | Unknown = UNKNOWN
    temperature: int | Unknown = UNKNOWN
    power: float | Unknown = UNKNOWN
    processes: tuple[GpuProcess, ...] | Unknown = UNKNOWN
    claims: tuple[Claim, ...] = ()

    @property
    def users(self) -> tuple[GpuProcess, ...] | Unknown:
        """The processes that are somebody's job: all but MPS's server."""
        if self.processes is UNKNOWN:
            return UNKNOWN
        return tuple(process for process in self.processes if not process.is_mps_server)

    @property
    def is_ours(self) -> bool:
        """Whether processes use it, and all of them are this one or its descendants."""
        return self.users is not UNKNOWN and bool(self.users) and all(one.mine for one in self.users)

    @property
    def mps_servers(self) -> tuple[GpuProcess, ...]:
        """MPS's server, where one is known to be there."""
        processes = () if self.processes is UNKNOWN else self.processes
        return tuple(process for process in processes if process.is_mps_server)


NO_FIGURES = GpuStatus()


def has_work(status: GpuStatus) -> bool | Unknown:
    return UNKNOWN if status.utilization is UNKNOWN else status.utilization >= _IDLE_UTILIZATION


def is_busy(status: GpuStatus, *more: bool | Unknown) -> bool | Unknown:
    """Return whether a sign shows that a device is in use; UNKNOWN where none does and one is missing.

    The signs are its memory, its processes, and those that are given.
    """
    has_memory = UNKNOWN if status.memory_used is UNKNOWN else status.memory_used > _IDLE_MEMORY
    users = status.users
    signs = (has_memory, UNKNOWN if users is UNKNOWN else bool(users), *more)
    return True if True in signs else UNKNOWN if UNKNOWN in signs else False
