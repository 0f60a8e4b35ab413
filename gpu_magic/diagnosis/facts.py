"""What is known of this process, its packages and its machine: plain data, which the checks read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gpu_magic.devices.record import record
from gpu_magic.devices.unknown import UNKNOWN, Unknown

if TYPE_CHECKING:
    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.process.guard import Guard
    from gpu_magic.selection.visible import Variables

__all__ = ["Build", "DeviceFile", "Facts", "FrontEnd", "Kernel", "Packages", "Program", "System"]

# Where commands are typed: "shell" is `gpu-magic doctor`.
Program = Literal["kernel", "unattended kernel", "ipython", "python", "shell"]


@record
class Build:
    """A framework as it is installed.

    Parameters
    ----------
    framework
        As people call it: "PyTorch".
    package, version
        Its distribution: "torch", "2.13.0+cu126".
    cuda
        The CUDA version that it was built for, "12.6", or "12" where no more is told; empty for a build that
        can't use NVIDIA's GPUs; UNKNOWN where nothing tells.
    rocm
        The same of AMD's ROCm.
    loaded
        The version that this process has imported; empty where it has not.
    installer
        What has installed it, by the distribution's INSTALLER file: "pip", "conda", "uv".
    lacks
        What the build needs and is not there, as a clause; empty for nothing.
    beside
        Distributions that are in each other's way with it: "cupy-cuda11x".
    parts
        Distributions that stay where another build is installed: "cupy-cuda12x", "jax-cuda12-plugin". What is
        replaced by its own name, as torch is, is none.
    extras
        What can be installed with it, `jax[cuda12]`; empty where its metadata does not tell.
    behind
        The versions of other copies that lie behind it in `sys.path`.
    other
        Whose GPUs it was built for, where these are neither NVIDIA's nor AMD's: "Intel's GPUs (XPU)".

    """

    framework: str
    package: str
    version: str
    cuda: str | Unknown = UNKNOWN
    rocm: str | Unknown = ""
    loaded: str = ""
    installer: str = "pip"
    lacks: str = ""
    beside: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    other: str = ""

    @property
    def is_cpu_only(self) -> bool:
        """Whether it is known to use no GPU."""
        return self.cuda == "" and self.rocm == "" and not self.other

    @property
    def is_complete(self) -> bool:
        """Whether it can use GPUs of some kind, and has what it needs for that."""
        return not self.is_cpu_only and not self.lacks


@record
class Packages:
    """What is installed beside the frameworks' builds.

    Parameters
    ----------
    builds
        The frameworks.
    versions
        Versions of other distributions, by name; those that are not installed are left out.
    siblings
        PyTorch's companions, which have builds of their own: `("torchvision", "0.28.0+cpu")`.
    overwrites_binding
        Whether the distribution pynvml has the file pynvml.py, which nvidia-ml-py has, too.
    binding_problem
        Why the module pynvml can't be used, as a sentence; empty where it can.
    python, gpu_magic
        Their versions.

    """

    builds: tuple[Build, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    siblings: tuple[tuple[str, str], ...] = ()
    overwrites_binding: bool = False
    binding_problem: str = ""
    python: str = ""
    gpu_magic: str = ""

    def version(self, name: str) -> str:
        """Return a distribution's version; empty where it is not installed."""
        return dict(self.versions).get(name, "")


@record
class DeviceFile:
    """A device file of NVIDIA's.

    Parameters
    ----------
    path
        `/dev/nvidia0`.
    is_permitted
        Whether its permissions let this user read and write it.
    error
        What opening it answers, the name of an errno: "EACCES"; empty where it was opened, or was not tried:
        to open a GPU's own file can start the GPU, so the control files alone are.
    group
        The group that it belongs to, where others are not permitted; empty where that is of no help.

    """

    path: str
    is_permitted: bool = True
    error: str = ""
    group: str = ""


