"""Why no GPU can be read: no driver, an old module, a container without GPUs or without NVML, WSL, Jetson."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.nvml import HUNG_DRIVER, NO_GPU
from gpu_magic.devices.nvml_calls import NO_LIBRARY, NOT_LOADED, OUTDATED, REFUSED
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.diagnosis.checks.device_files import refused, start_anew
from gpu_magic.diagnosis.finding import Finding
from gpu_magic.diagnosis.known import has_gpu, on_host, real_machine, system

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.diagnosis.facts import Facts, System

__all__ = ["check_driver"]

_DRIVER, _GUIDE = "driver", "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide"
# How a container is started with GPUs.
_WITH_GPUS = {
    "docker": "docker run --gpus all …",
    "container": "docker run --gpus all …",
    "podman": "podman run --device nvidia.com/gpu=all …",
    "apptainer": "apptainer exec --nv …",
    "kubernetes": "resources: {limits: {nvidia.com/gpu: 1}}",
}
# The same with all of the driver's parts.
_WITH_ALL = {
    "kubernetes": "env: [{name: NVIDIA_DRIVER_CAPABILITIES, value: compute,utility}]",
    "apptainer": "apptainer exec --nv …",
    "podman": "podman run --device nvidia.com/gpu=all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility …",
}
_WITH_ALL_OF_DOCKER = "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility …"
_SERVICES = {
    "colab": ("Colab has given this notebook no GPU.", "Runtime > Change runtime type > T4 GPU"),
    "kaggle": ("Kaggle has given this notebook no GPU.", "Settings > Accelerator > GPU T4 x2"),
}


def check_driver(facts: Facts) -> Iterator[Finding]:
    machine, where = real_machine(facts), system(facts)
    if machine is None or (facts.packages is not UNKNOWN and facts.packages.binding_problem):
        return  # of the binding `check_binding` says why nothing can be read
    if where is not None:
        yield from _capabilities(where)
    if machine.gpus:
        if machine.limitation and "amd" not in machine.vendors:
            yield _without_nvml(machine.limitation, where)
    elif machine.problem:
        yield from _no_gpu(machine.problem, where, facts)


def _capabilities(where: System) -> Iterator[Finding]:
    """Find a container that was given the driver without CUDA."""
    given = {one.strip() for one in (where.capabilities or "").split(",")} - {""}
    # Where containers are started by CDI, or by Apptainer, nobody reads the variable.
    if where.container and given and not given & {"compute", "all"} and not where.has_cuda:
        yield Finding(
            "wrong",
            _DRIVER,
            f"This container has no CUDA driver: NVIDIA_DRIVER_CAPABILITIES={where.capabilities}.",
            'CUDA comes with the capability "compute", and nvidia-smi with "utility".',
            _WITH_ALL.get(where.container, _WITH_ALL_OF_DOCKER),
        )


def _without_nvml(limitation: str, where: System | None) -> Finding:
    container = where.container if where else ""
    return Finding(
        "worth knowing",
        _DRIVER,
        limitation.partition(": ")[0] + ".",
        'CUDA works without it. In a container it comes with the driver capability "utility".',
        _WITH_ALL.get(container, _WITH_ALL_OF_DOCKER),
    )


def _no_gpu(problem: str, where: System | None, facts: Facts) -> Iterator[Finding]:
    if where is not None and where.service in _SERVICES and not where.devices:
        what, mend = _SERVICES[where.service]
        yield Finding("wrong", _DRIVER, what, mend=mend)
    elif NO_LIBRARY in problem:
        yield _no_library(where, facts)
        if other := problem.replace(NO_LIBRARY, "").strip():  # why AMD's GPUs can't be read, either
            yield Finding("wrong", _DRIVER, other)
    elif OUTDATED in problem:
        yield _outdated(where)
    elif NOT_LOADED in problem:
        what = "The NVIDIA driver is installed, and its kernel module is not loaded."
        meaning = "After an update of the system's kernel the driver may have to be installed again."
        yield Finding("wrong", _DRIVER, what, f"{meaning} {on_host(where)}".rstrip(), "sudo modprobe nvidia")
    elif NO_GPU in problem:
        yield _none_given(where)
    elif HUNG_DRIVER in problem:
        what = "The NVIDIA driver does not answer."
        meaning = "A GPU that has failed can do that. What the driver has logged: sudo dmesg | grep NVRM"
        yield Finding("wrong", _DRIVER, what, f"{meaning} {on_host(where)}".rstrip(), "sudo reboot")
    elif where is None or not refused(where):  # else `check_device_files` says why
        mend = "sudo chmod a+rw /dev/nvidia*" if REFUSED in problem else ""
        yield Finding("wrong", _DRIVER, problem, mend=mend)


def _outdated(where: System | None) -> Finding:
    """Say that the driver's libraries and its kernel module are of different versions."""
    if where is not None and where.container not in ("", "apptainer"):  # it takes the host's at each start
        what = "This container has the driver's libraries of another version than its host's kernel module."
        meaning = (
            "The host's driver was updated since it was started, or the image brings its own. If nvidia-smi "
            "fails on the host, too, that has to be restarted; else, from the host:"
        )
        return Finding("wrong", _DRIVER, what, meaning, start_anew(where))
    what = "The NVIDIA driver was updated while its old kernel module is still loaded."
    meaning = "Nothing can use the GPUs until the machine was restarted."
    return Finding("wrong", _DRIVER, what, meaning, "sudo reboot")


