"""Gives unused memory back, and says what holds the rest: `gpu_free`, and below an out-of-memory error."""

from __future__ import annotations

import gc
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.devices.process_names import ProcessNames
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.errors import causes
from gpu_magic.frameworks import imported
from gpu_magic.objects.memory import (
    gpu_bytes,
    holdings_of,
    is_same_device,
    named_sizes,
    shell_here,
    unfinished_text,
)
from gpu_magic.objects.walk import Budget
from gpu_magic.process.physical import LazySnapshot, described, labels, physical, used_by_us
from gpu_magic.process.tasks import tasks
from gpu_magic.public import public
from gpu_magic.selection.target import LogicalDevice
from gpu_magic.text import listed, printable, shortened, size_text

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping, Sequence

    from gpu_magic.frameworks.answers import Holding
    from gpu_magic.frameworks.base import Framework

__all__ = ["Freed", "Outputs", "free", "gpu_free", "shortage_lines"]

_TRACEBACK = "the last error's traceback"
_MOST_NAMES = 6
_OUTPUT = re.compile(r"_{1,3}|_\d+")


class Outputs:
    """What an IPython shell keeps alive besides variables: outputs, and the last error's traceback."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._namespace: dict[str, Any] = shell.user_ns

    def variables(self) -> dict[str, object]:
        """Return the user's variables, private ones (`_x`) as well: what they hold is not kept by outputs."""
        hidden = self._shell.user_ns_hidden
        return {name: value for name, value in self._namespace.items() if name not in hidden}

    def kept(self) -> dict[str, object]:
        """Return the last error, and each output once by its name: `Out[3]` or `_`."""
        found = {_TRACEBACK: getattr(sys, "last_value", None)}
        found |= {f"Out[{number}]": value for number, value in self._namespace.get("_oh", {}).items()}
        for name in ("_", "__", "___"):
            value = self._namespace.get(name)
            if not any(value is other for other in found.values()):
                found[name] = value
        return found

    def drop(self, name: str) -> None:
        """Delete an output, or the last error, everywhere Python and IPython keep it."""
        shell, last = self._shell, self._shell.last_execution_result
        if name == _TRACEBACK:  # `last_exc` is of Python 3.12; %debug and %tb have none any more
            for attribute in ("last_type", "last_value", "last_traceback", "last_exc"):
                vars(sys).pop(attribute, None)
            if last is not None:
                last.error_in_exec = last.error_before_exec = None
            shell.InteractiveTB.tb = shell.InteractiveTB.pdb = None
            return
        value = self._namespace[name] if name.startswith("_") else self._namespace["_oh"].pop(int(name[4:-1]))
        # The second has values as well: that of _4.
        for names in (self._namespace, shell.user_ns_hidden, vars(shell.displayhook)):
            for key in [key for key, other in names.items() if other is value and _OUTPUT.fullmatch(key)]:
                if key[-1] == "_":
                    names[key] = ""
                else:
                    del names[key]
        if last is not None and last.result is value:
            last.result = None


class Freed(NamedTuple):
    """What was in use on each GPU, before and after, and what holds the rest. Shows itself as text.

    Parameters
    ----------
    before, after
        Bytes that this process has of each GPU, by what it is called here (`"cuda:0"`): the driver's figure,
        else the frameworks' own.
    labels
        Each with its physical GPU: `cuda:0 = GPU 1 (NVIDIA A100 80GB)`.
    notes
        What a framework does not give back.
    dropped
        The outputs (`"Out[3]"`) and the traceback that were dropped, and the bytes that each held on GPUs;
        with `dry_run` those that would be.
    held
        The variables that hold memory on GPUs, and how many bytes.
    unnamed
        Bytes that the frameworks count on GPUs and no variable leads to.
    dry_run
        Whether nothing was freed.
    unfinished
        The variables that hold more than was looked at.

    """

    before: Mapping[str, int]
    after: Mapping[str, int]
    labels: Mapping[str, str]
    notes: tuple[str, ...]
    dropped: Mapping[str, int] = {}
    held: Mapping[str, int] = {}
    unnamed: int = 0
    dry_run: bool = False
    unfinished: Sequence[str] = ()

    def __repr__(self) -> str:
        dropped = ", ".join(f"{name} ({size_text(size)})" for name, size in self.dropped.items())
        if self.dry_run:
            lines = [f"Would drop {dropped}." if dropped else "No output and no traceback holds GPU memory."]
        else:
            used = [name for name in self.before if self.before[name] or self.after[name]]
            lines = [f"Dropped {dropped}."] if dropped else []
            lines += [
                f"{self.labels[name]}: {size_text(self.before[name])} → {size_text(self.after[name])} in use"
                for name in used
            ]
            lines += self.notes if used else ["This process has no memory on a GPU."]
        if self.held:
            lines.append(f"Still held by {', '.join(named_sizes(self.held))}.")
        if self.unnamed:
            lines.append(
                f"{size_text(self.unnamed)} more that no variable was seen to hold: the graph of a loss, for "
                "example, or another library."
            )
        return "\n".join([*lines, unfinished_text(self.unfinished)] if self.unfinished else lines)


