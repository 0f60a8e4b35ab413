"""What is known of this process, its packages and its machine, and what a check finds: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from gpu_magic.devices.model import UNKNOWN, Unknown
from gpu_magic.process.front_end import Pages
from gpu_magic.process.given import Grant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_magic.devices.model import Gpu, Inventory
    from gpu_magic.process.front_end import FrontEnd
    from gpu_magic.process.guard import Guard
    from gpu_magic.process.mask import Variables

__all__ = ["Build", "DeviceFile", "Facts", "Finding", "Kernel", "Packages", "Program", "Severity", "System"]

Severity = Literal["wrong", "worth knowing", "unknown"]
# Where commands are typed: "shell" is `gpu-magic doctor`.
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
    what
        The error, as a sentence.
    meaning
        Its effect, in one or two sentences. Empty if `what` is enough.
    mend
        The command that fixes it, one or two lines to type in this program. Empty: none.
    public
        Replaces `what` and `mend` in a report for other people, if these name a process or a file.

    """

    severity: Severity
    about: str
    what: str
    meaning: str = ""
    mend: str = ""
    public: str = ""


@dataclass(frozen=True, slots=True)
class Build:
    """A framework as it is installed."""

    framework: str  # as people call it: "PyTorch"
    version: str
    built_for: str | Unknown = UNKNOWN  # "CUDA", "ROCm", "Intel's GPUs (XPU)" or "CPU"
    runtime: str = ""  # the version of CUDA or ROCm: "12.6", or "12"; empty if nothing tells
    loaded: str = ""  # the version that this process has imported
    installer: str = "pip"  # by the distribution's INSTALLER file: also "conda" or "uv"
    lacks: str = ""  # what the build needs and is not there
    # What to remove before another build is installed: "torch" and its companions, "jax-cuda12-plugin".
    distributions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Packages:
    """What is installed in this Python."""

    builds: tuple[Build, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)  # of other distributions that are installed
    binding_problem: str = ""  # why the module pynvml can't be used, as a sentence


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """A device file of NVIDIA's. Opening a GPU's own file can start the GPU, so only control files are."""

    path: str  # /dev/nvidia0
    is_permitted: bool = True  # its permissions let this user read and write it
    error: str = ""  # what opening it answers: "EACCES"; empty if it was opened, or was not tried

    @property
    def is_of_gpu(self) -> bool:
        return self.path[-1].isdigit()

    @property
    def is_closed(self) -> bool:
        return not self.is_permitted or self.error == "EACCES"


@dataclass(frozen=True, slots=True)
class System:
    """The system that this process is in."""

    container: str = ""  # "docker", "podman", "kubernetes", "apptainer", "container"; empty for none
    kind: str = ""  # "Colab", "Kaggle", "WSL", "Jetson"; empty for others
    module: str = ""  # the version of NVIDIA's kernel module that is loaded
    is_on_bus: bool | Unknown = UNKNOWN  # a GPU of NVIDIA's is on the PCI bus
    devices: tuple[DeviceFile, ...] = ()
    makes_devices: bool = False  # CUDA can make missing device files, by nvidia-modprobe as root
    has_cuda: bool = False  # libcuda.so.1 is in one of its usual folders
    capabilities: str | None = None  # NVIDIA_DRIVER_CAPABILITIES; None: not set

    @property
    def has_nvidia(self) -> bool:
        """Whether there are GPUs of NVIDIA's: by their device files, or on the PCI bus."""
        return self.is_on_bus is True or any(file.is_of_gpu for file in self.devices)


@dataclass(frozen=True, slots=True)
class Kernel:
    """The process that is looked at."""

    program: Program
    guard: Guard
    variables: Variables  # now
    launched: Variables  # as it was started
    notes: tuple[str, ...] = ()  # what is wrong with them, a sentence each
    seen: tuple[str, ...] | Unknown = UNKNOWN  # the labels of cuda:0, cuda:1, … by the variables
    grant: Grant = Grant()  # noqa: RUF009 - it can't be changed
    chose_none: bool = False  # the latest choice here is `none`
    simulate: str = ""  # GPU_MAGIC_SIMULATE


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the checks look at. A source that could not be read is UNKNOWN."""

    machine: Inventory | Unknown = UNKNOWN
    kernel: Kernel | Unknown = UNKNOWN
    packages: Packages | Unknown = UNKNOWN
    system: System | Unknown = UNKNOWN
    front_end: FrontEnd | Unknown = UNKNOWN
    pages: Pages = Pages()  # noqa: RUF009 - it can't be changed

    @property
    def program(self) -> Program:
        return "python" if self.kernel is UNKNOWN else self.kernel.program

    @property
    def is_ipython(self) -> bool:
        """Whether magics can be typed."""
        return self.program not in ("python", "shell")

    @property
    def restart(self) -> str:
        """How this process starts again: `restart the kernel`."""
        return _RESTARTS[self.program]

    @property
    def is_simulated(self) -> bool:
        return self.machine is not UNKNOWN and bool(self.machine.simulated)

    @property
    def where(self) -> System:
        """The system; one of which nothing is known if it was not read, or the GPUs are SIMULATED."""
        return System() if self.system is UNKNOWN or self.is_simulated else self.system

    @property
    def on_host(self) -> str:
        """The words before a command that does nothing in a container; empty outside one."""
        return "On the host of this container:" if self.where.container else ""

    @property
    def nvidia_gpus(self) -> tuple[Gpu, ...]:
        gpus = () if self.machine is UNKNOWN else self.machine.gpus
        return tuple(gpu for gpu in gpus if gpu.vendor == "nvidia")

    @property
    def vendors(self) -> set[str]:
        """Whose GPUs there are, SIMULATED ones aside; NVIDIA's also if NVML does not tell."""
        found = set() if self.machine is UNKNOWN else {str(one) for one in self.machine.vendors}
        found |= {"nvidia"} if self.where.has_nvidia else set()
        return set() if self.is_simulated else found

    @property
    def driver_cuda(self) -> str:
        """The newest CUDA version that the driver runs; empty for unknown."""
        version = UNKNOWN if self.machine is UNKNOWN else self.machine.cuda_version
        return "" if version is UNKNOWN else version
