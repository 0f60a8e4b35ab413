"""How to free memory, and what holds that of a full GPU."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.devices.processes import ProcessNames
from gpu_magic.errors import GpuMagicError, causes
from gpu_magic.frameworks import imported
from gpu_magic.frameworks.base import Holding, shortage_in
from gpu_magic.frameworks.target import LogicalDevice
from gpu_magic.objects.physical import LazySnapshot, described, physical, used_by_us
from gpu_magic.objects.walk import Budget, collection_paused
from gpu_magic.objects.where import (
    IN_GRAPHS,
    arrays_in,
    first_of,
    graphs_of,
    holdings_in,
    is_same_device,
    kept_by_graphs,
    unfinished_text,
)
from gpu_magic.process.parked import parked_line
from gpu_magic.processes.processes import my_processes
from gpu_magic.processes.tasks import tasks
from gpu_magic.public import public
from gpu_magic.text import bytes_text, html_text, listed, printable, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from gpu_magic.devices.model import GpuProcess
    from gpu_magic.frameworks.base import Framework, MemoryPool, OutOfMemory

__all__ = [
    "TRACEBACK",
    "Freed",
    "current_shell",
    "free",
    "gpu_free",
    "in_use",
    "outputs_of",
    "replace_output",
    "shortage_lines",
    "shortage_of",
]

_FULL = 1 << 28  # bytes that are free. The handle and the workspaces of a library of CUDA do not fit
TRACEBACK = "the last error's traceback"
_OUTPUT = re.compile(r"_{1,3}|_\d+")


def _named(sizes: Mapping[str, int]) -> list[str]:
    """Return `model (1.2 GiB)` for each name, the largest first."""
    names = sorted(sizes, key=lambda name: -sizes[name])
    return first_of([f"{name} ({size_text(sizes[name])})" for name in names])


def _holders(sizes: Mapping[str, int], total: int) -> str:
    """Return the variables with their bytes, and all bytes together if variables share some."""
    shared = f", {size_text(total)} in all" if sum(sizes.values()) > total else ""
    return listed(_named(sizes)) + shared


class Freed(NamedTuple):
    """The memory in use on each GPU, before and after, and what holds the rest. `Freed` shows itself as text.

    Parameters
    ----------
    before, after
        Bytes of this process on each GPU, by its name here (`"cuda:0"`): the driver's figure, or else the
        frameworks' own.
    dropped
        Bytes of each dropped output (`"Out[3]"`) and of the traceback. With `dry_run`: of those that
        `gpu_free` would drop.
    held
        Bytes of each variable that holds memory on GPUs.
    graphs
        Bytes on GPUs that only the graphs of each variable's tensors keep, for `backward`.
    unnamed
        Bytes on GPUs that the frameworks count and neither a variable nor a graph holds.
    text
        All figures in words, with the physical GPUs, and memory that a framework does not give back.

    """

    before: Mapping[str, int]
    after: Mapping[str, int]
    dropped: Mapping[str, int]
    held: Mapping[str, int]
    graphs: Mapping[str, int]
    unnamed: int
    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return html_text(self.text)


@public
def gpu_free(*, dry_run: bool = False) -> Freed:
    """Give back GPU memory that only IPython's history, garbage or a framework's cache holds.

    In IPython, `gpu_free` drops the last error's traceback and the outputs if they hold GPU memory. Then
    `gpu_free` collects garbage, and empties the cache of each imported framework.

    Parameters
    ----------
    dry_run
        Only find the objects to drop.

    Returns
    -------
    Freed
        The memory in use on each GPU before and after, the dropped objects, and the variables that hold the
        rest. The result shows itself as text.

    """
    return free(current_shell(), in_use(machine := LazySnapshot()), machine, dry_run=dry_run)


def current_shell() -> Any:
    """Return IPython's shell. None outside IPython."""
    ipython: Any = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def free(  # noqa: C901 - a branch for each line
    shell: Any,
    before: dict[LogicalDevice, int],
    machine: LazySnapshot,
    *,
    dry_run: bool = False,
    is_parking: bool = False,
    also_unfinished: Sequence[str] = (),
) -> Freed:
    """Do what `gpu_free` does, in a shell, after the memory in use was noted. `park` keeps the outputs."""
    after = before
    held, dropped, graphs, total, unfinished = _held(shell)
    if is_parking:
        held |= {name: size for name, size in dropped.items() if name != TRACEBACK}
        dropped = {name: size for name, size in dropped.items() if name == TRACEBACK}
    unnamed, drops = 0, listed(_named(dropped))
    if dry_run:
        lines = [f"Would drop {drops}." if drops else "No output and no traceback holds GPU memory."]
    else:
        lines = [f"Dropped {drops}."] if drops else []
        drop = {name: kept.drop for name, kept in _kept_by(shell).items()} if dropped else {}
        for name in dropped:
            drop[name]()
        gc.collect()
        notes = list(map(_empty_cache, imported()))
        machine = LazySnapshot()  # the figures have changed
        after = in_use(machine, before)
        for device, size in before.items():
            if size or after.get(device):
                sizes = f"{size_text(size)} → {size_text(after.get(device, 0))}"
                lines.append(f"{described(device, machine)}: {sizes} in use")
        has_memory = any(before.values()) or is_parking
        lines += filter(None, notes) if has_memory else ["No framework has memory on a GPU here."]
        if shell is not None:
            unnamed = max(0, sum(pool.used for _, pool in _pools()) - total - sum(graphs.values()))
    if held:
        lines.append(f"Still held by {_holders(held, total)}.")
    if graphs:
        values = "To keep only the values, store loss.item() or loss.detach()."
        lines.append(f"Kept {IN_GRAPHS} of {listed(_named(graphs))}. {values}")
    if is_parking and (rest := _kept_by_cuda(machine, after)):
        lines.append(f"{size_text(rest)} stay for CUDA's context and libraries until the kernel ends.")
    lines += _lines_of_children(machine)
    if unnamed:
        why = "no variable holds, such as the workspaces of libraries"
        lines.append(f"{size_text(unnamed)} more that {why}.")
    unfinished = list(dict.fromkeys([*also_unfinished, *unfinished]))
    lines += [unfinished_text(unfinished)] if unfinished else []
    lines += filter(None, [parked_line()])
    sizes_before = {str(device): nbytes for device, nbytes in before.items()}
    sizes_after = {str(device): after.get(device, 0) for device in before}
    return Freed(sizes_before, sizes_after, dropped, held, graphs, unnamed, "\n".join(lines))