def _none_given(where: System | None) -> Finding:
    what = "The NVIDIA driver is there, and this process has no GPU of it."
    if where is not None and where.container:
        return Finding("wrong", _DRIVER, what, "The container was given none.", _WITH_GPUS[where.container])
    return Finding(
        "wrong", _DRIVER, what, "A job of a scheduler has those that it asks for.", "srun --gres=gpu:1 …"
    )


def _no_library(where: System | None, facts: Facts) -> Finding:
    """Say why NVML is not here, and with it no GPU."""
    if where is None:
        return Finding("wrong", _DRIVER, "No GPU can be seen, as NVML is not here (libnvidia-ml.so.1).")
    if where.is_wsl:
        return _wsl(where)
    if where.jetson:
        return Finding(
            "worth knowing",
            _DRIVER,
            "This Jetson board has no NVML, so that its GPU is not shown here.",
            "CUDA works without it. tegrastats shows the GPU's load.",
        )
    has_files = any(file.path[-1].isdigit() for file in where.devices)
    if where.container and not has_files:
        is_there = bool(where.module) or (where.pci_gpus is not UNKNOWN and where.pci_gpus > 0)
        what = "This container was started without GPUs"
        host = (
            ", and its host has them." if is_there else "; whether its host has any can't be seen from here."
        )
        return Finding("wrong", _DRIVER, what + host, mend=_WITH_GPUS[where.container])
    if where.container:
        return Finding(
            "wrong",
            _DRIVER,
            "This container has device files of GPUs, and no NVML (libnvidia-ml.so.1).",
            'NVML comes with the driver capability "utility", and CUDA with "compute".',
            _WITH_ALL.get(where.container, _WITH_ALL_OF_DOCKER),
        )
    if where.module or has_files:
        version = f" ({where.module})" if where.module else ""
        what = f"NVIDIA's kernel module is loaded{version}, and its libraries are missing."
        meaning = "The driver has to be installed again, with its libraries."
        return Finding("wrong", _DRIVER, what, meaning, _GUIDE)
    if has_gpu(facts):
        return Finding("wrong", _DRIVER, "This machine has an NVIDIA GPU, and no driver for it.", mend=_GUIDE)
    known = where.pci_gpus is not UNKNOWN
    return Finding(
        "wrong",
        _DRIVER,
        f"This machine has no NVIDIA GPU{'' if known else ' that can be seen'}, and no NVIDIA driver.",
        "On a cluster this may be a login node: a job on a node with GPUs has them. The variable "
        "GPU_MAGIC_SIMULATE=8xA100-80GB shows what gpu_magic does, without a GPU.",
    )


def _wsl(where: System) -> Finding:
    if not where.has_wsl_gpu:
        what = "Windows passes no GPU on to this Linux (there is no /dev/dxg)."
        return Finding("wrong", _DRIVER, what, "It does from WSL 2 on. In Windows:", "wsl --update")
    if not where.has_wsl_driver:
        what = (
            "Windows has no NVIDIA driver for this Linux to use (there is no /usr/lib/wsl/lib/libcuda.so.1)."
        )
        meaning = "The driver is installed in Windows, and never in Linux (NVIDIA, CUDA on WSL)."
        return Finding("wrong", _DRIVER, what, meaning, "https://www.nvidia.com/drivers")
    what = "Windows's NVIDIA driver is here, and its libraries are not found (/usr/lib/wsl/lib)."
    mend = "sudo sh -c 'echo /usr/lib/wsl/lib > /etc/ld.so.conf.d/ld.wsl.conf && ldconfig'"
    return Finding("wrong", _DRIVER, what, mend=mend)
