"""The variables that make frameworks see a selection and no other GPU, and their values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.model import Device, Gpu, MigInstance
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.errors import ChoiceError
from gpu_magic.selection.hip import HIDDEN, write_hip
from gpu_magic.selection.mask import FASTEST, PCI, write
from gpu_magic.selection.visible import HIP, MASK, ORDER

if TYPE_CHECKING:
    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.devices.model import Vendor
    from gpu_magic.selection.mask import Kind
    from gpu_magic.selection.options import By, Order
    from gpu_magic.selection.visible import Variables

__all__ = ["device_order", "hide", "in_order", "show"]


def hide(*vendors: Vendor) -> dict[str, str | None]:
    """Return the variables with which no GPU of these vendors is seen, and their values."""
    found: dict[str, str | None] = {MASK: "", ORDER: PCI} if "nvidia" in vendors else {}
    return found | ({HIP: HIDDEN} if "amd" in vendors else {})


def show(
    devices: tuple[Device, ...],
    order: str,
    inventory: Inventory,
    inherited: Variables,
    *,
    by: By | None,
    given: Kind,
) -> dict[str, str | None]:
    """Return the variables with which frameworks see these devices, which are of one vendor, and no others.

    Parameters
    ----------
    devices
        In the order of `cuda:0`, `cuda:1`, …
    order
        CUDA_DEVICE_ORDER, for NVIDIA's.
    inventory
        The machine: of the other vendor's GPUs, which are hidden.
    inherited, given
        What the process was given, and of which kind that is.
    by
        Write "index" or "uuid"; None: as the process was given it, where that says which these are.

    Raises
    ------
    ChoiceError
        Numbers are asked for, and can't name these devices.

    """
    amd = tuple(device for device in devices if isinstance(device, Gpu) and device.vendor == "amd")
    if not amd:
        others = [vendor for vendor in inventory.vendors if vendor != "nvidia"]
        mask = visible_devices(devices, order, inventory.of_vendor("nvidia"), by=by, given=given)
        return {MASK: mask, ORDER: order, **hide(*others)}
    found = write_hip(amd, inherited, inventory.of_vendor("amd"), by=by)
    return found | ({MASK: ""} if "nvidia" in inventory.vendors else {})


def device_order(asked: Order | None, inherited: str | None) -> str:
    """Return CUDA_DEVICE_ORDER: as it is asked for, else as the process was given it, else nvidia-smi's."""
    if asked is None:
        return FASTEST if inherited == FASTEST else PCI
    return FASTEST if asked == "fastest" else PCI


def in_order(
    devices: tuple[Device, ...], order: str, inventory: Inventory
) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """Return devices that were named by no order in that of CUDA_DEVICE_ORDER, and a note where that fails.

    Parameters
    ----------
    devices
        In nvidia-smi's order, or by load.
    order
        CUDA_DEVICE_ORDER.
    inventory
        The machine.

    """
    if order != FASTEST or inventory.is_uniform or not devices[1:]:
        return devices, ()
    ranks = inventory.fastest_first
    if ranks is UNKNOWN:
        return devices, ("Which of these CUDA takes for the faster can't be known: name them in an order.",)
    return tuple(
        sorted(devices, key=lambda device: ranks.index(device) if isinstance(device, Gpu) else 0)
    ), ()


def visible_devices(
    devices: tuple[Device, ...], order: str, inventory: Inventory, *, by: str | None, given: Kind
) -> str:
    """Return a value of CUDA_VISIBLE_DEVICES that means these devices and no others.

    Parameters
    ----------
    devices
        The devices, in the order of `cuda:0`, `cuda:1`, …
    order
        CUDA_DEVICE_ORDER.
    inventory
        The machine.
    by
        Write "index" or "uuid"; None: as the process was given it, where that says which these are.
    given
        What the process was given.

    Raises
    ------
    ChoiceError
        Numbers are asked for, and can't name these devices.

    """
    has_mig = any(isinstance(device, MigInstance) for device in devices)
    # CUDA's numbers can differ from nvidia-smi's where it sorts by speed, or leaves out a GPU that is lost.
    is_sorted = order == FASTEST and not inventory.is_uniform
    # How CUDA numbers GPUs beside split ones is not documented well enough to promise anything by it.
    numbers_fail = is_sorted or any(gpu.problem or gpu.is_split for gpu in inventory)
    if by == "index" and has_mig:
        raise ChoiceError("A MIG instance has no number in CUDA_VISIBLE_DEVICES: omit --by index.")
    if by == "index" and numbers_fail:
        why = "with FASTEST_FIRST" if is_sorted else "while a GPU does not answer or is split by MIG"
        raise ChoiceError(f"CUDA's numbers are not known {why} on this machine: omit --by index.")
    by_uuid = by == "uuid" or (by is None and (given in ("uuid", "mig") or has_mig or numbers_fail))
    return write(devices, by_uuid=by_uuid)
