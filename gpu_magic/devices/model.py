"""The machine's GPUs as plain data: what `%gpus` shows, and what choices are made from.

Memory is in bytes, power in watts, temperature in degrees Celsius, utilization in percent of the last
sampling period (NVML's `nvmlUtilization_t.gpu`, the figure of nvidia-smi). A figure that the driver does not
give is `UNKNOWN`, never zero and never "free".
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from gpu_magic.devices.record import record
from gpu_magic.devices.unknown import UNKNOWN, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpu_magic.devices.claim import Claim

__all__ = [
    "ComputeMode",
    "Device",
    "Gpu",
    "GpuProcess",
    "GpuStatus",
    "Inventory",
    "MigInstance",
    "Speed",
    "Vendor",
    "parts",
]

Vendor = Literal["nvidia", "amd"]

# Which processes can use CUDA on a GPU: all, one at a time, or none. In nvidia-smi's words.
ComputeMode = Literal["Default", "Exclusive_Thread", "Exclusive_Process", "Prohibited"]

# Up to this much memory can be in use on an idle GPU, of whatever size: the driver shows 0.5 to 1 GiB on an
# idle A100, a desktop takes about as much, and a CUDA context half a GiB. Above it somebody uses the GPU,
# even where a container hides who.
_IDLE_MEMORY = 3 << 29  # bytes: 1.5 GiB
_IDLE_UTILIZATION = 10  # percent


# What serves all MPS clients on a GPU. The driver lists these as processes, too (nvidia-smi's type M+C), but
# for GPUs older than Volta: all that they hold is the server's there (CUDA MPS, "nvidia-cuda-mps-server").
_MPS_SERVER = "nvidia-cuda-mps-server"


@record
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

    @property
    def is_kernel(self) -> bool:
        """Whether it is the kernel of its notebook, and not a program that was started there."""
        return bool(self.notebook) and self.name == "ipykernel"

    @property
    def is_mps_server(self) -> bool:
        """Whether it serves others' processes, and is nobody's job."""
        return self.name == _MPS_SERVER


@record
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
    def mps_servers(self) -> tuple[GpuProcess, ...]:
        """MPS's server, where one is known to be there."""
        processes = () if self.processes is UNKNOWN else self.processes
        return tuple(process for process in processes if process.is_mps_server)


_NO_FIGURES = GpuStatus()


def _has_work(status: GpuStatus) -> bool | Unknown:
    return UNKNOWN if status.utilization is UNKNOWN else status.utilization >= _IDLE_UTILIZATION


def _is_busy(status: GpuStatus, *more: bool | Unknown) -> bool | Unknown:
    """Return whether a sign shows that a device is in use; UNKNOWN where none does and one is missing.

    The signs are its memory, its processes, and those that are given.
    """
    has_memory = UNKNOWN if status.memory_used is UNKNOWN else status.memory_used > _IDLE_MEMORY
    users = status.users
    signs = (has_memory, UNKNOWN if users is UNKNOWN else bool(users), *more)
    return True if True in signs else UNKNOWN if UNKNOWN in signs else False


@record
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
    status: GpuStatus = _NO_FIGURES
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
        return _is_busy(self.status)

    @property
    def is_free(self) -> bool:
        """Whether nobody uses or claims it. See `Gpu.is_free`."""
        return self.is_busy is False and not self.status.claims


@record
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


@record
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
        The number of its device file: 2 for /dev/nvidia2. It is the host's also where others can't be seen.
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
    status: GpuStatus = _NO_FIGURES
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
        users = () if self.status.users is UNKNOWN else self.status.users
        is_ours = bool(users) and all(process.mine for process in users)
        is_shared = bool(self.status.mps_servers)
        return self.is_exclusive and self.is_busy is True and not is_ours and not is_shared

    @property
    def is_free(self) -> bool:
        """Whether nobody uses or claims it: every figure that could show use was read, and shows none."""
        return self.is_busy is False and not self.status.claims

    @property
    def is_busy(self) -> bool | Unknown:
        """Whether a figure shows that somebody uses it; UNKNOWN where none does, and one is missing."""
        return _is_busy(self.status, _has_work(self.status))


Device = Gpu | MigInstance


