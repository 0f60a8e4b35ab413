"""GPUs, what is on them, and their figures at one moment, as plain data.

Memory is in bytes, power in watts, temperature in degrees Celsius, utilization in percent of the last
sampling period (NVML's `nvmlUtilization_t.gpu`, the figure of nvidia-smi). A figure that the driver does not
give is `UNKNOWN`, never zero and never "free".
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from gpu_magic.text import age_text, printable, since_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "UNKNOWN",
    "Claim",
    "ComputeMode",
    "Counters",
    "Device",
    "Gpu",
    "GpuProcess",
    "GpuStatus",
    "Inventory",
    "Limits",
    "MigInstance",
    "Speed",
    "Unknown",
    "Vendor",
    "idle_text",
    "parts",
]

# Up to this much memory can be in use on an idle GPU, of whatever size: the driver shows 0.5 to 1 GiB on an
# idle A100, a desktop takes about as much, and a CUDA context half a GiB. Above it somebody uses the GPU,
# even where a container hides who.
_IDLE_MEMORY = 3 << 29  # bytes: 1.5 GiB
_IDLE_UTILIZATION = 10  # percent
_IDLE_FROM = 600  # seconds: whoever reads an output or gets a coffee is not idle
# What serves all MPS clients on a GPU. The driver lists these as processes, too (nvidia-smi's type M+C), but
# for GPUs older than Volta: all that they hold is the server's there (CUDA MPS, "nvidia-cuda-mps-server").
_MPS_SERVER = "nvidia-cuda-mps-server"


class Unknown(enum.Enum):
    """The type of `UNKNOWN`, so that type checkers see `x is UNKNOWN` as a test."""

    UNKNOWN = "UNKNOWN"

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        # `if gpu.status.utilization:` would read "busy" or "idle" into a figure that is neither.
        raise TypeError("UNKNOWN is neither true nor false: test it with `is UNKNOWN`")


UNKNOWN: Final = Unknown.UNKNOWN

Vendor = Literal["nvidia", "amd"]
# Which processes can use CUDA on a GPU: all, one at a time, or none. In nvidia-smi's words.
ComputeMode = Literal["Default", "Exclusive_Thread", "Exclusive_Process", "Prohibited"]


@dataclass(frozen=True, slots=True)
class Claim:
    """Another process's claim on a device. It is advisory: nothing keeps others off the device.

    Parameters
    ----------
    owner
        The name of the user whose process holds it.
    since
        When it was made, in seconds since the epoch.
    pid
        The process that holds it, as the system's kernel says; UNKNOWN where it can't be seen from here.
    notebook
        What its owner says that it is: the name of a notebook or of a script; empty where nothing is said.
    is_own
        Whether it is a process of the user who looks, as another notebook is.
    idle
        Whole seconds since its last cell has ended, 0 while one runs; UNKNOWN for what has no cells.
    waits
        Whether it is no claim yet: its process came first, and the device is left to it.

    """

    owner: str
    since: float
    pid: int | Unknown = UNKNOWN
    notebook: str = ""
    is_own: bool = False
    idle: int | Unknown = UNKNOWN
    waits: bool = False

    def __str__(self) -> str:
        """Return `claimed by maria: train.ipynb, since 14:02`; of this user's own, `claimed by you: …`."""
        what = f": {self.notebook}" if self.notebook else ""
        how = f"claimed by {'you' if self.is_own else self.owner}{what},"
        if self.waits:
            waiter = f"your {self.notebook or 'other process'}" if self.is_own else f"{self.owner}{what}"
            how = f"kept for {waiter}, waiting"
        idle = f", {text}" if (text := idle_text(self.idle)) else ""
        return printable(f"{how} since {since_text(self.since)}{idle}")


def idle_text(idle: int | Unknown) -> str:
    """Return `idle 9 h`; empty under ten minutes, and if nothing is known."""
    return "" if idle is UNKNOWN or idle < _IDLE_FROM else f"idle {age_text(idle)}"


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
    name: str | Unknown = UNKNOWN
    owner: str | Unknown = UNKNOWN
    memory: int | Unknown = UNKNOWN
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


_NO_FIGURES = GpuStatus()


def _is_busy(status: GpuStatus, *more: bool | Unknown) -> bool | Unknown:
    """Return whether memory, processes or more signs show use; UNKNOWN where none does and one is missing."""
    has_memory = UNKNOWN if status.memory_used is UNKNOWN else status.memory_used > _IDLE_MEMORY
    users = status.users
    signs = (has_memory, UNKNOWN if users is UNKNOWN else bool(users), *more)
    return True if True in signs else UNKNOWN if UNKNOWN in signs else False


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A MIG instance: a part of a GPU that CUDA sees as a device of its own.

    Parameters
    ----------
    uuid, name
        The driver's: `MIG-41b7…`, `NVIDIA A100 80GB MIG 3g.40gb`.
    gpu_index
        The index of the GPU that it is a part of.
    number
        Its number in its GPU: `Device` of nvidia-smi -L, `MIG Dev` of nvidia-smi.
    memory_total
        Bytes.
    status
        Its figures. NVML has no utilization, temperature and power of a MIG instance.
    ids
        The numbers of its GPU instance and its compute instance: `GI ID` and `CI ID` of nvidia-smi. They are
        a second way to name it to CUDA, `MIG-GPU-8f3a…/1/0`, and before R470 the only one.

    """

    uuid: str
    name: str | Unknown
    gpu_index: int
    number: int
    memory_total: int | Unknown = UNKNOWN
    status: GpuStatus = _NO_FIGURES
    ids: tuple[int, int] | Unknown = UNKNOWN

    @property
    def number_text(self) -> str:
        """What one types for it: `2:1`, which is what NVIDIA's container toolkit calls it, too."""
        return f"{self.gpu_index}:{self.number}"

    @property
    def label(self) -> str:
        return f"MIG instance {self.number_text}"

    @property
    def is_busy(self) -> bool | Unknown:
        """Whether its memory or its processes show use; UNKNOWN where none does, and one is missing."""
        return _is_busy(self.status)

    @property
    def is_free(self) -> bool:
        """Whether nobody uses or claims it. See `Gpu.is_free`."""
        return self.is_busy is False and not self.status.claims