def _kept_by_cuda(machine: LazySnapshot, devices: Iterable[LogicalDevice]) -> int:
    """Return the bytes on GPUs of this process alone that no framework counts. 0 where it is unknown."""
    pools = _pools()
    own = {device: used_by_us(device, machine, with_children=False) for device in devices}
    return sum(
        max(0, used - sum(pool.reserved for place, pool in pools if is_same_device(place, device)))
        for device, used in own.items()
        if used is not UNKNOWN
    )


def _lines_of_children(machine: LazySnapshot) -> list[str]:
    """Return a line for each process that this kernel has started and that has memory on GPUs."""
    lines = []
    with contextlib.suppress(GpuMagicError):  # an invalid simulation
        statuses = [device.status for device in machine.snapshot.devices]
        processes = [
            one for status in statuses if status.processes is not UNKNOWN for one in status.processes
        ]
        pids = {one.pid for one in processes if one.is_this_process is True} - {os.getpid()}
        for own in my_processes() if pids else ():
            if own.pid in pids:
                how = f"{own.how_to_end}." if own.how_to_end else f"To end it: %gpu_ps end {own.pid}"
                lines.append(f"Also in use: {own}, {own.what}. {how}")
    return first_of(lines)


def _empty_cache(framework: Framework) -> str:
    """Empty a framework's cache. Return a sentence if the framework cannot free all of it. Else empty."""
    try:
        return framework.empty_cache()
    except Exception as error:  # noqa: BLE001 - after a CUDA error, each call can raise it again
        return printable(f"{framework.name} cannot empty its cache: {error}".partition("\n")[0])


class _Held(NamedTuple):
    """The bytes that objects of a shell hold on GPUs, or on one GPU."""

    variables: dict[str, int]  # also private ones (`_x`)
    outputs: dict[str, int]  # that no variable holds, with their graphs
    graphs: dict[str, int]  # which only the graphs of the tensors of a variable keep
    total: int  # of all variables together, because they can share memory
    unfinished: list[str]  # the names that were not searched in full


