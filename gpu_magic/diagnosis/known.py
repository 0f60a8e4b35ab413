"""What several checks ask of the facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.diagnosis.cuda_versions import of_driver

if TYPE_CHECKING:
    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.devices.model import Gpu
    from gpu_magic.diagnosis.facts import Facts, Program, System

__all__ = [
    "capabilities",
    "driver_cuda",
    "has_gpu",
    "nvidia_gpus",
    "on_host",
    "program",
    "real_machine",
    "system",
]


def program(facts: Facts) -> Program:
    """Return where commands are typed."""
    return "python" if facts.kernel is UNKNOWN else facts.kernel.program


def system(facts: Facts) -> System | None:
    """Return the system, where it was read and its GPUs are real."""
    is_simulated = facts.machine is not UNKNOWN and facts.machine.simulated
    return None if facts.system is UNKNOWN or is_simulated else facts.system


def on_host(where: System | None) -> str:
    """Return the words before a command that does nothing in a container; empty outside one."""
    return "On the host of this container:" if where is not None and where.container else ""


def real_machine(facts: Facts) -> Inventory | None:
    """Return the machine, where it was read and is real."""
    return None if facts.machine is UNKNOWN or facts.machine.simulated else facts.machine


def nvidia_gpus(facts: Facts) -> tuple[Gpu, ...]:
    """Return NVIDIA's GPUs; none where they could not be read."""
    gpus = () if facts.machine is UNKNOWN else facts.machine.gpus
    return tuple(gpu for gpu in gpus if gpu.vendor == "nvidia")


def has_gpu(facts: Facts) -> bool:
    """Return whether there are NVIDIA's GPUs, also where NVML does not tell."""
    where = system(facts)
    is_there = where is not None and (
        any(file.path[-1].isdigit() for file in where.devices)
        or bool(where.jetson)
        or (where.is_wsl and where.has_wsl_gpu)
        or (where.pci_gpus is not UNKNOWN and where.pci_gpus > 0)
    )
    return bool(nvidia_gpus(facts)) or is_there


def driver_cuda(facts: Facts) -> str:
    """Return the newest CUDA version that the driver runs, or a lower bound of it; empty for unknown."""
    if facts.machine is not UNKNOWN and facts.machine.cuda_version is not UNKNOWN:
        return facts.machine.cuda_version
    where = system(facts)
    return of_driver(where.module) if where is not None and where.module else ""


def capabilities(facts: Facts) -> set[tuple[int, int]]:
    """Return the compute capabilities of NVIDIA's GPUs, as far as they are known."""
    return {gpu.speed.capability for gpu in nvidia_gpus(facts) if gpu.speed is not UNKNOWN}
