"""What others ask of this process, with the devices that they ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.record import record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_magic.claims.notes import Note
    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.devices.model import Device
    from gpu_magic.process.session import Session

__all__ = ["OpenNote", "devices_of", "open_notes", "with_devices"]


@record
class OpenNote:
    """A note that waits for an answer.

    Parameters
    ----------
    note
        Who asks, and since when.
    devices
        Which of the devices that are claimed here it asks for.
    can_give_up
        Whether this process has claimed one of them itself, and not only what it has started.

    """

    note: Note
    devices: tuple[Device, ...]
    can_give_up: bool


def open_notes(session: Session, machine: Inventory) -> tuple[OpenNote, ...]:
    """Return the notes that wait for an answer of this process."""
    return with_devices(session.inbox.open_notes(), session, machine)


def with_devices(notes: Iterable[Note], session: Session, machine: Inventory) -> tuple[OpenNote, ...]:
    """Return notes with the devices of this machine that they ask for."""
    held = session.claims.held
    return tuple(
        OpenNote(note, devices_of(note.uuids, machine), not held.isdisjoint(note.uuids)) for note in notes
    )


def devices_of(uuids: tuple[str, ...], machine: Inventory) -> tuple[Device, ...]:
    """Return the devices of this machine that have these UUIDs, in their order."""
    by_uuid = {device.uuid: device for device in machine.devices}
    return tuple(by_uuid[uuid] for uuid in uuids if uuid in by_uuid)