def _held(shell: Any, device: LogicalDevice | None = None) -> _Held:
    """Return the bytes that objects of a shell hold.

    Outputs are `Out[3]`, the last error, and the results of ended tasks. Nothing keeps the values afterwards,
    so that their memory can be freed.
    """
    if shell is None:
        return _Held({}, {}, {}, 0, [])
    names, budget, ours = shell.user_ns, Budget(), dict["Hashable", int]()
    ends: dict[str, list[tuple[Framework, Any]]] = {}  # the last nodes of graphs, by variable
    has_pools = bool(_pools())
    outputs = {name: kept.value for name, kept in _kept_by(shell).items()}

    def count(
        found: dict[str, int], name: str, holdings: Mapping[Hashable, Holding], known: set[Hashable]
    ) -> None:
        for key, one in holdings.items():
            is_gpu = isinstance(one.device, LogicalDevice) and one.device.kind == "gpu"
            if key not in known and is_gpu and (device is None or is_same_device(one.device, device)):
                ours[key] = one.nbytes
                found[name] = found.get(name, 0) + one.nbytes

    def sizes(values: Mapping[str, object]) -> dict[str, int]:
        known, found = set(ours), dict[str, int]()
        for name, value in values.items():
            with budget.variable(name), collection_paused():
                arrays = arrays_in([value], budget)
                holdings = holdings_in(arrays)
                ends[name] = graphs_of(arrays) if has_pools else []
            count(found, name, holdings, known)
        return found

    def add_graphs(found: dict[str, int], values: Iterable[str]) -> None:
        for name in filter(ends.get, values):
            with budget.variable(name), collection_paused():
                holdings = kept_by_graphs(ends[name], budget)
            count(found, name, holdings, set(ours))

    variables = {name: value for name, value in names.items() if name not in shell.user_ns_hidden}
    held, graphs = sizes(variables), dict[str, int]()
    total = sum(ours.values())
    add_graphs(graphs, variables)
    dropped = sizes(outputs)
    add_graphs(dropped, outputs)
    return _Held(held, dropped, graphs, total, budget.unfinished)


class _Kept(NamedTuple):
    """A value that IPython or a task keeps, and a function that deletes it everywhere they keep it."""

    value: object
    drop: Callable[[], None]  # which does not keep the value


def _kept_by(shell: Any) -> dict[str, _Kept]:
    """Return the last error, the outputs and the results of ended tasks, by what they are called."""
    # IPython shows a wrong line of a magic without a traceback, and still keeps the one before.
    earlier = Exception().with_traceback(getattr(shell.InteractiveTB, "tb", None))
    errors = [getattr(sys, "last_value", None), earlier]
    found = {TRACEBACK: _Kept(errors, partial(_drop_error, shell))}
    for name, value in outputs_of(shell).items():
        found[name] = _Kept(value, partial(_drop_output, shell, name))
    for name, task in _ended_tasks().items():
        found[name] = _Kept(task.result, partial(setattr, task, "result", None))
    return found


def _drop_error(shell: Any) -> None:
    """Delete the last error. %debug and %tb then have none."""
    # `last_exc` since Python 3.12
    for attribute in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(attribute, None)
    if (last := shell.last_execution_result) is not None:
        last.error_in_exec = last.error_before_exec = None
    shell.InteractiveTB.tb = shell.InteractiveTB.pdb = None


def outputs_of(shell: Any) -> dict[str, Any]:
    """Return the outputs by name (`Out[3]`), and the results of ended tasks.

    After `%reset out`, IPython itself still keeps some outputs (`_3`).
    """
    found = {f"Out[{number}]": value for number, value in shell.user_ns.get("_oh", {}).items()}
    known = set(map(id, found.values()))
    for names in (shell.user_ns_hidden, vars(shell.displayhook)):
        kept = [
            (name, one) for name, one in names.items() if _OUTPUT.fullmatch(name) and id(one) not in known
        ]
        found |= kept
        known |= {id(one) for _, one in kept}
    return found | {name: task.result for name, task in _ended_tasks().items()}


def _ended_tasks() -> dict[str, Any]:
    return {f"the result of {task.name}": task for task in tasks if not task.is_running}


def replace_output(shell: Any, name: str, new: Any) -> None:
    """Replace an output or a task's result by another value, everywhere IPython keeps it."""
    if task := _ended_tasks().get(name):
        task.result = new
        return
    old, last = outputs_of(shell)[name], shell.last_execution_result
    for values, key in _kept_at(shell, old):
        values[key] = new
    if last is not None and last.result is old:
        last.result = new


def _drop_output(shell: Any, name: str) -> None:
    """Delete an output."""
    if name not in (outputs := outputs_of(shell)):  # deleted with another name of its value
        return
    value, last = outputs[name], shell.last_execution_result
    for values, key in _kept_at(shell, value):
        if key in ("_", "__", "___"):
            values[key] = ""
        else:
            del values[key]
    if last is not None and last.result is value:
        last.result = None


def _kept_at(shell: Any, value: Any) -> list[tuple[dict[Any, Any], Any]]:
    """Return the dictionaries of IPython that keep an output, each with a key of it."""
    history = shell.user_ns.get("_oh", {})
    found = [(history, number) for number, other in history.items() if other is value]
    # `user_ns_hidden` also has values, for example that of _4.
    for names in (shell.user_ns, shell.user_ns_hidden, vars(shell.displayhook)):
        found += [(names, key) for key, other in names.items() if other is value and _OUTPUT.fullmatch(key)]
    return found


def _pools() -> list[tuple[LogicalDevice, MemoryPool]]:
    """Return the memory of all frameworks. Two frameworks can have memory on the same GPU."""
    return [pool for framework in imported() for pool in framework.pools().items()]


