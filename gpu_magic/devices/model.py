"""GPUs, what is on them, and their figures at one moment, as plain data.

Memory is in bytes, power in watts, temperature in degrees Celsius, utilization in percent of the last
sampling period (NVML's `nvmlUtilization_t.gpu`, the figure of nvidia-smi). A figure that the driver does not
give is `UNKNOWN`, never zero and never "free".
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from gpu_magic.text import age_text, counted, printable, since_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpu_magic.devices.problems import GpuProblem, Problem

__all__ = [
    "IDLE_FROM",
    "KERNEL",
    "MARIMO",
    "UNKNOWN",
    "WORKER",
    "Claim",
    "ComputeMode",
    "Counters",
    "Device",
    "Gpu",
    "GpuProcess",
    "GpuStatus",
    "Inventory",
    "JupyterKernel",
    "Limits",
    "MigInstance",
    "OtherGpus",
    "Speed",
    "Unknown",
    "UsedBy",
    "Vendor",
    "idle_text",
    "parts",
    "record_of",
    "sum_of",
    "with_instances",
]

# An idle GPU of any size can have up to this much memory in use: the driver shows 0.5 to 1 GiB on an idle
# A100, a desktop uses about as much, and a CUDA context half a GiB. With more, the GPU is in use, even if a
# container hides the process.
_IDLE_MEMORY = 3 << 29  # bytes: 1.5 GiB
_IDLE_UTILIZATION = 10  # percent
IDLE_FROM = 600  # seconds. Reading an output or getting a coffee is not idleness
# The process that serves all MPS clients on a GPU. The driver also lists the clients (nvidia-smi's type M+C),
# except on GPUs older than Volta, where the server holds their memory (CUDA MPS, "nvidia-cuda-mps-server").
_MPS_SERVER = "nvidia-cuda-mps-server"
# The names of a kernel of Python, and of a process of Python that has only been forked or spawned for work.
KERNEL, MARIMO, WORKER = "ipykernel", "marimo", "Python worker"


class Unknown(enum.Enum):
    """The type of `UNKNOWN`, so that type checkers see `x is UNKNOWN` as a test."""

    UNKNOWN = "UNKNOWN"

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        # `if gpu.status.utilization:` would treat an unknown figure as "busy" or "idle".
        raise TypeError("UNKNOWN is neither true nor false: test it with `is UNKNOWN`")


UNKNOWN: Final = Unknown.UNKNOWN

Vendor = Literal["nvidia", "amd"]
_VENDORS: dict[Vendor, str] = {"nvidia": "NVIDIA", "amd": "AMD"}
# Which processes can use CUDA on a GPU: all, one at a time, or none. In nvidia-smi's words.
ComputeMode = Literal["Default", "Exclusive_Thread", "Exclusive_Process", "Prohibited"]


class UsedBy(NamedTuple):
    """Who uses a device, in the words of the table, or another note on it, such as `free`."""

    who: str  # `maria`, `you`, `this kernel`, `claimed by maria`
    what: str = ""  # the name of a program or a notebook
    memory: str = ""
    since: str = ""  # `for 3 h, idle 2 h`
    is_own: bool = False  # whether this process uses it

    def __str__(self) -> str:
        """Return `maria: train.py, 59.6 GiB, for 3 h, idle 2 h`."""
        names = f"{self.who}: {self.what}" if self.what else self.who
        return ", ".join(filter(None, (names, self.memory, self.since)))


class Claim(NamedTuple):
    """Another process's claim on a device. A claim blocks nobody.

    Parameters
    ----------
    owner
        The name of the user whose process has the claim.
    since
        The time of the claim, in seconds since the epoch.
    pid
        The number of the process, from the operating system. UNKNOWN if this process cannot see it.
    notebook
        The name of its notebook or script, as its owner wrote it. Empty if there is none.
    is_same_user
        Whether the process belongs to the user of this process, for example another notebook.
    container
        The host name of the container, or of the machine, in which the process runs, as its owner wrote it.
        Empty if the process is in this PID namespace, or if its host name is that of this process.
    idle
        Whole seconds in which it has run no cell, and neither it nor a descendant was seen to work on a GPU.
        0 while a cell runs. UNKNOWN if it may be working, and for a process without cells.
    waits
        Whether the process waits in line. The process then has no claim yet. Processes that are later in the
        line leave the device to the waiting process for a moment.
    is_parked
        Whether the process has moved its variables to the host's memory, so that others can use the device.

    """

    owner: str
    since: float
    pid: int | Unknown = UNKNOWN
    notebook: str = ""
    is_same_user: bool = False
    idle: int | Unknown = UNKNOWN
    waits: bool = False
    container: str = ""
    is_parked: bool = False

    @property
    def used_by(self) -> UsedBy:
        """`claimed by maria: train.ipynb, since 14:02`. For this user's: `claimed by you: …`."""
        place, what = f" in {self.container}" if self.container else "", self.notebook
        who = f"claimed by {'you' if self.is_same_user else self.owner}{place}"
        if self.waits:
            who = f"kept for {self.owner}{place}"
            if self.is_same_user:
                who, what = f"kept for your {what or 'other process'}", ""
        since = f"{'waiting ' * self.waits}since {since_text(self.since)}"
        facts = since, idle_text(self.idle), "parked" * self.is_parked
        return UsedBy(printable(who), printable(what), since=", ".join(filter(None, facts)))

    def __str__(self) -> str:
        return str(self.used_by)