@record
class System:
    """The system that this process is in.

    Parameters
    ----------
    container
        What kind of container: "docker", "podman", "kubernetes", "apptainer", "container"; empty for none.
    service
        A service that starts notebooks: "colab", "kaggle"; empty for none.
    is_wsl
        Whether it is Windows Subsystem for Linux.
    jetson
        The release of a Jetson board's system, "R36", or "yes" where that is not told; empty for others.
    has_wsl_gpu, has_wsl_driver
        On WSL: whether Windows passes GPUs on (/dev/dxg), and its driver's libraries are there.
    module
        The version of NVIDIA's kernel module that is loaded; empty for none.
    pci_gpus
        How many GPUs of NVIDIA's are on the PCI bus; UNKNOWN where that can't be read.
    devices
        NVIDIA's device files.
    makes_devices
        Whether CUDA can make those that are missing, by nvidia-modprobe, which then runs as root.
    has_cuda
        Whether the driver's library of CUDA, libcuda.so.1, is in one of the folders where it usually lies.
    capabilities
        NVIDIA_DRIVER_CAPABILITIES; None: not set.
    mps_folder
        CUDA_MPS_PIPE_DIRECTORY; None: not set.
    has_mps
        Whether MPS's control pipe is there.
    mps_share
        CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; None: not set.

    """

    container: str = ""
    service: str = ""
    is_wsl: bool = False
    jetson: str = ""
    has_wsl_gpu: bool = False
    has_wsl_driver: bool = False
    module: str = ""
    pci_gpus: int | Unknown = UNKNOWN
    devices: tuple[DeviceFile, ...] = ()
    makes_devices: bool = False
    has_cuda: bool = False
    capabilities: str | None = None
    mps_folder: str | None = None
    has_mps: bool = False
    mps_share: str | None = None


@record
class Kernel:
    """The process that is looked at.

    Parameters
    ----------
    program
        Where commands are typed.
    guard
        Whether CUDA has been initialized, since when, by what, and with which GPUs.
    variables, launched
        The variables that say which GPUs it sees, now and as it was started.
    notes
        What is wrong with them, a sentence each.
    seen
        What CUDA sees by the variables: the labels of GPUs, in the order of `cuda:0`, …; UNKNOWN where that
        can't be known.
    given_by
        Who gave it its GPUs: "Slurm job 123"; empty where nobody is known.
    can_force
        Whether `--force` may take GPUs that it was not given.
    chosen
        What was chosen in it: "none"; empty for nothing.
    simulate
        GPU_MAGIC_SIMULATE; empty where it is not set.

    """

    program: Program
    guard: Guard
    variables: Variables
    launched: Variables
    notes: tuple[str, ...] = ()
    seen: tuple[str, ...] | Unknown = UNKNOWN
    given_by: str = ""
    can_force: bool = True
    chosen: str = ""
    simulate: str = ""


@record
class FrontEnd:
    """The two sides of the panel: the widget's packages here, and where the Jupyter server is installed.

    Parameters
    ----------
    is_known
        Whether the server's side could be read: it is another process of this user, on this machine.
    anywidget, manager
        The versions of anywidget's extension and of ipywidgets's (@jupyter-widgets/jupyterlab-manager) there;
        empty where they are not.
    prefix
        Where the server's environment is.
    panels
        How many panels this process has shown.
    has_answered
        Whether a page has answered one of them.

    """

    is_known: bool = False
    anywidget: str = ""
    manager: str = ""
    prefix: str = ""
    panels: int = 0
    has_answered: bool = False


@record
class Facts:
    """All that the checks look at. A source that could not be read is UNKNOWN.

    Parameters
    ----------
    machine
        The GPUs, and the driver's versions.
    kernel, packages, system, front_end
        See each.
    private
        What is not to stand in a report for others: names of the user and the host, and the home folder.

    """

    machine: Inventory | Unknown = UNKNOWN
    kernel: Kernel | Unknown = UNKNOWN
    packages: Packages | Unknown = UNKNOWN
    system: System | Unknown = UNKNOWN
    front_end: FrontEnd | Unknown = UNKNOWN
    private: tuple[str, ...] = ()