def in_use(machine: LazySnapshot, also: Iterable[LogicalDevice] = ()) -> dict[LogicalDevice, int]:
    """Return this process's bytes on each GPU: the driver's figure, or else the sum of the frameworks'.

    GPUs of frameworks that do not count their memory are named by `also`.
    """
    found: dict[LogicalDevice, int] = {}
    for device, pool in _pools():
        found[device] = found.get(device, 0) + pool.reserved
    for device in {**found, **dict.fromkeys(also)}:
        if (used := used_by_us(device, machine)) is not UNKNOWN:
            found[device] = used
    return found


def _task_of(process: GpuProcess) -> str:
    """Return `task train of ` if a task of this kernel has started a process. Else empty."""
    if process.is_this_process is not True:
        return ""
    found = (task for task in tasks if task.is_running and task.has_started(process.pid))
    return next((f"task {task.name} of " for task in found), "")


def shortage_of(error: BaseException) -> OutOfMemory | None:
    """Return what an error, or one of its causes, tells of a lack of memory. None: nothing."""
    for cause in causes(error):
        for framework in imported():
            with contextlib.suppress(Exception):  # str(error) can raise an error
                if found := framework.out_of_memory(cause):
                    return found
        with contextlib.suppress(Exception):
            if found := shortage_in(str(cause)):
                return found
    return None


def _is_full(device: LogicalDevice, machine: LazySnapshot) -> bool:
    gpu = physical(device, machine)
    return gpu is not None and gpu.status.memory_free is not UNKNOWN and gpu.status.memory_free < _FULL


def shortage_lines(error: BaseException, shell: Any) -> list[str]:
    """Return lines with what holds the memory of a GPU that ran out. Empty for another error."""
    if (found := shortage_of(error)) is None:
        return []
    machine, pools, device = LazySnapshot(), _pools(), found.device
    places = {place for place, _ in pools}
    if not places and (visible := machine.visible) is not UNKNOWN:
        places = {LogicalDevice("gpu", ordinal) for ordinal in range(len(visible))}
    if not found.is_certain:
        places = {place for place in places if _is_full(place, machine)}
        if not places:
            return []
    if device is None and len(places) == 1:
        (device,) = places
    gpu = physical(device, machine) if device is not None else None
    facts = [f"{size_text(found.wanted)} more were requested"] if found.wanted else []
    if gpu and gpu.status.memory_free is not UNKNOWN and gpu.memory_total is not UNKNOWN:
        facts.append(f"{size_text(gpu.status.memory_free)} of {size_text(gpu.memory_total)} are free now")
    where = f" on {described(device, machine)}" if device is not None else ""

    held, dropped, graphs, total, _ = _held(shell, device)
    ours, back = [_holders(held, total)] if held else [], _named(dropped)
    ours += [f"{IN_GRAPHS} of {listed(_named(graphs))}"] * bool(graphs)
    here = [pool for place, pool in pools if device is not None and is_same_device(place, device)]
    unnamed = sum(pool.used for pool in here) - total - sum(graphs.values())
    if here and unnamed > 0:
        ours.append(f"no variable holds {size_text(unnamed)}")
    if cached := sum(pool.reserved - pool.used for pool in here):
        back.append(f"{size_text(cached)} that is cached")
    listing = () if gpu is None or gpu.status.processes is UNKNOWN else gpu.status.processes
    processes = sorted(listing, key=lambda one: 0 if one.memory is UNKNOWN else -one.memory)
    known = [one for one in processes if one.is_this_process is not UNKNOWN]
    others = [one for one in known if one.pid != os.getpid()]
    names = ProcessNames(processes)
    line, name = names.line, names.name
    lines = first_of([f"{_task_of(one)}{line(one)}" for one in others])
    # In a container the driver gives the host's PIDs, so any of these processes can be this kernel.
    unseen = [one for one in processes if one.is_this_process is UNKNOWN]
    sizes = ("?" if one.memory is UNKNOWN else bytes_text(one.memory) for one in unseen)
    hidden = first_of([f"{name(one)}, {size}" for one, size in zip(unseen, sizes, strict=True)])
    gives = f"would free {listed(back)}." if back else "would free nothing."
    rows = [
        ("this kernel", "; ".join(ours)),
        ("others", "; ".join(lines)),
        ("unknown", f"{'; '.join(hidden)}: of this kernel or of others" if hidden else ""),
        ("%gpu_free", gives),
    ]
    head = f"{'Out' if found.is_certain else 'Probably out'} of memory{where}"
    head += f"{': ' if facts else ''}{', '.join(facts)}."
    return [head, *(f"  {name:<11}  {printable(text)}" for name, text in rows if text)]