def idle_text(idle: int | Unknown) -> str:
    """Return `idle 9 h`. Empty under ten minutes, or if unknown."""
    return "" if idle is UNKNOWN or idle < IDLE_FROM else f"idle {age_text(idle)}"


class JupyterKernel(NamedTuple):
    """A kernel of Jupyter, as its command line and its ancestors tell."""

    pid: int
    id: str  # of its connection file
    server: str  # the file in which the Jupyter server that started it describes itself. Empty: none


class GpuProcess(NamedTuple):
    """A process that has memory on a GPU.

    Parameters
    ----------
    pid
        The number that the driver gives. In a container this can be the host's number.
    name
        The script or module of a Python program, or else the program: `train.py`, `ipykernel`, `Xorg`.
        `marimo` for one that runs a notebook of marimo. `Python worker` for one that a kernel has forked, or
        that multiprocessing has started.
    owner
        The name of its user. UNKNOWN if this process cannot see it.
    memory
        Bytes on this GPU.
    is_this_process
        Whether it is this process, or one that it has started. UNKNOWN if the driver's numbers are not this
        process's, as in a container.
    is_same_user
        Whether it belongs to the user of this process, by its effective user ID. UNKNOWN likewise.
    notebook
        The path of the notebook whose kernel it is, or whose kernel started it. Only for processes of the
        same user. Empty if there is none, or if it is unknown.
    started
        When it started, in clock ticks since the machine started. With `pid` this tells the process from a
        later one with the same number.
    age
        Whole seconds since it started.
    work
        The percentage of the time since the last reading in which the GPU computed for this process. It is an
        upper bound. UNKNOWN at the first reading.
    idle
        The same as of a claim. For a process without cells: for how long it was seen not to work.
    folder
        The path of the folder of a kernel whose notebook is unknown. Only for processes of the same user.
    has_ended
        Whether the driver lists it, but the system has no such process.
    kernel
        The kernel of Jupyter that it is, or that started it. Only for processes of the same user.

    """

    pid: int
    name: str | Unknown = UNKNOWN
    owner: str | Unknown = UNKNOWN
    memory: int | Unknown = UNKNOWN
    is_this_process: bool | Unknown = UNKNOWN
    is_same_user: bool | Unknown = UNKNOWN
    notebook: str = ""
    started: int | Unknown = UNKNOWN
    age: int | Unknown = UNKNOWN
    work: int | Unknown = UNKNOWN
    idle: int | Unknown = UNKNOWN
    folder: str = ""
    has_ended: bool = False
    kernel: JupyterKernel | None = None

    @property
    def is_seen(self) -> bool:
        """Whether this process can see it. If not, as in a container, `pid` can be the host's number."""
        return self.owner is not UNKNOWN

    @property
    def is_kernel(self) -> bool:
        """Whether it is a kernel, not a program that a kernel started."""
        return self.name in (KERNEL, MARIMO)

    @property
    def is_worker(self) -> bool:
        """Whether it works for a process that has forked or spawned it."""
        return self.name == WORKER

    @property
    def is_mps_server(self) -> bool:
        """Whether it is the server of MPS, which runs work of other processes."""
        return self.name == _MPS_SERVER


