"""Asks others for GPUs that they have claimed, and answers those who ask for this process's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_magic.claims.outbox import NotSentError
from gpu_magic.devices.record import record
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.errors import ChoiceError
from gpu_magic.process.choosing import apply, check_background
from gpu_magic.process.guard import runtime_of
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

_NOBODY_ASKS = "Nobody asks for a GPU that this kernel has claimed."


@record
class Asking:
    """What was asked of whom.

    Parameters
    ----------
    devices
        The devices.
    claims
        Those who were asked: a claim of each process.

    """

    devices: tuple[Device, ...]
    claims: tuple[Claim, ...]


@record
class Giving:
    """What was given up.

    Parameters
    ----------
    devices
        The devices.
    told
        The notes of those who had asked for them, and can read the answer.
    outcome
        What is chosen now; None where CUDA, or ROCm, was initialized, so that the process keeps what it has.
    kept_as
        What it then calls each of the devices: `cuda:0`.
    runtime
        CUDA or ROCm.

    """

    devices: tuple[Device, ...]
    told: tuple[OpenNote, ...]
    outcome: Applied | None
    kept_as: tuple[str, ...]
    runtime: str


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
    of_processes = {(claim.owner, claim.pid): claim for device in devices for claim in device.status.claims}
    claims = tuple(of_processes.values())
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
    devices = _asked_for(machine.asked, session) if wanted is None else _claimed(wanted, machine, session)
    ended = {str(device.uuid) for device in devices}
    held = session.claims.held
    names = {} if machine.kernel.names is UNKNOWN else machine.kernel.names
    outcome = None
    check_background("which can't be given up meanwhile")
    if State(machine.kernel.state).can_change:
        by_uuid = {device.uuid: device for device in machine.devices}
        rest = [by_uuid[uuid] for uuid in names if uuid in held - ended and uuid in by_uuid]
        text = ",".join(device.number_text for device in rest) or "none"
        options = replace(session.chosen_options.of_named, only_free=False, no_claim=False)
        outcome = apply(session, text, options if rest else Options())
    else:
        session.claims.hold(held - ended)
    answered = [note for note in machine.asked if ended.intersection(note.note.uuids)]
    is_told = session.inbox.answer([note.note for note in answered], given_up=ended)
    return Giving(
        devices,
        tuple(answered) if is_told else (),
        outcome if isinstance(outcome, Applied) else None,
        tuple(names[str(device.uuid)] for device in devices if device.uuid in names),
        runtime_of(machine.kernel.vendor),
    )


def keep(session: Session) -> tuple[OpenNote, ...]:
    """Tell all who ask for a GPU that they do not get it; return what they have asked.

    Raises
    ------
    ChoiceError
        Nobody asks.

    """
    notes = take_snapshot(session).asked
    if not notes:
        raise ChoiceError(_NOBODY_ASKS)
    if not session.inbox.answer([note.note for note in notes], given_up=()):
        raise ChoiceError("They can't be told: no file can be made where claims are.")
    return notes


def _named(wanted: str, machine: Inventory, otherwise: str) -> tuple[Device, ...]:
    request = parse(wanted)
    if not isinstance(request, Named):
        raise ChoiceError(otherwise)
    return select_among(request, machine, machine.devices)


def _nobody_to_ask(device: Device, session: Session) -> str:
    if str(device.uuid) in session.claims.held:
        return f"This kernel has {device.label} itself."
    if str(device.uuid) in session.claims.taken():  # which others' claims would be in, too
        return _of_started(device.label)
    number = device.number_text
    if device.is_free:
        return f"Nobody uses {device.label}, or has claimed it: %gpus {number} chooses it."
    return (
        f"Nobody can be asked for {device.label}, as nobody has claimed it with gpu_magic; %gpus shows who "
        "uses it, as far as that is known."
    )


def _of_started(what: str) -> str:
    return f"What this kernel has started has claimed {what}: %gpu_tasks and %gpu_cluster list and end that."


def _asked_for(notes: tuple[OpenNote, ...], session: Session) -> tuple[Device, ...]:
    """Return the devices of this process that others ask for."""
    held = session.claims.held
    asked = tuple(dict.fromkeys(device for note in notes for device in note.devices))
    ours = tuple(device for device in asked if device.uuid in held)
    if asked and not ours:
        raise ChoiceError(_of_started(listed(device.label for device in asked)))
    if not ours:
        raise ChoiceError(_NOBODY_ASKS)
    return ours


def _claimed(wanted: str, machine: Snapshot, session: Session) -> tuple[Device, ...]:
    devices = _named(wanted, machine, f"--give-up goes with GPUs by number, or alone; not with {wanted}.")
    held = session.claims.held
    for device in devices:
        if str(device.uuid) in held:
            continue
        if not device.status.claims and str(device.uuid) in session.claims.taken():
            raise ChoiceError(_of_started(device.label))
        ours = [one.label for one in machine.devices if one.uuid in held]
        raise ChoiceError(f"This kernel has not claimed {device.label}; it has {listed(ours, 'no GPU')}.")
    return devices
