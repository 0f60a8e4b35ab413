"""What a process makes of the machine: the masks, what frameworks call each GPU, and what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.cuda.driver import State
from gpu_magic.devices.model import UNKNOWN, Inventory, KernelView, Unknown
from gpu_magic.selection.mask import Reading, read

if TYPE_CHECKING:
    from gpu_magic.cuda.guard import Guard

__all__ = ["view"]

# CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER; None: not set.
_Variables = tuple[str | None, str | None]


def view(inventory: Inventory, inherited: _Variables, now: _Variables, guard: Guard) -> KernelView:
    """Put the machine, the variables and the guard's answer together.

    Parameters
    ----------
    inventory
        The machine.
    inherited, now
        The two variables as the process was started, and as they are.
    guard
        Whether CUDA has read them, and what it then took.

    """
    reading = read(now[0], inventory, now[1])
    given = read(inherited[0], inventory, inherited[1])
    notes = list(reading.notes)
    if now != inherited and inherited[0] is not None:
        notes += [f"As it was started: {note}" for note in given.notes]
    if guard.state is State.FROZEN and _uuids(reading) not in (None, guard.uuids):
        notes.append(
            f"CUDA_VISIBLE_DEVICES now means other GPUs than CUDA has read: this process stays with "
            f"{guard.frozen_to}; frameworks may count by the new value, and new processes will."
        )
    visible = _uuids(reading) if guard.can_change else guard.uuids
    names: dict[str, str] | Unknown = UNKNOWN
    if visible is not None:
        names = {uuid: f"cuda:{place}" for place, uuid in enumerate(visible)}
    return KernelView(
        inherited=inherited[0],
        inherited_order=inherited[1],
        mask=now[0],
        order=now[1],
        names=names,
        given=None if inherited[0] is None else _uuids(given),
        state=guard.state.value,
        cuda=guard.sentence,
        notes=tuple(notes),
    )


def _uuids(reading: Reading) -> tuple[str, ...] | None:
    """Return what is visible; None where it can't be told."""
    if reading.devices is UNKNOWN or any(device.uuid is UNKNOWN for device in reading.devices):
        return None
    return tuple(str(device.uuid) for device in reading.devices)