class GpuStatus(NamedTuple):
    """The figures of one GPU, or MIG instance, at one moment.

    Parameters
    ----------
    memory_used, memory_free
        Bytes. `memory_used` is nvidia-smi's figure. Since driver R510 it leaves out what the driver reserves,
        so used + free can be less than the total.
    utilization
        The percentage of the last sampling period in which the GPU computed.
    temperature
        Degrees Celsius.
    power
        Watts.
    processes
        The processes with compute memory on it. UNKNOWN if the driver does not list them.
    claims
        The claims of other processes.

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
        """The processes that use it: all but MPS's server."""
        if self.processes is UNKNOWN:
            return UNKNOWN
        return tuple(process for process in self.processes if not process.is_mps_server)

    @property
    def used_only_by_us(self) -> bool | Unknown:
        """Whether only this process and its descendants use the GPU. False if no process uses it."""
        if self.users is UNKNOWN:
            return UNKNOWN
        answers = {one.is_this_process for one in self.users}
        return False if False in answers or not answers else UNKNOWN if UNKNOWN in answers else True

    @property
    def active_claims(self) -> tuple[Claim, ...]:
        """The claims of processes that are not parked."""
        return tuple(claim for claim in self.claims if not claim.is_parked)

    @property
    def is_parked(self) -> bool:
        """Whether only parked processes use and claim it, and have little memory there, such as a context.

        False if a missing figure could show other use.
        """
        if not self.claims or self.active_claims or self.users is UNKNOWN or self.memory_used is UNKNOWN:
            return False
        pids = {claim.pid for claim in self.claims}
        sizes = [one.memory for one in self.users if one.memory is not UNKNOWN]
        if len(sizes) < len(self.users) or max(sizes, default=0) > _IDLE_MEMORY:
            return False
        works = self.utilization is not UNKNOWN and self.utilization >= _IDLE_UTILIZATION
        is_theirs = all(one.is_seen and one.pid in pids for one in self.users)
        return is_theirs and not works and self.memory_used - sum(sizes) <= _IDLE_MEMORY

    @property
    def mps_servers(self) -> tuple[GpuProcess, ...]:
        """MPS's server, if there is one."""
        processes = () if self.processes is UNKNOWN else self.processes
        return tuple(process for process in processes if process.is_mps_server)


_NO_FIGURES = GpuStatus()


def _is_busy(status: GpuStatus, *more: bool | Unknown) -> bool | Unknown:
    """Return whether memory, processes or more signs show use. UNKNOWN if none does and one is missing."""
    has_memory = UNKNOWN if status.memory_used is UNKNOWN else status.memory_used > _IDLE_MEMORY
    users = status.users
    signs = (has_memory, UNKNOWN if users is UNKNOWN else bool(users), *more)
    return True if True in signs else UNKNOWN if UNKNOWN in signs else False


class MigInstance(NamedTuple):
    """A MIG instance: a part of a GPU that CUDA sees as a device.

    Parameters
    ----------
    uuid, name
        From the driver: `MIG-41b7…`, `NVIDIA A100 80GB MIG 3g.40gb`.
    gpu_index
        The index of its GPU.
    number
        Its number in its GPU: `Device` of nvidia-smi -L, `MIG Dev` of nvidia-smi.
    memory_total
        Bytes.
    status
        Its figures. NVML has no utilization, temperature or power of a MIG instance.
    ids
        The numbers of its GPU instance and its compute instance: `GI ID` and `CI ID` of nvidia-smi. CUDA also
        accepts the name `MIG-GPU-8f3a…/1/0`, and before R470 only this name.

    """

    uuid: str
    name: str | Unknown
    gpu_index: int
    number: int
    memory_total: int | Unknown = UNKNOWN
    status: GpuStatus = _NO_FIGURES
    ids: tuple[int, int] | Unknown = UNKNOWN

    @property
    def identity(self) -> str:
        return self.uuid

    @property
    def number_text(self) -> str:
        """The text that names it in a command: `2:1`, as NVIDIA's container toolkit also calls it."""
        return f"{self.gpu_index}:{self.number}"

    @property
    def label(self) -> str:
        return f"MIG instance {self.number_text}"

    @property
    def is_busy(self) -> bool | Unknown:
        """Whether its memory or its processes show use. UNKNOWN if they do not and a figure is missing."""
        return _is_busy(self.status)

    @property
    def is_free(self) -> bool:
        """Whether nobody uses or claims it. See `Gpu.is_free`."""
        return self.is_busy is False and not self.status.claims


