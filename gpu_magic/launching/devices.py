"""The GPUs that a command gets: those that this process has, or others, in an order; and what names them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpu_magic.devices.model import UNKNOWN, Gpu
from gpu_magic.errors import LaunchError, NotFreeError
from gpu_magic.gpus.apply import or_wait
from gpu_magic.gpus.options import Options, read_seconds
from gpu_magic.gpus.request import Auto, Named, parse
from gpu_magic.gpus.select import select
from gpu_magic.gpus.wait import Wait
from gpu_magic.process.given import Given
from gpu_magic.process.view import read_for_auto, read_machine, take_snapshot
from gpu_magic.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpu_magic.claims.held import Claims, Taken
    from gpu_magic.devices.model import Device, Inventory
    from gpu_magic.gpus.request import Request
    from gpu_magic.gpus.select import Selection
    from gpu_magic.gpus.wait import InTurn
    from gpu_magic.process.session import Session
    from gpu_magic.process.view import Snapshot

__all__ = ["Free", "divide", "pick"]


@dataclass(frozen=True, slots=True)
class Free:
    """Which GPUs are free enough for a command, and how long it waits for them: options as those of `%gpus`.

    Parameters
    ----------
    only_free
        Those that nobody else uses or has claimed, another command of this process included.
    min_free
        With `auto`: those with so much free memory, "20GB" or bytes.
    wait
        How long to wait for them, "30m" or in seconds; None: they have to be free now.
    on_wait
        Is called with the wait, each time that they were looked at in vain.

    """

    only_free: bool = False
    min_free: str | int | None = None
    wait: str | float | None = None
    on_wait: Callable[[Wait[Selection]], None] = lambda _: None


def pick(
    session: Session,
    gpus: str | None,
    count: int | None,
    *,
    force: bool,
    claims: Claims | None = None,
    free: Free | None = None,
) -> Selection:
    """Return the GPUs for a command.

    Parameters
    ----------
    session
        This process's.
    gpus
        As typed after `%gpus`; None: those that this process has.
    count
        How many of them, the first ones; None: all.
    force
        Allow GPUs outside what this process was started with.
    claims
        Claims them, unless this process wants none.
    free
        Which of them are free enough, and how long to wait for them.

    Raises
    ------
    ChoiceError
        They can't be chosen.
    NotFreeError
        Others have them, also after the wait.
    LaunchError
        There are not that many.

    """
    request: Request = Named(_visible(session, take_snapshot(session))) if gpus is None else parse(gpus)
    free = free or Free()
    options = Options(force=force, only_free=free.only_free, min_free=free.min_free)
    if isinstance(request, Named) and count in range(1, len(request.identifiers)):
        request = Named(request.identifiers[:count])  # the others need not be free
    if free.min_free is not None and not isinstance(request, Auto):
        given = f"--min-free {free.min_free}"
        raise LaunchError(f"{given} goes with auto; try --gpus auto {given}.")
    if free.wait is None:
        try:
            return _pick(session, request, count, options, claims)
        except NotFreeError as error:
            raise or_wait(error, request) from None
    if not isinstance(request, Auto | Named):
        raise LaunchError("--wait goes with auto and with GPUs by number; try --gpus auto:2 --wait 30m.")

    def attempt(options: Options, machine: Inventory, in_turn: InTurn | None) -> Selection:
        held = claims if in_turn else None
        return _pick(session, request, count, options, held, machine=machine, in_turn=in_turn)

    return Wait(session, request, options, read_seconds(free.wait), attempt).wait(free.on_wait)


def _pick(
    session: Session,
    request: Request,
    count: int | None,
    options: Options,
    claims: Claims | None,
    *,
    machine: Inventory | None = None,
    in_turn: InTurn | None = None,
) -> Selection:
    """Return the GPUs for a command as they are now; see `pick`.

    Parameters
    ----------
    session, request, count, options, claims
        What is asked for.
    machine
        The machine, where it was read for this just now.
    in_turn
        As for `apply`.

    """
    is_alone = isinstance(request, Auto) or options.only_free
    if machine is None:
        machine = read_for_auto(session) if is_alone else read_machine(session)

    def choose(machine: Inventory) -> Selection:
        selection = _select(session, request, machine, count, options)
        return _claim(session, selection, claims, is_alone=is_alone)

    if not is_alone:
        return choose(machine)
    if claims is None:
        return choose(machine.with_claims(session.claims.taken()))

    def choose_in_turn(taken: Taken) -> Selection:
        there = machine.with_claims(taken)
        return choose(in_turn(there) if in_turn else there)

    return session.claims.pick_in_turn(choose_in_turn, waits=in_turn is None)


def _select(
    session: Session, request: Request, machine: Inventory, count: int | None, options: Options
) -> Selection:
    inherited, grant = session.inherited, session.grant
    held = session.claims.held
    selection = select(request, machine, inherited, options, grant=grant, held=held)
    if selection.devices is UNKNOWN:
        raise LaunchError("Which GPUs these are can't be known here: name them, as --gpus 0,1.")
    if not selection.devices:
        raise LaunchError("A launch needs a GPU: name some, as --gpus 0,1, or run the command by itself.")
    if count is not None and not 1 <= count <= len(selection.devices):
        there = counted(len(selection.devices), "GPU")
        raise LaunchError(f"-n {count} with {there}: from 1 to {len(selection.devices)} of them can be used.")
    if count is None or count == len(selection.devices):
        return selection
    first, plain = _named(selection.devices[:count]), Options(force=options.force)
    return select(first, machine, inherited, plain, grant=grant)


def _claim(session: Session, selection: Selection, claims: Claims | None, *, is_alone: bool) -> Selection:
    if claims is not None and session.claims.are_wanted and isinstance(selection.devices, tuple):
        uuids = [str(device.uuid) for device in selection.devices]
        claims.hold(uuids, alone=is_alone)
    return selection


def divide(selection: Selection) -> list[Selection]:
    """Return a selection for each device, that has it alone."""
    assert isinstance(selection.devices, tuple)  # noqa: S101 - `pick` has seen to it
    entries = (selection.mask or "").split(",")
    return [
        replace(selection.with_mask(entry), devices=(device,))
        for device, entry in zip(selection.devices, entries, strict=True)
    ]


def _visible(session: Session, snapshot: Snapshot) -> tuple[int | str, ...]:
    """Return what names the devices that this process has, in the order of `cuda:i`."""
    if snapshot.problem:
        raise LaunchError(snapshot.problem)
    names = snapshot.kernel.names
    if names is UNKNOWN:
        raise LaunchError("Which GPUs this process has can't be known: name them, as --gpus 0,1.")
    by_uuid = {device.uuid: device for device in snapshot.devices}
    order = sorted(names, key=lambda uuid: int(names[uuid].removeprefix("cuda:")))
    found = [by_uuid[uuid] for uuid in order if uuid in by_uuid]
    if not found:
        given = Given(snapshot, session.inherited, session.grant)
        if given.devices == () and snapshot.devices:
            raise LaunchError(f"No GPU is visible in this process: {given.sentence}{given.unset}.")
        raise LaunchError("No GPU is visible in this process: name some, as --gpus 0,1.")
    return _named(found).identifiers


def _named(devices: Sequence[Device]) -> Named:
    return Named(tuple(map(_identifier, devices)))


def _identifier(device: Device) -> int | str:
    if isinstance(device, Gpu):
        return device.number_text if device.prefix else device.index
    return device.uuid
