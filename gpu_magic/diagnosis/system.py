"""The system that this process is in: a container, WSL, a Jetson board; NVIDIA's module and device files.

Sources:

- Containers: Docker makes /.dockerenv, Podman /run/.containerenv; Kubernetes sets KUBERNETES_SERVICE_HOST,
  Apptainer APPTAINER_CONTAINER (Singularity SINGULARITY_CONTAINER).
- A container without the driver capability "utility" has no NVML, and without "compute" no libcuda.so.1
  (NVIDIA Container Toolkit, "Driver capabilities"). /proc/driver/nvidia is the host's in any container.
- WSL: Windows passes GPUs on as /dev/dxg, and puts its driver's libraries into /usr/lib/wsl/lib (NVIDIA,
  "CUDA on WSL"). There are no /dev/nvidia*.
- Jetson: /etc/nv_tegra_release, or "NVIDIA" and "Jetson" in the device tree's model. A discrete GPU's NVML
  may be missing; the GPU's device files are /dev/nvhost-* and /dev/nvmap.
- Device files: /dev/nvidiactl and /dev/nvidia-uvm are opened by every program that uses CUDA; a container
  whose cgroup has lost them answers EPERM, whatever the permissions say (nvidia-docker #1730).
- CUDA makes device files that are missing by nvidia-modprobe, where that is installed setuid root
  (nvidia-modprobe(1)): after a start of the machine /dev/nvidia-uvm may be there from the first use on.
- MPS: the control pipe is `control` in CUDA_MPS_PIPE_DIRECTORY, /tmp/nvidia-mps where that is not set.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.diagnosis.facts import DeviceFile, System

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["read_system"]

_CONTROL = ("nvidiactl", "nvidia-uvm")
_NVIDIA = "0x10de"  # the vendor's number on the PCI bus
_DISPLAY = "0x03"  # the class of what draws or computes: 0x0300 VGA, 0x0302 3D
# Where containers get the driver's libraries; the last is Apptainer's.
_DRIVER_FOLDERS = (
    *(
        "usr/lib/x86_64-linux-gnu",
        "usr/lib/aarch64-linux-gnu",
        "usr/lib64",
        "usr/lib",
        "usr/local/nvidia/lib64",
    ),
    ".singularity.d/libs",
)
_DEVICE_GROUPS = ("video", "render", "nvidia", "vglusers")
_MOST_READ = 1 << 16  # bytes of a file


def read_system(environment: Mapping[str, str], root: Path = Path("/")) -> System:
    """Read what says what kind of system it is.

    Parameters
    ----------
    environment
        The variables that this process was launched with.
    root
        The folder with dev, proc, sys and so on.

    """
    pipe = environment.get("CUDA_MPS_PIPE_DIRECTORY")
    kernel = _text(root / "proc/sys/kernel/osrelease")
    return System(
        container=_container(environment, root),
        service=_service(environment),
        is_wsl="microsoft" in kernel.lower(),
        jetson=_jetson(root),
        has_wsl_gpu=(root / "dev/dxg").exists(),
        has_wsl_driver=(root / "usr/lib/wsl/lib/libcuda.so.1").exists(),
        module=_module(root),
        pci_gpus=_pci_gpus(root),
        devices=tuple(_device_file(file) for file in _device_files(root)),
        makes_devices=_is_setuid(root / "usr/bin/nvidia-modprobe"),
        has_cuda=any((root / folder / "libcuda.so.1").exists() for folder in _DRIVER_FOLDERS),
        capabilities=environment.get("NVIDIA_DRIVER_CAPABILITIES"),
        mps_folder=pipe,
        has_mps=(root / (pipe or "/tmp/nvidia-mps").lstrip("/") / "control").exists(),  # noqa: S108
        mps_share=environment.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
    )


def _container(environment: Mapping[str, str], root: Path) -> str:
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "kubernetes"
    if environment.keys() & {"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "SINGULARITY_NAME"}:
        return "apptainer"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    is_named = re.search(r"docker|kubepods|containerd|libpod|/lxc/", _text(root / "proc/self/cgroup"))
    return "container" if is_named or (root / "run/systemd/container").exists() else ""


def _service(environment: Mapping[str, str]) -> str:
    if environment.keys() & {"COLAB_RELEASE_TAG", "COLAB_BACKEND_VERSION", "COLAB_GPU"}:
        return "colab"
    return "kaggle" if "KAGGLE_KERNEL_RUN_TYPE" in environment else ""


def _jetson(root: Path) -> str:
    """Return the release, from `# R36 (release), REVISION: 4.3, …`; empty where it is no Jetson board."""
    if found := re.match(r"# (R\d+)", _text(root / "etc/nv_tegra_release")):
        return found[1]
    return "yes" if "jetson" in _text(root / "proc/device-tree/model").lower() else ""


def _module(root: Path) -> str:
    """Return the kernel module's version, from `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65`."""
    found = re.search(r"Kernel Module\s.*?(\d+\.\d+(?:\.\d+)?)", _text(root / "proc/driver/nvidia/version"))
    return found[1] if found else ""


def _pci_gpus(root: Path) -> int | Unknown:
    folder = root / "sys/bus/pci/devices"
    if not folder.is_dir():
        return UNKNOWN
    return sum(
        _text(device / "vendor").strip() == _NVIDIA and _text(device / "class").startswith(_DISPLAY)
        for device in folder.iterdir()
    )


def _device_files(root: Path) -> list[Path]:
    found = [file for file in (root / "dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", file.name)]
    numbered = sorted(found, key=lambda file: int(file.name.removeprefix("nvidia")))
    return [file for name in _CONTROL if (file := root / "dev" / name).exists()] + numbered


def _device_file(file: Path) -> DeviceFile:
    path, error = f"/dev/{file.name}", ""
    is_permitted = os.access(file, os.R_OK | os.W_OK)
    if file.name in _CONTROL:
        try:
            os.close(os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
        except OSError as problem:
            error = errno.errorcode.get(problem.errno or 0, "")
    return DeviceFile(path, is_permitted, error, "" if is_permitted else _group(file))


def _group(file: Path) -> str:
    """Return the group that a file is open to, where it is one for devices; empty for none."""
    try:
        status = file.stat()
        is_open = bool(status.st_mode & stat.S_IRGRP and status.st_mode & stat.S_IWGRP)
        name = file.group() if is_open else ""
    except (OSError, KeyError, ImportError, NotImplementedError):  # Windows has no groups
        return ""
    return name if name in _DEVICE_GROUPS else ""


def _is_setuid(file: Path) -> bool:
    try:
        status = file.stat()
    except OSError:
        return False
    return status.st_uid == 0 and bool(status.st_mode & stat.S_ISUID)


def _text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            return opened.read(_MOST_READ)
    except OSError:
        return ""
