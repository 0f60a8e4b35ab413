"""Puts parked arrays back on their GPUs, all or none, and waits until there is room: `unpark`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks import device_of
from gpu_magic.frameworks.target import CPU, LogicalDevice, normalize_device
from gpu_magic.gpus.options import read_seconds
from gpu_magic.gpus.room import check_room, wait_for_room
from gpu_magic.interrupts import defer_interrupts
from gpu_magic.move.leaving import places_here
from gpu_magic.move.move import SEARCH_SECONDS, carry_out_all, destination
from gpu_magic.move.plan import Plan
from gpu_magic.objects.memory import current_shell, in_use
from gpu_magic.objects.physical import LazySnapshot
from gpu_magic.objects.users import check_unused
from gpu_magic.objects.walk import Budget, collection_paused
from gpu_magic.park.park import Parking, sized, sizes_in
from gpu_magic.process.parked import Item, known_by, parked, parked_line
from gpu_magic.process.session import current
from gpu_magic.public import public
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gpu_magic.move.move import Place
    from gpu_magic.move.plan import Moving

__all__ = ["bring_back", "unpark"]


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
    parked.is_told = True  # by the result or the error
    seconds = None if wait is None else read_seconds(wait)
    if seconds is None or dry_run:
        return bring_back(names, check_room, device=device, dry_run=dry_run)
    return bring_back(names, partial(wait_for_room, seconds=seconds, on_wait=on_wait), device=device)


def bring_back(
    names: Sequence[str],
    make_room: Callable[[Sequence[Plan]], object],
    *,
    device: str | int | None = None,
    dry_run: bool = False,
) -> Parking:
    """Do what `unpark` does once `make_room` has found that the GPUs have room for the plans, or raises."""
    shell, machine = current_shell(), LazySnapshot()
    places, named = places_here(shell, names, takes_device=True)
    goal = None if device is None else destination(normalize_device(device, device_of), machine)
    if goal is not None and goal.kind == "cpu":
        raise PlacementError("What is parked is on the CPU already. Name a GPU, or no device.")
    items = list(parked)
    with collection_paused():
        if named is not None:
            those = _plan(CPU, items, named, machine).moving
            found = {id(part) for one in those for part in known_by(one.value)}
            items = [item for item in items if not found.isdisjoint(map(id, item.known_by))]
        by_device: dict[LogicalDevice, list[Item]] = {}
        for item in items:
            by_device.setdefault(goal or item.device, []).append(item)
        plans = [
            _plan(target, those, places, machine)
            for target, those in sorted(by_device.items(), key=lambda one: str(one[0]))
        ]
        plans = [plan for plan in plans if plan.moving]
        if not plans:
            text = f"Nothing is parked{' in ' * bool(named)}{listed(named or ())}."
            return Parking({}, {}, {}, text)
        make_room(plans)
        sizes, lines = dict[str, int](), list[str]()
        for plan in plans:
            here = sizes_in(plan)
            sizes = {name: sizes.get(name, 0) + here.get(name, 0) for name in {**sizes, **here}}
            lines.append(f"{'Would go back to' if dry_run else 'Back on'} {plan.device_text}: {sized(here)}.")
        if dry_run:
            return Parking(sizes, {}, {}, "\n".join(lines))
        check_unused(array for plan in plans for one in plan.moving for array in one.arrays)
        before = in_use(plans[0].machine, by_device)
        _carry_out(plans, by_device, places, shell)
    after = in_use(LazySnapshot(), before)
    lines += filter(None, [parked_line()])
    then, now = ({str(gpu): nbytes for gpu, nbytes in one.items()} for one in (before, after))
    return Parking(sizes, then, now, "\n".join(lines))


def _plan(
    device: LogicalDevice, items: Sequence[Item], places: Mapping[str, Place], machine: LazySnapshot
) -> Plan:
    """Return the plan that moves some items to a device."""
    there = {id(one): item for item in items for one in item.known_by}

    def goes(one: Moving) -> bool:
        return any(id(part) in there for part in known_by(one.value))

    converts = "cupy" if any(item.framework.module == "cupy" for item in items) else None
    for budget in (Budget(seconds=SEARCH_SECONDS), None):
        plan = Plan(device, converts, machine, only=goes)
        for name, (value, _) in places.items():
            plan.add(name, value, budget)
        if budget is None or not budget.unfinished or len(plan.moving) >= len(items):
            break  # else search all variables to their ends, however long that takes
    return plan


def _carry_out(
    plans: Sequence[Plan],
    items: Mapping[LogicalDevice, Sequence[Item]],
    places: Mapping[str, Place],
    shell: Any,
) -> None:
    """Carry out the plans for several devices. Those after the first are made again for what has changed."""
    moving = {id(one): one for plan in plans for moved in plan.moving for one in known_by(moved.value)}

    def made() -> Iterator[Plan]:
        yield plans[0]
        for plan in plans[1:]:
            there = places_here(shell, ())[0]
            yield _plan(plan.requested, items[plan.requested], there, LazySnapshot())

    with defer_interrupts():
        carry_out_all(made(), places)
        parked.replace([item for item in parked if moving.keys().isdisjoint(map(id, item.known_by))])
        parked.note_everything(is_everything=False)
        current().claims.publish_activity()
