"""What a process sees of a machine by its variables, whosever GPUs there are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.selection.hip import in_use, read_hip
from gpu_magic.selection.mask import read
from gpu_magic.selection.visible import MASK

if TYPE_CHECKING:
    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.devices.model import Device, Vendor
    from gpu_magic.selection.mask import Reading
    from gpu_magic.selection.visible import Variables

__all__ = ["in_force", "join", "read_visible", "seen_vendor", "together"]


def read_visible(variables: Variables, inventory: Inventory) -> Reading:
    """Return what frameworks see; on a machine with GPUs of both vendors, NVIDIA's and then AMD's."""
    if "amd" not in inventory.vendors:
        return read(variables.mask, inventory, variables.order)
    amd = read_hip(variables, inventory.of_vendor("amd"))
    if inventory.vendors == ("amd",):
        return amd
    return join(read(variables.mask, inventory.of_vendor("nvidia"), variables.order), amd)


def together(
    one: tuple[Device, ...] | Unknown, other: tuple[Device, ...] | Unknown
) -> tuple[Device, ...] | Unknown:
    """Return the devices of both; UNKNOWN where one is."""
    return UNKNOWN if one is UNKNOWN or other is UNKNOWN else (*one, *other)


def join(one: Reading, other: Reading) -> Reading:
    """Return what two readings mean together; it is UNKNOWN where that of one is."""
    names_all = one.names_all and other.names_all
    return replace(
        one,
        devices=together(one.devices, other.devices),
        notes=(*one.notes, *other.notes),
        names_all=names_all,
    )


def seen_vendor(variables: Variables, inventory: Inventory) -> Vendor:
    """Return whose GPUs `cuda:0`, `cuda:1` are: NVIDIA's, unless they are hidden or not there."""
    first, *others = inventory.vendors or ("nvidia",)
    if others and read(variables.mask, inventory.of_vendor(first), variables.order).devices == ():
        return others[0]
    return first


def in_force(variables: Variables, inventory: Inventory) -> dict[str, str]:
    """Return the variables that hide GPUs of this machine, by their names; those that are not set do not."""
    found = in_use(variables) if "amd" in inventory.vendors else {}
    if inventory.vendors != ("amd",) and variables.mask is not None:
        found = {MASK: variables.mask} | found
    return found
