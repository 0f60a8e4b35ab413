"""Asks others for GPUs that they have claimed, and answers those who ask for this process's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_magic.claims.outbox import NotSentError
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.errors import ChoiceError
from gpu_magic.process.choosing import apply
from gpu_magic.process.outcome import Applied
from gpu_magic.process.state import State
from gpu_magic.process.view import take_snapshot
from gpu_magic.selection.options import Options
from gpu_magic.selection.request import Named, parse
from gpu_magic.selection.select import select_among
from gpu_magic.text import listed

if TYPE_CHECKING:
    from gpu_magic.devices.claim import Claim
    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.devices.model import Device
    from gpu_magic.process.notes import OpenNote
    from gpu_magic.process.session import Session
    from gpu_magic.process.view import Snapshot

__all__ = ["Asking", "Giving", "ask", "give_up", "keep"]


@dataclass(frozen=True, slots=True)
class Asking:
    """What was asked of whom.

    Parameters
    ----------
    devices
        The devices.
    claims
        Those who were asked.

    """

    devices: tuple[Device, ...]
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class Giving:
    """What was given up.

    Parameters
    ----------
    devices
        The devices.
    askers
        The names of those who had asked for them.
    outcome
        What is chosen now; None where CUDA was initialized, so that the process keeps what it has.
    kept_as
        What it then calls each of the devices: `cuda:0`.

    """

    devices: tuple[Device, ...]
    askers: tuple[str, ...]
    outcome: Applied | None
    kept_as: tuple[str, ...] = ()


def ask(session: Session, wanted: str, text: str) -> Asking:
    """Ask those who have claimed some devices for them.

    Raises
    ------
    ChoiceError
        Nobody can be asked for these, or not now; nothing was sent.

    """
    machine = take_snapshot(session)
    devices = _named(wanted, machine, f"--ask goes with GPUs by number: %gpus 3 --ask; not with {wanted}.")
    for device in devices:
        if not device.status.claims:
            raise ChoiceError(_nobody_to_ask(device, session))
    claims = tuple(dict.fromkeys(claim for device in devices for claim in device.status.claims))
    try:
        session.outbox.send([str(device.uuid) for device in devices], text, claims)
    except NotSentError as error:
        raise ChoiceError(str(error)) from None
    return Asking(devices, claims)


def give_up(session: Session, wanted: str | None) -> Giving:
    """End the claims of this process on some devices, and choose the others of its choice.

    Parameters
    ----------
    session
        This process's.
    wanted
        The devices, as typed after `%gpus`; None: those that others ask for.

    Raises
    ------
    ChoiceError
        They can't be given up; nothing was changed.

    """
    machine = take_snapshot(session)
    notes = machine.asked
    devices = _asked_for(notes, session) if wanted is None else _claimed(wanted, machine, session)
    ended = {str(device.uuid) for device in devices}
    names = {} if machine.kernel.names is UNKNOWN else machine.kernel.names
    outcome = None
    if State(machine.kernel.state).can_change:
        rest = [device for device in machine.devices if device.uuid in names and device.uuid not in ended]
        rest.sort(key=lambda device: list(names).index(str(device.uuid)))
        text = ",".join(device.number_text for device in rest) or "none"
        outcome = apply(session, text, session.memory_options if rest else Options())
    else:
        session.claims.hold(session.claims.held - ended)
    answered = [note for note in notes if ended.intersection(note.note.uuids)]
    session.inbox.answer([note.note for note in answered], given_up=ended)
    askers = tuple(dict.fromkeys(note.note.owner for note in answered))
    kept_as = tuple(names[str(device.uuid)] for device in devices if device.uuid in names)
    return Giving(devices, askers, outcome if isinstance(outcome, Applied) else None, kept_as)


def keep(session: Session) -> tuple[OpenNote, ...]:
    """Tell all who ask for a GPU that they do not get it; return what they have asked.

    Raises
    ------
    ChoiceError
        Nobody asks.

    """
    notes = take_snapshot(session).asked
    if not notes:
        raise ChoiceError("Nobody asks for a GPU that this kernel has claimed.")
    session.inbox.answer([note.note for note in notes], given_up=())
    return notes


def _named(wanted: str, machine: Inventory, otherwise: str) -> tuple[Device, ...]:
    request = parse(wanted)
    if not isinstance(request, Named):
        raise ChoiceError(otherwise)
    return select_among(request, machine, machine.devices)


def _nobody_to_ask(device: Device, session: Session) -> str:
    if str(device.uuid) in session.claims.held:
        return f"This kernel has {device.label} itself."
    number = device.number_text
    if device.is_free:
        return f"Nobody uses {device.label}, or has claimed it: %gpus {number} chooses it."
    return (
        f"Nobody can be asked for {device.label}, as nobody has claimed it with gpu_magic; %gpus shows who "
        "uses it, as far as that is known."
    )


def _asked_for(notes: tuple[OpenNote, ...], session: Session) -> tuple[Device, ...]:
    """Return the devices of this process that others ask for."""
    held = session.claims.held
    asked = tuple(dict.fromkeys(device for note in notes for device in note.devices))
    ours = tuple(device for device in asked if device.uuid in held)
    if ours:
        return ours
    if asked:
        what = listed(device.label for device in asked)
        raise ChoiceError(
            f"What this kernel has started has claimed {what}: %gpu_tasks and %gpu_cluster list and end that."
        )
    also = "; %gpus 3 --give-up gives up GPU 3 all the same" if held else ""
    raise ChoiceError(f"Nobody asks for a GPU that this kernel has claimed{also}.")


def _claimed(wanted: str, machine: Snapshot, session: Session) -> tuple[Device, ...]:
    devices = _named(wanted, machine, f"--give-up goes with GPUs by number, or alone; not with {wanted}.")
    held = session.claims.held
    for device in devices:
        if str(device.uuid) not in held:
            ours = [one.label for one in machine.devices if one.uuid in held]
            raise ChoiceError(f"This kernel has not claimed {device.label}; it has {listed(ours, 'no GPU')}.")
    return devices