def parts(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Return what CUDA can use of some devices: no GPU that is split by MIG."""
    return tuple(device for device in devices if isinstance(device, MigInstance) or not device.is_split)


@record
class Inventory:
    """All GPUs of a machine at one moment.

    Parameters
    ----------
    gpus
        In nvidia-smi's order; AMD's after NVIDIA's, in rocm-smi's.
    driver_version, cuda_version
        The driver's version, and the newest CUDA version that it supports, "13.0". AMD's driver has no such.
    simulated
        The profile of a simulated machine; empty for a real one.
    problem
        Why nothing could be read, as a sentence: there is no driver, for example. Empty where it could.
    limitation
        Why nothing but names and UUIDs could be read, as a sentence; empty where figures could.
    near
        Pairs of GPUs, each by its number and the lower one first, that are linked by NVLink or by one PCIe
        switch; UNKNOWN where it was not asked for.

    """

    gpus: tuple[Gpu, ...] = ()
    driver_version: str | Unknown = UNKNOWN
    cuda_version: str | Unknown = UNKNOWN
    simulated: str = ""
    problem: str = ""
    limitation: str = ""
    near: frozenset[tuple[int, int]] | Unknown = UNKNOWN

    def __iter__(self) -> Iterator[Gpu]:
        return iter(self.gpus)

    def __len__(self) -> int:
        return len(self.gpus)

    def __getitem__(self, index: int) -> Gpu:
        return self.gpus[index]

    @property
    def vendors(self) -> tuple[Vendor, ...]:
        """Whose GPUs there are; the first are those that plain numbers name."""
        return tuple(dict.fromkeys(gpu.vendor for gpu in self.gpus))

    def of_vendor(self, vendor: Vendor) -> Inventory:
        """Return the same machine with the GPUs of one vendor alone."""
        if all(gpu.vendor == vendor for gpu in self.gpus):
            return self
        return replace(self, gpus=tuple(gpu for gpu in self.gpus if gpu.vendor == vendor))

    @property
    def devices(self) -> tuple[Device, ...]:
        """Every GPU and MIG instance that has a UUID."""
        found: list[Device] = []
        for gpu in self.gpus:
            if gpu.uuid is not UNKNOWN:
                found.append(gpu)
            found.extend(gpu.mig)
        return tuple(found)

    def are_near(self, one: Device, other: Device) -> bool:
        """Return whether two whole GPUs are known to be linked by NVLink or by one PCIe switch."""
        if self.near is UNKNOWN or not (isinstance(one, Gpu) and isinstance(other, Gpu)):
            return False
        if one.vendor != "nvidia" or other.vendor != "nvidia":  # their numbers name others there
            return False
        first, last = sorted((one.index, other.index))
        return (first, last) in self.near

    def with_claims(self, claims: Mapping[str, tuple[Claim, ...]]) -> Inventory:
        """Return it with other processes' claims of now, which are given by the UUID of the device."""
        if not claims and not any(device.status.claims for device in self.devices):
            return self
        return replace(self, gpus=tuple(_claimed(gpu, claims) for gpu in self.gpus))

    def with_highest(self, utilization: Mapping[str, int | Unknown]) -> Inventory:
        """Return it with these figures in percent, by the GPU's UUID, where they are higher."""
        return replace(self, gpus=tuple(_at_least(gpu, utilization) for gpu in self.gpus))

    @property
    def is_uniform(self) -> bool:
        """Whether all GPUs are known to be alike, so that "fastest first" is PCI bus order.

        CUDA may still count a GPU that does not answer, so at least its name has to be known.
        """
        names = {gpu.name for gpu in self.gpus}
        sizes = {gpu.memory_total for gpu in self.gpus if not gpu.problem}
        return len(self.gpus) == 1 or (len(names) <= 1 and len(sizes) <= 1 and UNKNOWN not in names | sizes)

    @property
    def is_mixed(self) -> bool:
        """Whether two GPUs are known to be of different kinds."""
        names = {gpu.name for gpu in self.gpus if gpu.name is not UNKNOWN}
        sizes = {gpu.memory_total for gpu in self.gpus if gpu.memory_total is not UNKNOWN}
        return len(names) > 1 or len(sizes) > 1

    @property
    def fastest_first(self) -> tuple[Gpu, ...] | Unknown:
        """The GPUs as CUDA counts them with FASTEST_FIRST, in PCI bus order among those of one kind.

        How CUDA ranks kinds is not documented ("a simple heuristic"; CUDA programming guide). It is taken to
        be known where the faster kind has both the higher compute capability and more cores times clock.
        """
        if self.is_uniform:
            return self.gpus
        ranked = [(gpu, gpu.speed) for gpu in self.gpus if gpu.speed is not UNKNOWN and not gpu.problem]
        if len(ranked) < len(self.gpus):
            return UNKNOWN
        ranked.sort(key=lambda pair: (pair[1].capability, pair[1].cores * pair[1].clock), reverse=True)
        for (gpu, speed), (after, slower) in pairwise(ranked):
            if gpu.name != after.name and not speed.is_above(slower):
                return UNKNOWN
        return tuple(gpu for gpu, _ in ranked)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON's types, in the units of the classes. UNKNOWN becomes None."""
        plain: dict[str, Any] = _plain(self)
        return plain


def _claimed(gpu: Gpu, claims: Mapping[str, tuple[Claim, ...]]) -> Gpu:
    mig = tuple(replace(one, status=_with(one.status, claims.get(one.uuid, ()))) for one in gpu.mig)
    found = () if gpu.uuid is UNKNOWN else claims.get(gpu.uuid, ())
    return replace(gpu, mig=mig, status=_with(gpu.status, found))


def _with(status: GpuStatus, claims: tuple[Claim, ...]) -> GpuStatus:
    return status if status.claims == claims else replace(status, claims=claims)


def _at_least(gpu: Gpu, utilization: Mapping[str, int | Unknown]) -> Gpu:
    now = UNKNOWN if gpu.uuid is UNKNOWN else utilization.get(gpu.uuid, UNKNOWN)
    before = gpu.status.utilization
    if now is UNKNOWN or before is UNKNOWN or now <= before:
        return gpu
    return replace(gpu, status=replace(gpu.status, utilization=now))


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