class Speed(NamedTuple):
    """The figures that show which of two models is faster for CUDA."""

    capability: tuple[int, int]  # CUDA's compute capability: (8, 0)
    cores: int  # how many CUDA cores it has
    clock: int  # the highest frequency of its streaming multiprocessors in MHz


class Gpu(NamedTuple):
    """A physical GPU.

    Parameters
    ----------
    index
        Its number in nvidia-smi and NVML, in PCI bus order. For an AMD GPU, its number in rocm-smi.
    uuid, name, bus_id
        From the driver. UNKNOWN if the GPU does not answer.
    memory_total
        Bytes.
    status
        Its figures.
    mig
        Its MIG instances.
    is_split
        Whether MIG mode is on, also without instances. CUDA cannot use such a GPU as a whole.
    problem
        Why it does not answer, in words that follow "GPU 1 is". None if it answers.
    compute_mode
        Which processes can use CUDA on it.
    speed
        The figures that tell which of two models is faster.
    minor
        The number of its device file on the host: 2 for /dev/nvidia2, 130 for /dev/dri/renderD130 of an AMD
        GPU.
    vendor
        "nvidia" or "amd".
    hip_id
        HIP's number of an AMD GPU if no variable hides a GPU. It can differ from rocm-smi's number.

    """

    index: int  # type: ignore[assignment] # it hides a tuple's method
    uuid: str | Unknown = UNKNOWN
    name: str | Unknown = UNKNOWN
    bus_id: str | Unknown = UNKNOWN
    memory_total: int | Unknown = UNKNOWN
    status: GpuStatus = _NO_FIGURES
    mig: tuple[MigInstance, ...] = ()
    is_split: bool = False
    problem: GpuProblem | None = None
    compute_mode: ComputeMode | Unknown = UNKNOWN
    speed: Speed | Unknown = UNKNOWN
    minor: int | Unknown = UNKNOWN
    vendor: Vendor = "nvidia"
    hip_id: int | Unknown = UNKNOWN

    @property
    def label(self) -> str:
        return f"GPU {self.index}"

    @property
    def identity(self) -> str:
        """The text that tells it from other GPUs: its UUID, or its bus ID if the UUID is unknown.

        Empty if both are unknown. Consumer cards of AMD have no serial number, of which a UUID is made.
        """
        known = (one for one in (self.uuid, self.bus_id) if one is not UNKNOWN)
        return next(known, "")

    @property
    def number_text(self) -> str:
        """The text that names it in a command: `2`."""
        return str(self.index)

    @property
    def is_prohibited(self) -> bool:
        """Whether its compute mode lets no process use CUDA."""
        return self.compute_mode == "Prohibited"

    @property
    def is_exclusive(self) -> bool:
        """Whether its compute mode lets only one process at a time use CUDA."""
        return self.compute_mode in ("Exclusive_Process", "Exclusive_Thread")

    @property
    def is_taken(self) -> bool | Unknown:
        """Whether its compute mode excludes this process, because another process uses the GPU.

        UNKNOWN if the process can be this one. With MPS the compute mode does not exclude this process.
        "Exclusive-mode restrictions are applied to the MPS server, not MPS clients" (CUDA MPS, "System
        considerations").
        """
        if not self.is_exclusive or self.is_busy is not True or self.status.mps_servers:
            return False
        only_us = self.status.used_only_by_us
        return UNKNOWN if only_us is UNKNOWN else not only_us

    @property
    def is_free(self) -> bool:
        """Whether nobody uses or claims it. False if gpu_magic cannot read a figure that could show use."""
        return self.is_busy is False and not self.status.claims

    @property
    def is_busy(self) -> bool | Unknown:
        """Whether a figure shows use. UNKNOWN if a figure is missing and no other figure shows use."""
        work = self.status.utilization
        return _is_busy(self.status, UNKNOWN if work is UNKNOWN else work >= _IDLE_UTILIZATION)


Device = Gpu | MigInstance


def sum_of(figures: Iterable[tuple[bool | Unknown, int | Unknown]]) -> int | Unknown:
    """Return the sum of the figures that count, each after whether it counts.

    UNKNOWN if a figure that counts is UNKNOWN, or if it is UNKNOWN whether one counts.
    """
    total = 0
    for counts, figure in figures:
        if counts is UNKNOWN or (counts and figure is UNKNOWN):
            return UNKNOWN
        total += figure if counts and figure is not UNKNOWN else 0
    return total


