"""Puts parked arrays back on their GPUs, all or none, and waits until there is room: `unpark`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.devices.processes import ProcessNames
from gpu_magic.errors import NotFreeError, PlacementError
from gpu_magic.frameworks import device_of
from gpu_magic.frameworks.target import CPU, LogicalDevice, normalize_device
from gpu_magic.gpus.options import Options, read_seconds
from gpu_magic.gpus.request import parse
from gpu_magic.interrupts import defer_interrupts
from gpu_magic.move.move import SEARCH_SECONDS, carry_out_all, destination
from gpu_magic.move.plan import Plan
from gpu_magic.objects.memory import current_shell, in_use
from gpu_magic.objects.physical import LazySnapshot, physical
from gpu_magic.objects.users import check_unused
from gpu_magic.objects.walk import Budget, collection_paused
from gpu_magic.park.park import Parking, places_here, sized
from gpu_magic.process.parked import Item, known_by, parked
from gpu_magic.process.session import current
from gpu_magic.public import public
from gpu_magic.text import listed, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gpu_magic.devices.model import Inventory
    from gpu_magic.move.move import Place

__all__ = ["unpark"]


@public
def unpark(
    *names: str,
    device: str | int | None = None,
    wait: str | float | None = None,
    on_wait: Callable[[str], object] | None = None,
    dry_run: bool = False,
) -> Parking:
    """Put everything that `park` has parked back on its GPU, all or none.

    Arrays are found wherever they are now: in other variables, containers and objects. What you have replaced
    or moved meanwhile is left as it is.

    Parameters
    ----------
    names
        Variables, attributes and items, as text. None: all that is parked.
    device
        As for `to_gpu`: all goes to this device. None: each array goes back to its own GPU.
    wait
        Wait at most this long for room, in turn: "30m", or seconds. None: do not wait.
    on_wait
        Called with a line after each look: who holds the memory, the time so far, and the next look.
    dry_run
        Move nothing.

    Returns
    -------
    Parking
        What is back, and the memory in use on each GPU before and after.

    Raises
    ------
    NotFreeError
        A GPU has too little free memory, also after the wait. Everything is as before.
    PlacementError
        The device does not exist, or a copy failed. Everything is as before.

    """
    shell, machine = current_shell(), LazySnapshot()
    places, named = places_here(shell, names)
    goal = None if device is None else destination(normalize_device(device, device_of), machine)
    items = list(parked)
    with collection_paused():
        if named is not None:
            found = {id(one) for moving in _plan(None, items, named).moving for one in known_by(moving.value)}
            items = [item for item in items if not found.isdisjoint(map(id, item.known_by))]
        by_device: dict[LogicalDevice, list[Item]] = {}
        for item in items:
            by_device.setdefault(goal or item.device, []).append(item)
        plans = [
            _plan(target, those, places)
            for target, those in sorted(by_device.items(), key=lambda one: str(one[0]))
        ]
        plans = [plan for plan in plans if plan.moving]
        if not plans:
            text = f"Nothing is parked{' in ' * bool(names)}{listed(names)}."
            return Parking({}, {}, {}, text)
        if wait is None or dry_run:
            check_room(plans)
        else:
            wait_for_room(plans, wait, on_wait)
        sizes, lines = dict[str, int](), list[str]()
        for plan in plans:
            here = {one.name: one.nbytes for one in plan.variables if one.arrays}
            sizes = {name: sizes.get(name, 0) + here.get(name, 0) for name in {**sizes, **here}}
            lines.append(f"{'Would go back to' if dry_run else 'Back on'} {plan.device_text}: {sized(here)}.")
            check_unused(array for one in plan.moving for array in one.arrays)
        if dry_run:
            return Parking(sizes, {}, {}, "\n".join(lines))
        before = in_use(machine, by_device)
        _carry_out(plans, by_device, places, shell)
    after = in_use(LazySnapshot(), before)
    lines += [f"Still parked: {rest}."] if (rest := str(parked)) else []
    then, now = ({str(gpu): nbytes for gpu, nbytes in one.items()} for one in (before, after))
    return Parking(sizes, then, now, "\n".join(lines))


def _plan(device: LogicalDevice | None, items: Sequence[Item], places: Mapping[str, Place]) -> Plan:
    """Return the plan that moves some items to a device. None: only to find them."""
    there = {id(one): item for item in items for one in item.known_by}

    def goes(obj: Any, _: Sequence[Any]) -> bool:
        return any(id(one) in there for one in known_by(obj))

    is_from_cupy = any(item.framework.module == "cupy" for item in items)
    plan = Plan(device or CPU, "cupy" if is_from_cupy else None, only=goes)
    budget = Budget(seconds=SEARCH_SECONDS)
    for name, (value, _) in places.items():
        plan.add(name, value, budget)
    return plan


def _carry_out(
    plans: Sequence[Plan],
    items: Mapping[LogicalDevice, Sequence[Item]],
    places: Mapping[str, Place],
    shell: Any,
) -> None:
    """Carry out the plans for several devices. Those after the first are made again for what has changed."""
    moving = {id(one) for plan in plans for moved in plan.moving for one in known_by(moved.value)}
    everything = list(parked)

    def made() -> Iterator[Plan]:
        yield plans[0]
        for plan in plans[1:]:
            yield _plan(plan.requested, items[plan.requested], places_here(shell, ())[0])

    with defer_interrupts():
        parked.replace(())  # without weak references, so that tensors can be swapped
        try:
            carry_out_all(made(), places)
            everything = [item for item in everything if moving.isdisjoint(map(id, item.known_by))]
        finally:
            parked.replace(everything)


def _free_text(plan: Plan) -> str:
    """Return how much is free, and who holds the rest: `3.1 GiB are free (maria: train.py, 60.0 GiB)`."""
    gpu = physical(plan.device, plan.machine)
    processes = () if gpu is None or gpu.status.processes is UNKNOWN else gpu.status.processes
    names = ProcessNames(processes)
    others = [names.line(one) for one in processes if one.is_this_process is not True]
    who = f" ({'; '.join(others)})" if others else ""
    return f"{size_text(plan.free or 0)} are free{who}"


def check_room(plans: Sequence[Plan]) -> None:
    """Raise NotFreeError if the devices have too little free memory."""
    full = [plan for plan in plans if plan.free is not None and plan.least > plan.free]
    if full:
        sizes = [f"{size_text(plan.least)} do not fit on {plan.device_text}" for plan in full]
        needed = [f"{size}, where {_free_text(plan)}" for size, plan in zip(sizes, full, strict=True)]
        raise NotFreeError(
            f"{'; '.join(needed)}. Nothing was changed. To wait: %gpu_unpark --wait 30m. To another GPU: "
            "%gpu_unpark --device 1",
            "; ".join(f"{plan.device_text}, {_free_text(plan)}" for plan in full),
        )


def wait_for_room(
    plans: Sequence[Plan], within: str | float, on_wait: Callable[[str], object] | None
) -> None:
    """Wait, in turn with all users who wait for GPUs, until the devices have room for the plans."""
    from gpu_magic.gpus.wait import Wait  # imports asyncio

    found = [physical(plan.device, plan.machine) for plan in plans]
    gpus = [gpu for gpu in found if gpu is not None]
    if len(gpus) < len(plans):
        raise PlacementError("Which GPUs these are is unknown, so --wait cannot wait for them.")

    def decide(_: Options, machine: Inventory) -> bool:
        for plan in plans:
            plan.machine = LazySnapshot()
        kept = [(one.label, claim) for one in machine.devices for claim in one.status.claims if claim.waits]
        if left := [f"{label} is {claim}" for label, claim in kept if label in {gpu.label for gpu in gpus}]:
            raise NotFreeError("", "; ".join(left))
        check_room(plans)
        return True

    request: Any = parse(",".join(gpu.number_text for gpu in gpus))
    Wait(
        current(),
        request,
        Options(min_free=max(1 << 20, *(plan.least for plan in plans))),
        read_seconds(within),
        claims=dict,
        decide=decide,
        commit=bool,
    ).wait(lambda line: on_wait(str(line)) if on_wait else None)