class Speed(NamedTuple):
    """What CUDA can tell the faster of two kinds of GPUs by."""

    capability: tuple[int, int]  # CUDA's compute capability: (8, 0)
    cores: int  # how many CUDA cores it has
    clock: int  # the highest frequency of its streaming multiprocessors in MHz


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
        is_shared = bool(self.status.mps_servers)
        return self.is_exclusive and self.is_busy is True and not self.status.is_ours and not is_shared

    @property
    def is_free(self) -> bool:
        """Whether nobody uses or claims it: every figure that could show use was read, and shows none."""
        return self.is_busy is False and not self.status.claims

    @property
    def is_busy(self) -> bool | Unknown:
        """Whether a figure shows that somebody uses it; UNKNOWN where none does, and one is missing."""
        work = self.status.utilization
        return _is_busy(self.status, UNKNOWN if work is UNKNOWN else work >= _IDLE_UTILIZATION)


Device = Gpu | MigInstance


def parts(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Return what CUDA can use of some devices: no GPU that is split by MIG."""
    return tuple(device for device in devices if isinstance(device, MigInstance) or not device.is_split)


@dataclass(frozen=True, slots=True)
class Inventory:
    """All GPUs of a machine at one moment: what `%gpus` shows, and what choices are made from.

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

    """

    gpus: tuple[Gpu, ...] = ()
    driver_version: str | Unknown = UNKNOWN
    cuda_version: str | Unknown = UNKNOWN
    simulated: str = ""
    problem: str = ""
    limitation: str = ""

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

    def with_claims(self, claims: Mapping[str, tuple[Claim, ...]]) -> Inventory:
        """Return it with other processes' claims of now, which are given by the UUID of the device."""
        if not claims and not any(device.status.claims for device in self.devices):
            return self

        def claimed(device: Any) -> Any:
            return replace(device, status=replace(device.status, claims=claims.get(device.uuid, ())))

        gpus = [replace(gpu, mig=tuple(map(claimed, gpu.mig))) for gpu in self.gpus]
        return replace(self, gpus=tuple(map(claimed, gpus)))

    def with_highest(self, later: Inventory) -> Inventory:
        """Return it with the utilization of a later reading, of each GPU where that is higher."""
        now: dict[str | Unknown, int | Unknown] = {gpu.uuid: gpu.status.utilization for gpu in later.gpus}
        now[UNKNOWN] = UNKNOWN

        def highest(gpu: Gpu) -> Gpu:
            before, after = gpu.status.utilization, now.get(gpu.uuid, UNKNOWN)
            if before is UNKNOWN or after is UNKNOWN or after <= before:
                return gpu
            return replace(gpu, status=replace(gpu.status, utilization=after))

        return replace(self, gpus=tuple(map(highest, self.gpus)))

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
        ranked = [
            (gpu.speed.capability, gpu.speed.cores * gpu.speed.clock, gpu)
            for gpu in self.gpus
            if gpu.speed is not UNKNOWN and not gpu.problem
        ]
        if len(ranked) < len(self.gpus):
            return UNKNOWN
        ranked.sort(key=lambda one: one[:2], reverse=True)
        for (capability, rate, gpu), (lower, slower, after) in pairwise(ranked):
            if gpu.name != after.name and not (capability > lower and rate > slower):
                return UNKNOWN
        return tuple(gpu for *_, gpu in ranked)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON's types, in the units of the classes. UNKNOWN becomes None."""
        plain: dict[str, Any] = _plain(self)
        return plain


def _plain(value: Any) -> Any:
    if value is UNKNOWN:
        return None
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


class Counters(NamedTuple):
    """What a GPU or MIG instance counts: read many times a second while a cell is measured."""

    energy: float | Unknown = UNKNOWN  # joules of the whole GPU since the driver was loaded
    utilization: int | Unknown = UNKNOWN  # percent, as in `GpuStatus`
    memory: Mapping[int, int | Unknown] | Unknown = UNKNOWN  # bytes of each process, by its number
    work: Mapping[int, int] | Unknown = UNKNOWN  # percent of the time in which its kernels ran, if any did


class Limits(NamedTuple):
    """What holds a GPU back: read for the GPUs that somebody looks at closely."""

    power: float | Unknown = UNKNOWN  # watts that it may draw, as the driver enforces it
    slowdowns: tuple[str, ...] | Unknown = UNKNOWN  # what slows it down now, in a few words each
