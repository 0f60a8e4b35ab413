"""The system that this process is in: a container, a service, NVIDIA's kernel module and device files.

Sources:

- Containers: Docker makes /.dockerenv, Podman /run/.containerenv; Kubernetes sets KUBERNETES_SERVICE_HOST,
  Apptainer APPTAINER_CONTAINER (Singularity SINGULARITY_CONTAINER).
- A container without the driver capability "utility" has no NVML, and without "compute" no libcuda.so.1
  (NVIDIA Container Toolkit, "Driver capabilities"). /proc/driver/nvidia is the host's in any container.
- Every program that uses CUDA opens /dev/nvidiactl and /dev/nvidia-uvm. A container whose cgroup has lost
  them answers EPERM, whatever the permissions say (nvidia-docker #1730).
- CUDA makes missing device files by nvidia-modprobe, if that is installed setuid root (nvidia-modprobe(1)):
  after a start of the machine /dev/nvidia-uvm may be there from the first use on.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.doctor.facts import DeviceFile, System

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["read_system", "text_of"]

_CONTROL = ("nvidiactl", "nvidia-uvm")
_NVIDIA = "0x10de"  # the vendor's number on the PCI bus
_DISPLAY = "0x03"  # the class of what draws or computes: 0x0300 VGA, 0x0302 3D
# Where containers get the driver's libraries; the last is Apptainer's.
_LIBRARIES = (
    *("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib"),
    *("usr/local/nvidia/lib64", ".singularity.d/libs"),
)
_MOST_READ = 1 << 16  # bytes of a file


def read_system(environment: Mapping[str, str], root: Path = Path("/")) -> System:
    """Read the system below a root, by the variables that this process was launched with."""
    module = re.search(
        r"Kernel Module\s.*?(\d+\.\d+(?:\.\d+)?)", text_of(root / "proc/driver/nvidia/version")
    )
    file = root / "usr/bin/nvidia-modprobe"
    modprobe = file.stat() if file.exists() else None
    return System(
        container=_container(environment, root),
        kind=_kind(environment, root),
        module=module[1] if module else "",
        pci_gpus=_pci_gpus(root),
        devices=tuple(_device_files(root / "dev")),
        makes_devices=modprobe is not None and not modprobe.st_uid and bool(modprobe.st_mode & stat.S_ISUID),
        has_cuda=any((root / folder / "libcuda.so.1").exists() for folder in _LIBRARIES),
        capabilities=environment.get("NVIDIA_DRIVER_CAPABILITIES"),
    )


def text_of(file: Path, most: int = _MOST_READ) -> str:
    """Return the beginning of a file; empty if it can't be read."""
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            return opened.read(most)
    except OSError:
        return ""


def _container(environment: Mapping[str, str], root: Path) -> str:
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "kubernetes"
    if environment.keys() & {"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "SINGULARITY_NAME"}:
        return "apptainer"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    is_named = re.search(r"docker|kubepods|containerd|libpod|/lxc/", text_of(root / "proc/self/cgroup"))
    return "container" if is_named or (root / "run/systemd/container").exists() else ""


def _kind(environment: Mapping[str, str], root: Path) -> str:
    if environment.keys() & {"COLAB_RELEASE_TAG", "COLAB_BACKEND_VERSION", "COLAB_GPU"}:
        return "Colab"
    if "KAGGLE_KERNEL_RUN_TYPE" in environment:
        return "Kaggle"
    if "microsoft" in text_of(root / "proc/sys/kernel/osrelease").lower():
        return "WSL"
    return "Jetson" if (root / "etc/nv_tegra_release").exists() else ""


def _pci_gpus(root: Path) -> int | Unknown:
    folder = root / "sys/bus/pci/devices"
    if not folder.is_dir():
        return UNKNOWN
    return sum(
        text_of(device / "vendor").strip() == _NVIDIA and text_of(device / "class").startswith(_DISPLAY)
        for device in folder.iterdir()
    )


def _device_files(folder: Path) -> list[DeviceFile]:
    names = (file.name.removeprefix("nvidia") for file in folder.glob("nvidia*"))
    numbers = sorted(int(name) for name in names if name.isdecimal())
    found = []
    for name in [*_CONTROL, *(f"nvidia{number}" for number in numbers)]:
        file, error = folder / name, ""
        if name in _CONTROL:
            try:
                os.close(os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
            except OSError as problem:
                error = errno.errorcode.get(problem.errno or 0, "")
        if file.exists() or name not in _CONTROL:
            found.append(DeviceFile(f"/dev/{name}", os.access(file, os.R_OK | os.W_OK), error))
    return found
