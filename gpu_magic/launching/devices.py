"""The GPUs that a command gets: those that this process has, or others, in an order; and what names them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_magic.claims.turns import pick_in_turn
from gpu_magic.devices.model import Gpu
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.errors import LaunchError
from gpu_magic.process.view import read_for_auto, take_snapshot
from gpu_magic.selection.options import Options
from gpu_magic.selection.request import Auto, Named, parse
from gpu_magic.selection.select import select
from gpu_magic.spelling import option
from gpu_magic.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.claims.held import Claims
    from gpu_magic.claims.turns import Taken
    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.devices.model import Device
    from gpu_magic.process.session import Session
    from gpu_magic.process.view import Snapshot
    from gpu_magic.selection.request import Request
    from gpu_magic.selection.select import Selection

__all__ = ["divide", "pick"]


def pick(
    session: Session, gpus: str | None, count: int | None, *, force: bool, claims: Claims | None = None
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

    Raises
    ------
    ChoiceError
        They can't be chosen.
    LaunchError
        There are not that many.

    """
    request = None if gpus is None else parse(gpus)
    if not isinstance(request, Auto):
        snapshot = take_snapshot(session)
        request = request or Named(_visible(snapshot))
        selection = _select(session, request, snapshot, count, force=force)
        return _claim(session, selection, claims, is_alone=False)
    machine = read_for_auto(session)

    def pick(taken: Taken) -> Selection:
        selection = _select(session, request, machine.with_claims(taken), count, force=force)
        return _claim(session, selection, claims, is_alone=True)

    return pick_in_turn(session.claims, pick) if claims else pick(session.claims.taken())


def _select(
    session: Session, request: Request, machine: Inventory, count: int | None, *, force: bool
) -> Selection:
    options, inherited, grant = Options(force=force), session.inherited, session.grant
    held = session.claims.held
    selection = select(request, machine, inherited, options, grant=grant, held=held)
    if selection.devices is UNKNOWN:
        raise LaunchError(f"Which GPUs these are can't be known here: name them, as {option('gpus', '0,1')}.")
    if not selection.devices:
        some = option("gpus", "0,1")
        raise LaunchError(f"A launch needs a GPU: name some, as {some}, or run the command by itself.")
    if count is None or count == len(selection.devices):
        return selection
    if not 1 <= count <= len(selection.devices):
        there = counted(len(selection.devices), "GPU")
        raise LaunchError(
            f"{option('count', count)} with {there}: from 1 to {len(selection.devices)} of them can be used."
        )
    return select(_named(selection.devices[:count]), machine, inherited, options, grant=grant)


def _claim(session: Session, selection: Selection, claims: Claims | None, *, is_alone: bool) -> Selection:
    if claims is not None and session.claims.are_wanted and isinstance(selection.devices, tuple):
        uuids = [str(device.uuid) for device in selection.devices]
        (claims.hold_alone if is_alone else claims.hold)(uuids)
    return selection


def divide(selection: Selection) -> list[Selection]:
    """Return a selection for each device, that has it alone."""
    assert isinstance(selection.devices, tuple)  # noqa: S101 - `pick` has seen to it
    entries = (selection.mask or "").split(",")
    return [
        replace(selection.with_mask(entry), devices=(device,))
        for device, entry in zip(selection.devices, entries, strict=True)
    ]


def _visible(snapshot: Snapshot) -> tuple[int | str, ...]:
    """Return what names the devices that this process has, in the order of `cuda:i`."""
    names = snapshot.kernel.names
    if names is UNKNOWN:
        raise LaunchError(
            f"Which GPUs this process has can't be known: name them, as {option('gpus', '0,1')}."
        )
    if snapshot.problem:
        raise LaunchError(snapshot.problem)
    by_uuid = {device.uuid: device for device in snapshot.devices}
    order = sorted(names, key=lambda uuid: int(names[uuid].removeprefix("cuda:")))
    found = [by_uuid[uuid] for uuid in order if uuid in by_uuid]
    if not found:
        raise LaunchError(f"No GPU is visible in this process: name some, as {option('gpus', '0,1')}.")
    return _named(found).identifiers


def _named(devices: Sequence[Device]) -> Named:
    return Named(tuple(map(_identifier, devices)))


def _identifier(device: Device) -> int | str:
    if isinstance(device, Gpu):
        return device.number_text if device.prefix else device.index
    return device.uuid
