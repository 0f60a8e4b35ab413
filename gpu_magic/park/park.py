"""Parks what variables hold on GPUs in the host's memory: `park`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks import get
from gpu_magic.interrupts import defer_interrupts
from gpu_magic.move.leaving import bytes_on_gpus, gpu_of, places_here, plan_to_cpu
from gpu_magic.move.move import SEARCH_SECONDS, carry_out_all
from gpu_magic.objects.memory import current_shell, free, in_use
from gpu_magic.objects.physical import LazySnapshot
from gpu_magic.objects.users import check_unused
from gpu_magic.objects.walk import Budget, collection_paused
from gpu_magic.objects.where import arrays_in, unfinished_text
from gpu_magic.process.parked import Item, known_by, parked, parked_line, tell_next_cell
from gpu_magic.process.session import current
from gpu_magic.public import public
from gpu_magic.text import html_text, listed, size_text

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    from gpu_magic.frameworks.target import LogicalDevice
    from gpu_magic.move.plan import Plan

__all__ = ["Parking", "park", "sized", "sizes_in"]


class Parking(NamedTuple):
    """What `park` has parked, or `unpark` has brought back. It shows itself as text.

    Parameters
    ----------
    variables
        Bytes of each variable that has moved. Arrays that several variables share count for the first.
    before, after
        Bytes of this process on each GPU, by its name here (`"cuda:0"`), as in `Freed`.
    text
        All in words: also what stays on the GPUs, and why.

    """

    variables: Mapping[str, int]
    before: Mapping[str, int]
    after: Mapping[str, int]
    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return html_text(self.text)


@public
def park(*names: str, dry_run: bool = False) -> Parking:
    """Move everything that variables hold on GPUs to the host's memory, all or none. `unpark` puts it back.

    >>> gpu_magic.park()
    >>> gpu_magic.park("model", "optimizer")

    Ties, views, optimizers and aliases are as after `to_cpu`. Also IPython's outputs move. Then `park`
    collects garbage, and empties the cache of each imported framework. Outside IPython, the variables are
    those of the module `__main__`. Without names, the claim of this process says that it is parked, until
    something is back on a GPU.

    Parameters
    ----------
    names
        Variables, attributes and items, as text. None: all variables. Other variables that hold the same
        arrays hold the parked ones afterwards.
    dry_run
        Move nothing.

    Returns
    -------
    Parking
        What was parked, and the memory in use on each GPU before and after.

    Raises
    ------
    PlacementError
        The host has too little memory, a task or a thread uses the variables, nothing of these names is on a
        GPU, or a copy failed. Everything is as before.

    """
    shell, machine = current_shell(), LazySnapshot()
    places, named = places_here(shell, names)
    budget = Budget(seconds=SEARCH_SECONDS)
    with collection_paused():
        among = None if named is None else {id(one.value) for one in plan_to_cpu(named)[0].moving}
        plan, stays = plan_to_cpu(places, among, budget)
        unfinished = budget.unfinished
        if among is not None and unfinished and len(plan.moving) < len(among):
            # Search all variables to their ends, however long that takes.
            (plan, stays), unfinished = plan_to_cpu(places, among), []
        if named is not None and not plan.moving:
            raise PlacementError(f"Nothing to park in {listed(named)}: no arrays on a GPU.")
        sizes = sizes_in(plan)
        what = sized(sizes)
        room = plan.free
        where = f"in the host's memory{'' if room is None else f', where {size_text(room)} are free'}"
        if room is not None and plan.nbytes > room:
            raise PlacementError(
                f"{size_text(plan.nbytes)} do not fit {where}. Nothing was changed. Park some: %gpu_park NAME"
            )
        if dry_run or not what:
            told = f"Would park {what}: {size_text(plan.nbytes)} {where}." if what else "Nothing to park."
            stays += [unfinished_text(unfinished)] if unfinished else []
            return Parking(sizes, {}, {}, "\n".join([told, *stays, *filter(None, [parked_line()])]))
        check_unused(array for one in plan.moving for array in one.arrays)
        moving, counted = plan.moving, set["Hashable"]()
        was_on = [(gpu_of(one), bytes_on_gpus(one, counted)) for one in moving]
        before = in_use(machine, [gpu for gpu, _ in was_on if gpu is not None])
        with defer_interrupts():
            carry_out_all([plan], places)
            parked.replace([*parked, *_items(plan, was_on)])
        for references in (places, named or {}, vars(plan)):  # to what was on the GPUs
            references.clear()
        moving.clear()
    freed = free(shell, before, machine, is_parking=True, also_unfinished=unfinished)
    if named is None:
        parked.note_everything(is_everything=not unfinished)
        current().claims.publish_activity()
    tell_next_cell(shell)
    return Parking(sizes, freed.before, freed.after, "\n".join([f"Parked {what}.", *stays, freed.text]))


def _items(plan: Plan, was_on: Iterable[tuple[LogicalDevice | None, int]]) -> Iterator[Item]:
    """Yield what a plan has parked, with the GPUs and the bytes of before."""
    for one, (gpu, nbytes) in zip(plan.moving, was_on, strict=True):
        now, is_array = plan.now(one.value), one.arrays[0] is one.value and len(one.arrays) == 1
        arrays = [now] if is_array else [array for array, _ in arrays_in([now])]
        inner = [part for array in arrays for part in known_by(array)]
        if gpu is not None:
            yield Item(known_by(now), inner, one.framework or get("cupy"), gpu, nbytes)


def sizes_in(plan: Plan) -> dict[str, int]:
    """Return the bytes that move with each variable. Those that share all arrays with earlier ones have 0."""
    return {one.name: one.nbytes for one in plan.variables if one.arrays or one.shared_with}


def sized(sizes: Mapping[str, int]) -> str:
    """Return the variables with their bytes. Those that share all arrays with earlier ones have none."""
    return listed(f"{name} ({size_text(nbytes)})" if nbytes else name for name, nbytes in sizes.items())
