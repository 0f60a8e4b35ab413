"""Why GPUs cannot be read: the causes, and their texts, which are made only here."""

from __future__ import annotations

import enum
from typing import NamedTuple

from gpu_magic.text import with_full_stop

__all__ = ["Cause", "GpuCause", "GpuProblem", "Problem"]

_HUNG, _LATER = "does not answer: a call timed out", "It may answer later."


class Cause(enum.Enum):
    """Why no GPU can be read: what is wrong, and what helps. `{}` is the driver's own error."""

    WRONG_BINDING = (
        "The module pynvml is too old, or not NVIDIA's",
        "Restart Python after this: pip uninstall -y pynvml && pip install --force-reinstall nvidia-ml-py",
    )
    NO_LIBRARY = (
        "NVML is missing (libnvidia-ml.so.1 of the NVIDIA driver), so no GPU can be read",
        # No GPU, no driver, or a container without one of the two.
        "%gpu_doctor shows why, and gpu-magic doctor in a shell.",
    )
    NO_FIGURES = (  # but the GPUs are known without NVML
        "NVML is missing (libnvidia-ml.so.1), so figures and processes are unknown",
        "In a container, NVIDIA_DRIVER_CAPABILITIES=compute,utility adds it.",
    )
    NOT_LOADED = (
        "The NVIDIA driver is installed but not loaded",
        "An administrator can load it: nvidia-smi",
    )
    OUTDATED = (
        (
            "The NVIDIA driver was updated, but its old kernel module is still loaded "
            "(driver/library version mismatch)"
        ),
        "Reboot to fix this.",
    )
    REFUSED = (
        "The NVIDIA driver refuses this user",
        "An administrator can give access to /dev/nvidia*.",
    )
    NO_GPU = ("The NVIDIA driver has no GPU", "To give a container its GPUs: docker run --gpus all")
    HUNG = (f"The NVIDIA driver {_HUNG}", _LATER)
    # NVML answers so if a cgroup refuses the device files, for example after `systemctl daemon-reload`
    CUT_OFF = (
        "The NVIDIA driver does not answer: Unknown Error (999)",
        (
            "If this is a container, it has lost its GPUs: restart the container. "
            "%gpu_doctor shows more, and gpu-magic doctor in a shell."
        ),
    )
    ERROR = ("The NVIDIA driver does not answer: {}", "")
    AMD_MISSING = (
        "AMD's GPUs can't be read: the module amdsmi or its library libamd_smi.so is missing",
        "ROCm brings both: pip install /opt/rocm/share/amd_smi",
    )
    AMD_MISFIT = (
        "AMD's GPUs can't be read: the module amdsmi does not fit the library libamd_smi.so here",
        "ROCm brings one that does: pip install /opt/rocm/share/amd_smi",
    )
    AMD_HUNG = (f"The AMD driver {_HUNG}", _LATER)
    AMD_ERROR = ("AMD SMI does not answer: {}", "")
    NO_VENDOR = (
        "GPU_MAGIC_VENDOR={} is not supported",
        "Before the kernel starts, set it to nvidia or amd, or unset it.",
    )
    NO_SIMULATION = ("{}", "")  # the description of a simulated machine is invalid


class Problem(NamedTuple):
    """Why no GPU of this machine can be read. `str` returns sentences: what is wrong, and what helps."""

    cause: Cause
    error: str = ""  # as the driver reports it
    amd: Problem | None = None  # why AMD's GPUs cannot be read either

    @property
    def what(self) -> str:
        """What is wrong, as a sentence without its full stop."""
        return self.cause.value[0].replace("{}", self.error)

    def __str__(self) -> str:
        texts = (with_full_stop(self.what), self.cause.value[1], str(self.amd or ""))
        return " ".join(filter(None, texts))


class GpuCause(enum.Enum):
    """Why one GPU cannot be read: what it is, and why. `{}` is the driver's own error."""

    HUNG = ("not answering", "a call to the driver timed out")
    LOST = ("not answering", "the driver reports this GPU as lost")
    REFUSED = ("closed to this user", "an administrator can give access to /dev/nvidia*")
    CUT_OFF = (
        "not answering",
        "the driver reports Unknown Error (999). If this is a container, restart it: it has lost the GPU",
    )
    ERROR = ("not answering", "the driver reports {}")
    AMD_ERROR = ("not answering", "AMD SMI reports {}")


class GpuProblem(NamedTuple):
    """Why one GPU cannot be read. `str` returns words that follow "GPU 1 is"."""

    cause: GpuCause
    error: str = ""  # as the driver reports it

    @property
    def what(self) -> str:
        """The same without the reason: `not answering`."""
        return self.cause.value[0]

    def __str__(self) -> str:
        return f"{self.what}: {self.cause.value[1].replace('{}', self.error)}"
