"""MIG instances: their names besides the UUID, and how many of them a process can use.

Source: MIG user guide (R580), "CUDA device enumeration". With CUDA 11 and CUDA 12 "only enumeration of a
single MIG instance is supported", and no GPU without MIG beside it. It does not say so of CUDA 13. But "only
single MIG instance enumeration is supported" still stands in the CUDA 13 programming guide, while processes
are reported to count several of them (nanoporetech/dorado #1586).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN

if TYPE_CHECKING:
    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.devices.model import MigInstance

__all__ = ["fitting_instances", "mig_limit", "takes_one"]

_FIRST_WITHOUT_LIMIT = 13  # CUDA's version


def takes_one(inventory: Inventory) -> bool:
    """Return whether CUDA is known to see one MIG instance, where several are named."""
    version = inventory.cuda_version
    return version is not UNKNOWN and int(version.partition(".")[0]) < _FIRST_WITHOUT_LIMIT


def mig_limit(inventory: Inventory) -> str:
    """Return how many MIG instances one process can use, as far as NVIDIA says it, as a clause."""
    if takes_one(inventory):
        return f"CUDA {inventory.cuda_version} lets one process use one MIG instance and no other GPU"
    return "One process can use one MIG instance and no other GPU, as far as NVIDIA documents it"


def fitting_instances(name: str, inventory: Inventory) -> list[MigInstance]:
    """Return the MIG instances that a name fits: the beginning of a UUID, or `MIG-GPU-8f3a…/1/0`.

    Drivers before R470 have the second form alone: the UUID of the GPU, and the numbers of the GPU instance
    and of the compute instance, `GI ID` and `CI ID` of nvidia-smi.
    """
    match = re.fullmatch(r"MIG-(GPU-[^/]*)/([0-9]{1,4})/([0-9]{1,4})", name)
    if not match:
        return [instance for gpu in inventory for instance in gpu.mig if instance.uuid.startswith(name)]
    ids = int(match[2]), int(match[3])
    gpus = [gpu for gpu in inventory if gpu.uuid is not UNKNOWN and gpu.uuid.startswith(match[1])]
    return [instance for gpu in gpus for instance in gpu.mig if instance.ids == ids]