@public
def gpu_free(*, dry_run: bool = False) -> Freed:
    """Give memory back: what only IPython's history keeps, garbage, and what frameworks keep unused.

    In IPython, the last error's traceback and the outputs that hold GPU memory are dropped. Then garbage is
    collected, and the cache of each framework that is imported is emptied.

    Parameters
    ----------
    dry_run
        Find out what would be dropped, and drop nothing.

    Returns
    -------
    Freed
        What each GPU had in use before and after, what was dropped, and which variables hold the rest. It
        shows itself as text.

    """
    shell = shell_here()
    return free(Outputs(shell) if shell is not None else None, dry_run=dry_run)


def free(outputs: Outputs | None, *, dry_run: bool = False, budget: Budget | None = None) -> Freed:
    """Drop what only the history keeps, collect garbage, and empty the frameworks' caches.

    Parameters
    ----------
    outputs
        Those of the IPython shell; None where there is none. Then nothing is dropped, and variables are not
        known.
    dry_run
        Only find out.
    budget
        How much of the variables and the outputs may be looked at; None for the usual.

    """
    budget = budget or Budget()
    machine = LazySnapshot()
    before = after = _in_use(machine)
    variables = {} if outputs is None else _holdings(outputs.variables(), budget)
    ours = {key: one for held in variables.values() for key, one in held.items()}
    of_tasks = {name: task for task in tasks for name in task.kept()}
    dropped = {} if outputs is None else _only_in_outputs(outputs, ours, budget)
    unnamed, notes = 0, tuple[str, ...]()
    if not dry_run:
        for name in dropped:
            if name in of_tasks:
                of_tasks[name].forget()
            elif outputs is not None:
                outputs.drop(name)
        gc.collect()
        notes = tuple(filter(None, map(_empty_cache, imported())))
        machine = LazySnapshot()  # the figures have changed
        after = _in_use(machine)
        if outputs is not None:
            used = sum(pool.used for framework in imported() for pool in framework.pools().values())
            unnamed = max(0, used - gpu_bytes(ours))
    return Freed(
        {str(device): size for device, size in before.items()},
        {str(device): after.get(device, 0) for device in before},
        labels(before, machine),
        notes,
        dropped,
        {name: size for name, held in variables.items() if (size := gpu_bytes(held))},
        unnamed,
        dry_run,
        budget.unfinished,
    )


def _only_in_outputs(outputs: Outputs, ours: Collection[Hashable], budget: Budget) -> dict[str, int]:
    """Return the outputs that hold memory on GPUs, and how much: what a variable also holds is not freed.

    It returns names: the values must not be kept here while memory is freed.
    """
    kept = outputs.kept() | {name: value for task in tasks for name, value in task.kept().items()}
    sizes = {
        name: gpu_bytes({key: one for key, one in held.items() if key not in ours})
        for name, held in _holdings(kept, budget).items()
    }
    return {name: size for name, size in sizes.items() if size}


def _holdings(variables: Mapping[str, object], budget: Budget) -> dict[str, Mapping[Hashable, Holding]]:
    """Return the memory that each of some variables holds."""
    found: dict[str, Mapping[Hashable, Holding]] = {}
    for name, value in variables.items():
        with budget.variable(name):
            found[name] = holdings_of([value], budget)
    return found


