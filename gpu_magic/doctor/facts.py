"""The facts about this process, its packages and its machine, and the findings of checks, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from gpu_magic.devices.model import UNKNOWN, Unknown
from gpu_magic.panel.front_end import Pages
from gpu_magic.process.given import Grant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_magic.devices.model import Device, Gpu, Inventory, Vendor
    from gpu_magic.devices.problems import Problem
    from gpu_magic.panel.front_end import FrontEnd
    from gpu_magic.process.guard import Guard
    from gpu_magic.process.mask import Note, Variables

__all__ = ["Build", "DeviceFile", "Facts", "Finding", "Kernel", "Packages", "Program", "Severity", "System"]

Severity = Literal["wrong", "worth knowing", "unknown"]
# The program in which commands are typed. "shell" is `gpu-magic doctor`.
Program = Literal["kernel", "unattended kernel", "ipython", "python", "shell"]
_RESTARTS: dict[Program, str] = {
    "kernel": "restart the kernel",
    "unattended kernel": "start the notebook again",
    "ipython": "restart IPython",
    "python": "restart Python",
    "shell": "start your program again",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check.

    Parameters
    ----------
    severity
        "wrong": a GPU cannot be used as intended. "worth knowing": the GPU can be used. Something else may
        surprise you. "unknown": a source could not be read, or a check failed.
    about
        The subject, with the name of its row in the facts: "PyTorch", "driver".
    problem
        The error, as a sentence.
    effect
        Its effect, in one or two sentences. Empty if `problem` is enough.
    fix
        The command that fixes the error: one or two lines to type in the notebook, or in the shell after
        `gpu-magic doctor`. Or the page that has it. Empty: none.
    public
        If `problem` or `fix` names a process or a file: the text that replaces both in a report for other
        people.

    """

    severity: Severity
    about: str
    problem: str
    effect: str = ""
    fix: str = ""
    public: str = ""


@dataclass(frozen=True, slots=True)
class Build:
    """An installed framework."""

    framework: str  # its usual name: "PyTorch"
    version: str
    built_for: str | Unknown = UNKNOWN  # "CUDA", "ROCm", "Intel's GPUs (XPU)" or "CPU"
    runtime: str = ""  # the version of CUDA or ROCm: "12.6", or "12"; empty if unknown
    loaded: str = ""  # the version that this process has imported
    lacks: str = ""  # a missing dependency of the build
    distributions: tuple[str, ...] = ()  # that bring it: "cupy-cuda12x", "jax-cuda12-plugin"


@dataclass(frozen=True, slots=True)
class Packages:
    """The packages that are installed for this Python."""

    builds: tuple[Build, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)  # of other installed distributions
    binding_problem: Problem | None = None  # why the module pynvml can't be used


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """An NVIDIA device file. Only control files are opened, because opening a GPU's file can start it."""

    path: str  # /dev/nvidia0
    is_permitted: bool = True  # its permissions let this user read and write it
    error: str = ""  # the error of opening it: "EACCES"; empty if it was opened, or not tried

    @property
    def is_of_gpu(self) -> bool:
        return self.path[-1].isdigit()

    @property
    def is_closed(self) -> bool:
        return not self.is_permitted or self.error == "EACCES"


@dataclass(frozen=True, slots=True)
class System:
    """The system that this process runs in."""

    container: str = ""  # "docker", "podman", "kubernetes", "apptainer", "container"; empty for none
    kind: str = ""  # "Colab", "Kaggle", "WSL", "Jetson"; empty for others
    module: str = ""  # the version of NVIDIA's loaded kernel module
    is_on_bus: bool | Unknown = UNKNOWN  # an NVIDIA GPU is on the PCI bus
    devices: tuple[DeviceFile, ...] = ()
    makes_devices: bool = False  # CUDA can create missing device files with nvidia-modprobe as root
    has_cuda: bool = False  # libcuda.so.1 is in one of its usual folders
    capabilities: str | None = None  # NVIDIA_DRIVER_CAPABILITIES; None: not set

    @property
    def has_nvidia(self) -> bool:
        """Whether device files or the PCI bus show an NVIDIA GPU."""
        return self.is_on_bus is True or any(file.is_of_gpu for file in self.devices)


@dataclass(frozen=True, slots=True)
class Kernel:
    """The facts about this process."""

    program: Program
    guard: Guard
    variables: Variables  # now
    launched: Variables  # at the start of the process
    notes: tuple[Note, ...] = ()  # what is wrong with the variables
    seen: tuple[Device, ...] | Unknown = UNKNOWN  # cuda:0, cuda:1, … according to the variables
    grant: Grant = Grant()  # noqa: RUF009 - it is immutable
    chose_none: bool = False  # the latest choice here is `none`
    misspelt: tuple[tuple[str, str], ...] = ()  # variables that nothing reads, and the names that are meant
    simulate: str = ""  # GPU_MAGIC_SIMULATE


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that the checks use. A source that could not be read is UNKNOWN."""

    machine: Inventory | Unknown = UNKNOWN
    kernel: Kernel | Unknown = UNKNOWN
    packages: Packages | Unknown = UNKNOWN
    system: System | Unknown = UNKNOWN
    front_end: FrontEnd | Unknown = UNKNOWN
    pages: Pages = Pages()  # noqa: RUF009 - it is immutable

    @property
    def program(self) -> Program:
        return "python" if self.kernel is UNKNOWN else self.kernel.program

    @property
    def is_ipython(self) -> bool:
        """Whether magics can be typed."""
        return self.program not in ("python", "shell")

    @property
    def restart(self) -> str:
        """How to restart this process: `restart the kernel`."""
        return _RESTARTS[self.program]

    @property
    def is_simulated(self) -> bool:
        return self.machine is not UNKNOWN and bool(self.machine.simulated)

    @property
    def where(self) -> System:
        """The system. An empty System if it was not read, or the GPUs are SIMULATED."""
        return System() if self.system is UNKNOWN or self.is_simulated else self.system

    @property
    def on_host(self) -> str:
        """The words before a command that must run on a container's host. Empty outside containers."""
        return "On the host of this container:" if self.where.container else ""

    @property
    def nvidia_gpus(self) -> tuple[Gpu, ...]:
        return () if self.machine is UNKNOWN or self.machine.vendor != "nvidia" else self.machine.gpus

    @property
    def vendor(self) -> Vendor | None:
        """The vendor of the GPUs, also by device files and the PCI bus. None without (real) GPUs."""
        if self.machine is not UNKNOWN and self.machine.gpus:
            return None if self.is_simulated else self.machine.vendor
        return "nvidia" if self.where.has_nvidia else None

    @property
    def driver_cuda(self) -> str:
        """The newest CUDA version that the driver supports. Empty if unknown."""
        version = UNKNOWN if self.machine is UNKNOWN else self.machine.cuda_version
        return "" if version is UNKNOWN else version
