"""Parks what variables hold on GPUs in the host's memory: `park`."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks import get
from gpu_magic.interrupts import defer_interrupts
from gpu_magic.move.leaving import bytes_on_gpus, gpu_of, plan_to_cpu
from gpu_magic.move.move import SEARCH_SECONDS, carry_out_all, read_places
from gpu_magic.objects.memory import (
    arrays_in,
    current_shell,
    free,
    in_use,
    outputs_of,
    replace_output,
    unfinished_text,
)
from gpu_magic.objects.physical import LazySnapshot
from gpu_magic.objects.users import check_unused
from gpu_magic.objects.walk import Budget, collection_paused
from gpu_magic.process.parked import Item, known_by, parked
from gpu_magic.public import public
from gpu_magic.text import listed, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from gpu_magic.frameworks.target import LogicalDevice
    from gpu_magic.move.move import Place
    from gpu_magic.move.plan import Plan

__all__ = ["Parking", "park", "places_here", "sized", "stop_telling"]

_telling: list[Callable[..., None]] = []  # the hook that tells the next cell, if there is one


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


@public
def park(*names: str, dry_run: bool = False) -> Parking:
    """Move everything that variables hold on GPUs to the host's memory, all or none. `unpark` puts it back.

    >>> gpu_magic.park()
    >>> gpu_magic.park("model", "optimizer")

    Ties, views, optimizers and aliases are as after `to_cpu`. Also IPython's outputs move. Then `park`
    collects garbage, and empties the cache of each imported framework. Outside IPython, the variables are
    those of the module `__main__`.

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
        if named is not None and not plan.moving:
            raise PlacementError(f"Nothing to park in {listed(names)}: no arrays on a GPU.")
        sizes = {one.name: one.nbytes for one in plan.variables if one.arrays}
        what = sized(sizes)
        lines = [*stays, *([unfinished_text(budget.unfinished)] if budget.unfinished else [])]
        room = plan.free
        where = f"in the host's memory{'' if room is None else f', where {size_text(room)} are free'}"
        if room is not None and plan.nbytes > room:
            raise PlacementError(
                f"{size_text(plan.nbytes)} do not fit {where}. Nothing was changed. Park some: %gpu_park NAME"
            )
        if dry_run or not what:
            told = f"Would park {what}: {size_text(plan.nbytes)} {where}." if what else "Nothing to park."
            return Parking(sizes, {}, {}, "\n".join([told, *lines]))
        check_unused(array for one in plan.moving for array in one.arrays)
        moving, counted = plan.moving, set["Hashable"]()
        was_on = [(gpu_of(one.arrays), bytes_on_gpus(one.arrays, counted)) for one in moving]
        before = in_use(machine, [gpu for gpu, _ in was_on if gpu is not None])
        with defer_interrupts():
            carry_out_all([plan], places)
            parked.replace([*parked, *_items(plan, was_on)])
        for references in (places, named or {}, vars(plan)):  # to what was on the GPUs
            references.clear()
        moving.clear()
    freed = free(shell, before, machine, is_parking=True)
    _tell_next_cell(shell)
    return Parking(sizes, freed.before, freed.after, "\n".join([f"Parked {what}.", *lines, freed.text]))


def _items(plan: Plan, was_on: Iterable[tuple[LogicalDevice | None, int]]) -> Iterator[Item]:
    """Yield what a plan has parked, with the GPUs and the bytes of before."""
    for one, (gpu, nbytes) in zip(plan.moving, was_on, strict=True):
        now, is_array = plan.now(one.value), one.arrays[0] is one.value and len(one.arrays) == 1
        arrays = [now] if is_array else [array for array, _ in arrays_in([now])]
        framework = one.framework or get("cupy")
        if gpu is not None:
            yield Item(known_by(now), arrays, framework, gpu, nbytes)


def sized(sizes: Mapping[str, int]) -> str:
    """Return the variables with their bytes. Those that share all arrays with earlier ones have none."""
    return listed(f"{name} ({size_text(nbytes)})" if nbytes else name for name, nbytes in sizes.items())


def places_here(shell: Any, names: Sequence[str]) -> tuple[dict[str, Place], dict[str, Place] | None]:
    """Return all places that can hold arrays, and those of some names. None without names."""
    space = vars(sys.modules["__main__"]) if shell is None else shell.user_ns
    hidden = {name for name in space if name.startswith("__")} if shell is None else shell.user_ns_hidden
    if not all(isinstance(name, str) for name in names):
        raise PlacementError("Variables are named by text: park('model'). Without names: all variables.")
    named = read_places(" ".join(names), space, hidden) if names else None
    variables = [(name, value) for name, value in space.items() if name not in hidden]
    places: dict[str, Place] = {name: (value, partial(space.__setitem__, name)) for name, value in variables}
    if shell is not None:
        outputs = outputs_of(shell).items()
        places |= {name: (value, partial(replace_output, shell, name)) for name, value in outputs}
    return places, named


def _tell_next_cell(shell: Any) -> None:
    """Print a line in the next cell if something is still parked then. Hidden cells do not count."""
    stop_telling(shell)

    def tell(info: Any = None) -> None:
        cell = getattr(info, "raw_cell", None) or ""
        if getattr(info, "store_history", True) and "unpark" not in cell:
            stop_telling(shell)
            if there := str(parked):
                print(f"Variables are parked on the CPU: {there}. To bring them back: %gpu_unpark")  # noqa: T201

    if shell is not None:
        _telling.append(tell)
        shell.events.register("pre_run_cell", tell)


def stop_telling(shell: Any) -> None:
    """Print nothing in the next cell."""
    while _telling:
        tell = _telling.pop()
        if tell in shell.events.callbacks["pre_run_cell"]:
            shell.events.unregister("pre_run_cell", tell)
