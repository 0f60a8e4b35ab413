"""Picks the GPUs for a command, in order: this process's GPUs, or other GPUs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpu_magic.devices.model import UNKNOWN, Gpu
from gpu_magic.errors import ChoiceError, GpuMagicError, LaunchError, NotFreeError
from gpu_magic.gpus.auto import OneInstanceError
from gpu_magic.gpus.options import Options, read_seconds
from gpu_magic.gpus.request import Auto, Named, Word, parse
from gpu_magic.gpus.select import Selection, select
from gpu_magic.gpus.wait import Wait
from gpu_magic.process.find import usable_devices, whole_gpus
from gpu_magic.process.given import Given
from gpu_magic.process.mask import names_of
from gpu_magic.process.view import Snapshot, read_for_auto, read_machine
from gpu_magic.process.visible import in_force, read_visible
from gpu_magic.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpu_magic.claims.held import Claims
    from gpu_magic.devices.model import Device, Inventory
    from gpu_magic.gpus.request import Request
    from gpu_magic.process.session import Session

__all__ = ["NoGpusError", "can_pick", "divide", "inherit", "pick"]

_PLAIN = Options()


class NoGpusError(LaunchError):
    """There are no GPUs, or they are unknown. `what` says which. `gpus` are GPUs to name instead."""

    def __init__(self, what: str, gpus: str, named_by: str = "--gpus") -> None:
        super().__init__(f"{what}{f' Try {named_by} {gpus}' * bool(gpus)}")
        self.what, self.gpus = what, gpus


def inherit(session: Session, options: Options, *, claims: Claims | None) -> Selection:
    """Return the GPUs that this process sees, with its variables as they are. `claims` is as for `pick`.

    It raises LaunchError if the GPUs are unknown or there are none.
    """
    snapshot = Snapshot.of(session, read_machine(session))
    variables = snapshot.now
    devices = tuple(_visible(snapshot))
    if not options.force:
        snapshot.given.check_inside(devices)
    if read_visible(variables, snapshot.machine).devices != devices:
        # CUDA started with other variables, and this process sees the GPUs from then.
        return _pick(session, _named(devices), None, claims, options=options, machine=snapshot.machine)
    if claims is not None and session.claims.are_wanted:
        claims.hold([device.identity for device in devices], unclaimed=False)
    vendor = snapshot.machine.vendor
    set_here = {name: value for name, value in variables.named(names_of(vendor)).items() if value is not None}
    return Selection(devices, set_here, vendor=vendor)


def pick(
    session: Session,
    gpus: str | None,
    count: int | None,
    options: Options = _PLAIN,
    *,
    claims: Claims | None = None,
    wait: str | float | None = None,
    on_wait: Callable[[Wait[Selection, Selection]], object] = str,
    is_divided: bool = False,
) -> Selection:
    """Return the GPUs for a command. `gpus` is as typed after `%gpus`. None: this process's visible GPUs.

    `count` limits the selection to the first GPUs. None: all. `claims` claims the GPUs, unless claims are off
    in this process. `wait` is how long to wait for free GPUs: "30m", or seconds. None: do not wait. `on_wait`
    is called with the `Wait` each time the GPUs are not free. `is_divided`: each GPU is for another process,
    so there can be several MIG instances.

    It raises ChoiceError if the GPUs cannot be chosen, NotFreeError if other processes use or claim the GPUs,
    also after the wait, and LaunchError if there are fewer than `count` GPUs.
    """
    snapshot = Snapshot.take(session) if gpus is None else None
    if snapshot is None:
        check = partial(_check, session, count=count, options=options, is_divided=is_divided)
        request: Request = parse(gpus or "", check)
    else:
        request = _named(_divisible(snapshot, force=options.force) if is_divided else _visible(snapshot))
    if isinstance(request, Named) and count in range(1, len(request.identifiers)):
        request = Named(request.identifiers[:count])  # the rest need not be free
    if (given := options.for_auto.strip()) and not isinstance(request, Auto):
        how = f" Try --gpus auto {given}" * can_pick(session, "auto", options)
        raise LaunchError(f"{given} goes with auto.{how}")
    if wait is None:
        must_be_unclaimed = isinstance(request, Auto) or options.only_free
        try:
            there = snapshot.machine if snapshot else None
            machine = read_for_auto(session) if must_be_unclaimed else there or read_machine(session)
            return _pick(
                session, request, count, claims, options=options, machine=machine, is_divided=is_divided
            )
        except NotFreeError as error:
            raise (error.or_wait() if isinstance(request, Auto) else error) from None
    if not isinstance(request, Auto | Named):
        raise LaunchError("--wait goes with auto or GPU numbers. Try --gpus auto --wait 30m")

    return Wait(
        session,
        request,
        options,
        read_seconds(wait),
        claims=session.claims.taken,
        decide=partial(_select, session, request, count, is_divided=is_divided),
        commit=partial(_claim, session, claims, unclaimed=True),
        is_divided=is_divided,
    ).wait(on_wait)


def can_pick(session: Session, gpus: str, options: Options = _PLAIN) -> bool:
    """Return whether a command can have GPUs, as typed after `%gpus`."""
    try:
        _check(session, parse(gpus), options=options)
    except GpuMagicError:
        return False
    return True


def _check(
    session: Session,
    request: Request,
    count: int | None = None,
    options: Options = _PLAIN,
    *,
    is_divided: bool = False,
) -> None:
    machine = read_machine(session).with_claims(session.claims.taken())
    _select(session, request, count, options, machine, is_divided=is_divided)


def _pick(
    session: Session,
    request: Request,
    count: int | None,
    claims: Claims | None,
    *,
    options: Options,
    machine: Inventory,
    is_divided: bool = False,
) -> Selection:
    """Pick the GPUs for a command now, and claim them."""
    must_be_unclaimed = isinstance(request, Auto) or options.only_free

    def choose() -> Selection:
        there = machine.with_claims(session.claims.taken()) if must_be_unclaimed else machine
        selection = _select(session, request, count, options, there, is_divided=is_divided)
        return _claim(session, claims, selection, unclaimed=must_be_unclaimed)

    return session.claims.pick_in_turn(choose) if must_be_unclaimed and claims is not None else choose()


def _claim(session: Session, claims: Claims | None, selection: Selection, *, unclaimed: bool) -> Selection:
    if claims is not None and session.claims.are_wanted:
        claims.hold([device.identity for device in selection.known], unclaimed=unclaimed)
    return selection


def divide(selection: Selection) -> list[Selection]:
    """Return a selection of one device for each device."""
    entries = (selection.mask or "").split(",")
    return [
        selection.with_mask(entry)._replace(devices=(device,))
        for device, entry in zip(selection.known, entries, strict=True)
    ]


def _select(
    session: Session,
    request: Request,
    count: int | None,
    options: Options,
    machine: Inventory,
    *,
    is_divided: bool,
) -> Selection:
    choose = partial(
        select, inventory=machine, inherited=session.inherited, grant=session.grant, is_divided=is_divided
    )
    try:
        selection = choose(request, options=options, held=session.claims.held)
    except OneInstanceError as error:
        how = " For a process on each MIG instance, add --each."
        try:
            choose(request, options=options, held=session.claims.held, is_divided=True)
        except ChoiceError:
            how = ""
        raise ChoiceError(f"{error.what}{how}", ways=error.ways) from None
    if not selection.known:
        is_unknown = selection.devices is UNKNOWN
        what = "Which GPUs these are is unknown." if is_unknown else "A launch needs a GPU."
        raise NoGpusError(what, _example(Given(machine, session.inherited, session.grant)))
    there = len(selection.known)
    if count is not None and not 1 <= count <= there:
        gpus = counted(there, "GPU")
        raise LaunchError(f"-n {count} does not fit {gpus}. Try -n {there}")
    if count in (None, there) and request is not Word.RESET:
        return selection
    # Name the first devices. After a reset, the variable can be unset, or can have other entries than GPUs.
    plain = Options(force=options.force)
    return choose(_named(selection.known[:count]), options=plain)


def _example(given: Given) -> str:
    """Return GPUs that can be named for a command. Empty if none are known."""
    pool = () if given.devices is UNKNOWN else given.devices
    return ",".join(one.number_text for one in whole_gpus(pool)[:2] or usable_devices(pool)[:1])


def _divisible(snapshot: Snapshot, *, force: bool) -> Sequence[Device]:
    """Return the devices of this process to divide among others, which can use all its MIG instances."""
    named = read_visible(snapshot.now, snapshot.machine).others
    if named and (snapshot.visible is UNKNOWN or set(snapshot.visible) <= set(named)):
        return named
    is_unclear = snapshot.visible is UNKNOWN and any(gpu.is_split for gpu in snapshot)
    is_as_given = snapshot.now == snapshot.inherited or not in_force(snapshot.now, snapshot.machine)
    if is_unclear and is_as_given:
        pool = snapshot.devices if force else snapshot.given.pool
        return usable_devices(pool) or _visible(snapshot)
    return _visible(snapshot)


def _visible(snapshot: Snapshot) -> Sequence[Device]:
    """Return this process's visible devices, in the order of `cuda:i`."""
    if snapshot.problem:
        raise LaunchError(str(snapshot.problem))
    if snapshot.visible is UNKNOWN:
        raise NoGpusError("Which GPUs are visible is unknown.", _example(snapshot.given))
    if found := [device for device in snapshot.visible if not isinstance(device, str)]:
        return found
    given = snapshot.given
    if given.devices == () and snapshot.devices:
        raise LaunchError(f"No GPU is visible in this process: {given.sentence}.{given.unset}")
    raise NoGpusError("No GPU is visible in this process.", _example(given))


def _named(devices: Sequence[Device]) -> Named:
    return Named(tuple(device.index if isinstance(device, Gpu) else device.uuid for device in devices))