def _empty_cache(framework: Framework) -> str:
    """Empty a framework's cache; return what it does not give back, or why it can't: a sentence."""
    try:
        return framework.empty_cache()
    except Exception as error:  # noqa: BLE001 - after an error of CUDA's, each call can raise it again
        why = shortened(f"{type(error).__name__}: {error}".partition("\n")[0], 200).rstrip(".")
        return f"{framework.name} can't empty its cache: {why}."


def _in_use(machine: LazySnapshot) -> dict[LogicalDevice, int]:
    """Return how many bytes this process has of each GPU: the driver's figure, else the frameworks' own."""
    found: dict[LogicalDevice, int] = {}
    for framework in imported():
        for device, pool in framework.pools().items():
            found[device] = found.get(device, 0) + pool.reserved
    for device in found:
        used = used_by_us(device, machine)
        if used is not UNKNOWN:
            found[device] = used
    return found


def shortage_lines(error: BaseException, outputs: Outputs) -> list[str]:
    """Return what holds the memory of a GPU that had none left, as lines; none for any other error."""
    frameworks = imported()
    told = (framework.out_of_memory(one) for one in causes(error) for framework in frameworks)
    found = next(filter(None, told), None)
    if found is None:
        return []
    machine = LazySnapshot()
    pools = {place: pool for framework in frameworks for place, pool in framework.pools().items()}
    device = found.device or _only_device(list(pools), machine)
    gpu = physical(device, machine) if device is not None else None
    status = gpu.status if gpu is not None else None
    facts = [f"{size_text(found.wanted)} more were asked for"] if found.wanted else []
    left, total = (status.memory_free, gpu.memory_total) if gpu and status else (UNKNOWN, UNKNOWN)
    if left is not UNKNOWN and total is not UNKNOWN:
        facts.append(f"{size_text(left)} of {size_text(total)} are free now")
    where = f" on {described(device, machine)}" if device is not None else ""
    head = f"Out of memory{where}{': ' if facts else ''}{', '.join(facts)}."

    held = _holdings(outputs.variables(), Budget())
    sizes = {name: size for name, one in held.items() if (size := gpu_bytes(one, device))}
    all_of_them = {key: one for holdings in held.values() for key, one in holdings.items()}
    here = [pool for place, pool in pools.items() if device is not None and is_same_device(place, device)]
    ours = named_sizes(sizes, _MOST_NAMES)
    if (unnamed := sum(pool.used for pool in here) - gpu_bytes(all_of_them, device)) > 0 and here:
        ours.append(f"no variable leads to {size_text(unnamed)}")
    back = named_sizes(free(outputs, dry_run=True).dropped, _MOST_NAMES)
    if cached := sum(pool.reserved - pool.used for pool in here):
        back.append(f"{size_text(cached)} that is kept unused")
    processes = status.processes if status is not None and status.processes is not UNKNOWN else ()
    others = sorted(
        (one for one in processes if not one.mine),
        key=lambda one: 0 if one.memory is UNKNOWN else -one.memory,
    )
    names = ProcessNames(others)
    named = [
        f"{'unknown' if one.owner is UNKNOWN else one.owner}: {names.name(one)} "
        f"({'?' if one.memory is UNKNOWN else size_text(one.memory)})"
        for one in others[:_MOST_NAMES]
    ]
    if len(others) > _MOST_NAMES:
        named.append(f"{len(others) - _MOST_NAMES} more")
    gives = f"would give back {listed(back)}." if back else "would give nothing back."
    rows = [("this kernel", listed(ours)), ("others", listed(named)), ("%gpu_free", gives)]
    return [head, *(f"  {name:<11}  {printable(text)}" for name, text in rows if text)]


def _only_device(places: Sequence[LogicalDevice], machine: LazySnapshot) -> LogicalDevice | None:
    """Return the GPU of this process, where it has no more than one."""
    if len(places) == 1:
        return places[0]
    names = machine.snapshot.kernel.names
    return LogicalDevice("gpu", 0) if names is not UNKNOWN and len(names) == 1 else None