def with_instances(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Return the devices, with its MIG instances in place of each GPU that is split."""
    return tuple(
        part
        for device in devices
        for part in (device.mig if isinstance(device, Gpu) and device.is_split else (device,))
    )


def parts(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Return the devices that CUDA can use: all except GPUs that are split by MIG."""
    return tuple(device for device in devices if isinstance(device, MigInstance) or not device.is_split)


class OtherGpus(NamedTuple):
    """The machine's GPUs that this process does not use, because a process uses the GPUs of one vendor.

    `str` returns sentences: which GPUs these are, and how to use them.
    """

    vendor: Vendor
    names: tuple[str | Unknown, ...]  # one for each GPU

    def __str__(self) -> str:
        models = ", ".join(dict.fromkeys(name for name in self.names if name is not UNKNOWN))
        return (
            f"This machine also has {counted(len(self.names), f'{_VENDORS[self.vendor]} GPU')}"
            f"{f' ({models})' if models else ''}. To use {'it' if len(self.names) == 1 else 'them'}, set "
            f"GPU_MAGIC_VENDOR={self.vendor} before the kernel starts."
        )


@dataclass(frozen=True, slots=True)
class Inventory:
    """The machine at one moment: all GPUs of the vendor whose GPUs this process uses.

    Parameters
    ----------
    gpus
        In the order of nvidia-smi, or of rocm-smi.
    driver_version, cuda_version
        The driver's version, and the newest CUDA version that it supports: "13.0". `cuda_version` is
        UNKNOWN for AMD.
    simulated
        The profile of a simulated machine. Empty for a real one.
    problem
        Why gpu_magic could read nothing: there is no driver, for example. None if it read the GPUs.
    limitation
        Why gpu_magic could read only names and UUIDs. Else None.
    vendor
        The vendor of the GPUs, also if none can be read.
    others
        The GPUs of the other vendor. None: there are none, or they cannot be read.

    """

    gpus: tuple[Gpu, ...] = ()
    driver_version: str | Unknown = UNKNOWN
    cuda_version: str | Unknown = UNKNOWN
    simulated: str = ""
    problem: Problem | None = None
    limitation: Problem | None = None
    vendor: Vendor = "nvidia"
    others: OtherGpus | None = None

    def __iter__(self) -> Iterator[Gpu]:
        return iter(self.gpus)

    def __len__(self) -> int:
        return len(self.gpus)

    def __getitem__(self, index: int) -> Gpu:
        return self.gpus[index]

    @property
    def devices(self) -> tuple[Device, ...]:
        """Every GPU and MIG instance that has an identity."""
        found: list[Device] = []
        for gpu in self.gpus:
            if gpu.identity:
                found.append(gpu)
            found.extend(gpu.mig)
        return tuple(found)

    def with_claims(self, claims: Mapping[str, tuple[Claim, ...]]) -> Inventory:
        """Return the machine with claims of other processes, by the identities of the devices.

        A GPU can get a UUID at its first use, after which it also has the claims by its bus ID. A claim that
        the machine had before keeps its `idle`, unless a cell runs now, because work on GPUs was counted in
        it.
        """
        if not claims and not any(device.status.claims for device in self.devices):
            return self

        def claimed(device: Any) -> Any:
            before = {(one.pid, one.since): one.idle for one in device.status.claims}
            names = {device.identity, getattr(device, "bus_id", device.identity)} - {UNKNOWN}
            found = [
                one._replace(idle=before.get((one.pid, one.since), one.idle)) if one.idle != 0 else one
                for name in sorted(names)
                for one in claims.get(name, ())
            ]
            return device._replace(status=device.status._replace(claims=tuple(found)))

        gpus = [gpu._replace(mig=tuple(map(claimed, gpu.mig))) for gpu in self.gpus]
        return replace(self, gpus=tuple(map(claimed, gpus)))

    def with_highest(self, earlier: Inventory) -> Inventory:
        """Return the machine with the higher utilization of two readings for each GPU that answers."""
        before = {gpu.identity: gpu.status.utilization for gpu in earlier if gpu.identity}

        def highest(gpu: Gpu) -> Gpu:
            was, now = before.get(gpu.identity, UNKNOWN), gpu.status.utilization
            if was is UNKNOWN or now is UNKNOWN or was <= now:
                return gpu
            return gpu._replace(status=gpu.status._replace(utilization=was))

        return replace(self, gpus=tuple(map(highest, self.gpus)))

    @property
    def is_uniform(self) -> bool:
        """Whether all GPUs are known to be of one model. CUDA's fastest-first order is then PCI bus order.

        False if one of several GPUs has an unknown name. CUDA may count such a GPU, even if it does not
        answer NVML.
        """
        names = {gpu.name for gpu in self.gpus}
        sizes = {gpu.memory_total for gpu in self.gpus if not gpu.problem}
        return len(self.gpus) == 1 or (len(names) <= 1 and len(sizes) <= 1 and UNKNOWN not in names | sizes)

    @property
    def is_mixed(self) -> bool:
        """Whether two GPUs are known to be of different models."""
        names = {gpu.name for gpu in self.gpus if gpu.name is not UNKNOWN}
        sizes = {gpu.memory_total for gpu in self.gpus if gpu.memory_total is not UNKNOWN}
        return len(names) > 1 or len(sizes) > 1

    @property
    def fastest_first(self) -> tuple[Gpu, ...] | Unknown:
        """The GPUs in CUDA's order with FASTEST_FIRST, and in PCI bus order within a model.

        NVIDIA does not document how CUDA ranks models ("a simple heuristic"; CUDA programming guide).
        gpu_magic ranks the models by compute capability, and by the product of cores and clock. UNKNOWN if
        both rankings differ.
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
        """Return the machine as values for JSON, in the units of the classes. UNKNOWN becomes None.

        Returns
        -------
        dict
            `driver_version`, `cuda_version`, `simulated`, `problem`, `limitation`, and `gpus`: a `record_of`
            each GPU and MIG instance.

        """
        return {
            **_known(self, "driver_version", "cuda_version", "simulated"),
            "problem": str(self.problem or ""),
            "limitation": str(self.limitation or ""),
            "gpus": [record_of(one, self.simulated) for gpu in self.gpus for one in _and_instances(gpu)],
        }


def _and_instances(gpu: Gpu) -> tuple[Device, ...]:
    return (gpu, *gpu.mig)


def record_of(device: Device, simulated: str) -> dict[str, Any]:
    """Return a device as values for JSON. None for a figure that the driver does not give.

    `simulated` is the profile of the simulated machine, or empty.
    """
    gpu, status = device if isinstance(device, Gpu) else None, device.status
    processes = None
    about = ("pid", "name", "owner", "memory", "is_this_process")
    if status.processes is not UNKNOWN:
        processes = [_known(one, *about) for one in status.processes]
    about_claims = ("pid", "owner", "notebook", "since", "idle", "is_parked", "container")
    claims = [_known(one, *about_claims) for one in status.claims]
    return {
        "index": gpu.index if gpu else None,
        "vendor": gpu.vendor if gpu else "nvidia",
        "gpu": device.index if isinstance(device, Gpu) else device.gpu_index,
        **_known(device, "uuid", "name", "memory_total"),
        **_known(status, "memory_used", "memory_free", "utilization", "temperature", "power"),
        "problem": str(gpu.problem or "") if gpu else "",
        "simulated": bool(simulated),
        "processes": processes,
        "claims": claims,
    }


def _known(thing: object, *names: str) -> dict[str, Any]:
    values = {name: getattr(thing, name) for name in names}
    return {name: None if value is UNKNOWN else value for name, value in values.items()}


class Counters(NamedTuple):
    """The counters of a GPU or MIG instance, read many times a second while a cell is measured."""

    energy: float | Unknown = UNKNOWN  # joules of the whole GPU since the driver was loaded
    utilization: int | Unknown = UNKNOWN  # percent, as in `GpuStatus`
    memory: Mapping[int, int | Unknown] | Unknown = UNKNOWN  # bytes of each process, by PID
    # The time in which kernels of each process ran, by PID: samples, each with microseconds since 1970, and
    # percent of the time since the driver's last sample. Without 0.
    work: Mapping[int, Sequence[tuple[int, int]]] | Unknown = UNKNOWN


class Limits(NamedTuple):
    """The limits of a GPU, read only for a GPU whose details are shown."""

    power: float | Unknown = UNKNOWN  # watts, as the driver enforces the limit
    slowdowns: tuple[str, ...] | Unknown = UNKNOWN  # reasons for lower clocks now, in a few words
