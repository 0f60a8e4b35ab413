"""Moves variables, all of it or nothing, and says what became of them: `to_gpu`, `to_cpu`."""

from __future__ import annotations

import contextlib
import gc
import time
from typing import TYPE_CHECKING, Any, TypeVar

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks import device_of
from gpu_magic.interrupts import deferred_interrupts
from gpu_magic.move.graph import Graph, framework_of
from gpu_magic.move.plan import Plan, Planned, UnusableDeviceError, read_destination, transfer_of
from gpu_magic.objects.memory import holdings_of, unfinished_text
from gpu_magic.objects.walk import Budget, collection_paused
from gpu_magic.process.physical import LazySnapshot
from gpu_magic.public import public
from gpu_magic.selection.normalize import can_name_device, normalize_device
from gpu_magic.selection.target import CPU
from gpu_magic.text import listed, size_text, with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from contextlib import AbstractContextManager

    from gpu_magic.frameworks.answers import Holding
    from gpu_magic.move.names import Names
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["carry_out", "leftover_lines", "move_variables", "to_cpu", "to_gpu"]

# What the errors of the frameworks say when memory is exhausted.
_OUT_OF_MEMORY = ("out of memory", "outofmemory", "resource_exhausted")
_SHOWN = 0.1  # seconds: of a shorter move no time is shown
_Made = TypeVar("_Made")


@public
def to_gpu(
    thing: Any, device: str | int | None = None, *, numpy: str | None = None, or_cpu: bool = False
) -> Any:
    """Move a variable to a device, with all that it holds and all that ties that together, or nothing of it.

    >>> model, optimizer, batch = gpu_magic.to_gpu((model, optimizer, batch), 1)

    Parameters
    ----------
    thing
        A tensor or array of PyTorch, TensorFlow, JAX or CuPy; a PyTorch module or optimizer; an object with a
        `.to(device)`; lists, tuples, dicts, dataclasses and the like of these, to any depth. What hangs
        together is moved together: tied weights stay tied, views stay views.
    device
        As for `on_gpu`; None is the GPU of the `on_gpu` block around, or else `cuda:0`.
    numpy
        Make NumPy's arrays those of "torch", "jax" or "cupy"; None leaves them.
    or_cpu
        Where the device can't be used, move to the CPU and print that in a line.

    Returns
    -------
    Any
        What was moved. Modules, optimizers, parameters, lists, dicts and objects that can be changed are the
        same ones, changed in place; tensors, arrays and tuples are new.

    Raises
    ------
    PlacementError
        It can't be moved, does not fit, or a copy failed. All is as it was.

    """
    if isinstance(thing, str):
        raise PlacementError(f"to_gpu moves a variable, and {thing!r:.40} is a string: remove the quotes.")
    if thing is None:
        raise PlacementError("to_gpu moves a variable, and this one is None.")
    if not can_name_device(device) and device_of(device) is None:
        raise PlacementError(
            f"to_gpu moves one thing, followed by the device, not {with_article(type(device).__name__)}: "
            "to_gpu((model, optimizer), 1) moves several."
        )
    machine = LazySnapshot()

    def make(destination: LogicalDevice) -> Plan:
        plan = Plan(destination, numpy, machine)
        plan.add("", thing)
        plan.check()
        if or_cpu:
            plan.check_converted()
        return plan

    text = None if device is None else normalize_device(device, device_of)
    return carry_out(_planned(text, machine, make, or_cpu=or_cpu))[0]


@public
def to_cpu(thing: Any, *, numpy: str | None = None) -> Any:
    """Move a variable to the CPU: see `to_gpu`. CuPy's arrays become NumPy's."""
    return to_gpu(thing, "cpu", numpy=numpy)


def _planned(
    text: str | None, machine: LazySnapshot, make: Callable[[LogicalDevice], _Made], *, or_cpu: bool
) -> _Made:
    """Return what is planned for the device that a text names; with `or_cpu` else for the CPU."""
    try:
        return make(read_destination(text, machine))
    except UnusableDeviceError as error:
        if not or_cpu:
            raise
        print(f"Moving to the CPU: {error}")  # noqa: T201 - what `or_cpu` promises
    return make(CPU)


def carry_out(
    plan: Plan, names: Names | None = None, report: Callable[[int], object] = lambda _: None
) -> list[Any]:
    """Move the variables of a plan; return them as they are now.

    Parameters
    ----------
    plan
        What to move, and where to.
    names
        The names whose variables get the new values.
    report
        Called with the number of bytes that are copied, after each piece.

    Raises
    ------
    PlacementError
        It failed, out of memory for example. Everything is as it was, and what was allocated is freed.

    """
    return _Execution(plan, names, report).run()


class _Execution:
    """One execution of a plan. Parameters as those of `carry_out`."""

    def __init__(self, plan: Plan, names: Names | None, report: Callable[[int], object]) -> None:
        self._plan, self._names, self._report = plan, names, report
        self._copied = 0  # bytes
        self._undo: list[Callable[[], None]] = []

    def run(self) -> list[Any]:
        failure: BaseException | None = None
        interrupts: list[int] = []
        is_settled = False
        try:
            with collection_paused():
                failure = self._attempt(self._prepare)
                # An interrupt ends the work, and it is undone; a later one is raised when that is finished.
                with deferred_interrupts() as interrupts:
                    if failure is None:
                        failure = self._attempt(lambda: self._commit(interrupts))
                    if failure is not None:
                        self._give_up()
                    is_settled = True
        except KeyboardInterrupt:  # between two steps
            failure = KeyboardInterrupt()
        if not is_settled:
            with deferred_interrupts():
                self._give_up()
        if interrupts:
            failure = KeyboardInterrupt()
        if failure is not None:
            raise failure
        return [self._plan.graph.now(value) for value in self._plan.values.values()]

    def _attempt(self, step: Callable[[], None]) -> BaseException | None:
        """Take a step; return an error to raise, without the frames of its own, which hold the copies."""
        try:
            step()
        except KeyboardInterrupt:
            return KeyboardInterrupt()
        except PlacementError as error:
            return PlacementError(f"{error} Nothing was changed.")
        except Exception as error:  # noqa: BLE001 - each framework has its own for being out of memory
            device, message = self._plan.device, " ".join(f"{type(error).__name__}: {error}".split())
            if not any(words in message.lower() for words in _OUT_OF_MEMORY):
                return PlacementError(f"Moving to {device} failed, and all is as it was: {message[:300]}")
            copied = f"{size_text(self._copied)} of {size_text(self._plan.nbytes)}"
            return PlacementError(
                f"{device} ran out of memory after {copied}. "
                "All is as it was. Move fewer, or see what %gpu_free gives back."
            )
        return None

    def _prepare(self) -> None:
        """Make all the copies. Nothing is changed."""
        self._plan.check_resources()
        for transfer in self._plan.transfers.values():
            for nbytes in transfer.copy():
                self._copied += nbytes
                self._report(self._copied)

    def _commit(self, interrupts: list[int]) -> None:
        """Put the copies in place, and prepare to undo each step before it is taken."""
        graph, transfers = self._plan.graph, self._plan.transfers
        for transfer in transfers.values():
            transfer.commit()
        for components, new in graph.rebuild(self._replacement):
            if components.put is not None:
                old, put = components.children, components.put
                self._undo.append(lambda old=old, new=new, put=put: put(new, old))  # type: ignore[misc]
                put(old, new)
        if self._names is not None:
            self._undo.append(self._names.undo)
            self._names.put({name: graph.now(value) for name, value in self._plan.values.items()})
        if "torch" in transfers:
            from gpu_magic.move.pytorch import told  # torch is there

            device = framework_of("torch").own_device(self._plan.requested)
            for undo in told(graph.composites(), device):
                self._undo.append(undo)
        if interrupts:
            raise KeyboardInterrupt

    def _replacement(self, array: Any) -> Any:
        for transfer in self._plan.transfers.values():
            if (new := transfer.replacement(array)) is not array:
                return new
        return array

    def _give_up(self) -> None:
        """Undo every step, whatever one of them raises; free what was allocated, also by the frameworks."""
        transfers = self._plan.transfers
        steps = [transfer.undo for transfer in transfers.values()] + self._undo
        frameworks = list(map(framework_of, transfers))
        while steps:
            with contextlib.suppress(Exception):
                steps.pop()()
        self._undo.clear()
        self._plan.discard()
        gc.collect()
        for framework in frameworks:
            with contextlib.suppress(Exception):  # after an error of CUDA's, each call can raise it again
                framework.empty_cache()


def _report(plan: Plan, free: int | None, seconds: float | None) -> list[str]:
    """Return a table of what has moved, or in a dry run would move, and what became of it.

    `free` is for a dry run, in bytes; `seconds` are not.
    """
    rows = [_cells(variable, str(plan.device)) for variable in plan.variables]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    table = [
        f"{name:{widths[0]}}  {what:{widths[1]}}  {size:>{widths[2]}}  {way}".rstrip()
        for name, what, size, way in rows
    ]
    return [*table, _outcome(plan, free, seconds)]


def _outcome(plan: Plan, free: int | None, seconds: float | None) -> str:
    size, device = size_text(plan.nbytes), plan.device_text
    if not plan.has_load:
        return f"All of it is on {device} already."
    if name := plan.converted_in_place:
        if seconds is None:
            return f"NumPy's arrays would become {name}'s, in the memory that they have. Nothing was changed."
        return f"NumPy's arrays have become {name}'s, in the memory that they had: nothing was copied."
    if seconds is None:
        verb = "would move to" if free is None or plan.nbytes <= free else "do not fit on"
        left = "an unknown amount is" if free is None else f"{size_text(free)} are"
        return f"{size} {verb} {device}, where {left} free. Nothing was changed."
    return f"{size} moved to {device}{f' in {seconds:.1f} s' if seconds >= _SHOWN else ''}."


def _cells(variable: Planned, device: str) -> tuple[str, str, str, str]:
    """Return a row of the table: the name, what it is, its size, and from where to where."""
    count, numpy = variable.load.arrays, ""
    if variable.numpy_arrays and not device.startswith("cpu"):
        is_one = variable.numpy_arrays == 1
        stays = "a NumPy array stays" if is_one else f"{variable.numpy_arrays} NumPy arrays stay"
        numpy = f"; {stays} (--numpy torch makes tensors of them)"
    if count:
        what = f"{variable.type_text}: {count} array{'s' if count > 1 else ''}"
        way = f"{', '.join(variable.load.origins)} → {device}{numpy}"
        return variable.name, what, size_text(variable.load.nbytes), way
    way = f"shared with {variable.shared_with}" if variable.shared_with else "nothing to move"
    return (
        variable.name,
        variable.type_text,
        "",
        (f"on {device} already" if variable.has_arrays else way) + numpy,
    )


def move_variables(
    names: Names,
    text: str,
    *,
    all_of_them: bool = False,
    device: str | None = None,
    numpy: str | None = None,
    dry_run: bool = False,
    or_cpu: bool = False,
    magic: str = "%to_gpu",
    progress: Callable[[int], AbstractContextManager[Callable[[int], object]]] = lambda _: (
        contextlib.nullcontext(id)
    ),
) -> list[str]:
    """Move variables of a namespace, and return what is said of it: what `%to_gpu` does.

    Parameters
    ----------
    names
        The variables, of which `text` names some, or `all_of_them` means every one that can be moved.
    device
        As after `--device`; None: see `read_destination`.
    numpy, or_cpu
        As for `to_gpu`.
    dry_run
        Report what would move, and change nothing.
    magic
        What was typed, as an error shows it.
    progress
        Shows how many of some bytes are copied, in a block.

    Raises
    ------
    PlacementError
        They can't be moved, do not fit, or a copy failed. Everything is as it was.

    """
    if all_of_them and text:
        raise PlacementError(f"--all is every variable, and {text} is also named: use one of the two.")
    if not all_of_them and not text:
        raise PlacementError(f"Which variables? {magic} model batch names them, --all is every one.")
    machine = LazySnapshot()

    def make(destination: LogicalDevice) -> tuple[Plan, list[str]]:
        plan, skipped = Plan(destination, numpy, machine), []
        if text:
            for name, value in names.read(text).items():
                plan.add(name, value)
        else:
            for name, value in names.read_all().items():
                if reason := plan.add_if_possible(name, value):
                    skipped.append(f"{name} stays: {reason.removeprefix(f'{name}: ')}")
        plan.check()
        if or_cpu and not dry_run:
            plan.check_converted()
        return plan, skipped

    plan, skipped = _planned(device, machine, make, or_cpu=or_cpu)
    lines = [*skipped, *plan.unmoved()]
    if dry_run:
        return [*_report(plan, plan.free if plan.has_load else None, None), *lines]
    begin = time.monotonic()
    with progress(plan.nbytes) as report:
        carry_out(plan, names, report)
    seconds = time.monotonic() - begin
    lines += leftover_lines(plan, names.variables_and_outputs(), moves_all=all_of_them)
    return [*_report(plan, None, seconds), *lines]


def leftover_lines(
    plan: Plan,
    variables: Iterable[tuple[str, object]],
    budget: Budget | None = None,
    *,
    moves_all: bool = False,
) -> list[str]:
    """Say which variables hold the old memory after a move, or have only a part of what they share moved.

    An optimizer whose model was moved has its state where the model was; a model whose parameters were moved,
    its buffers.
    """
    budget = budget or Budget()
    before = plan.memory_before()
    names: list[str] = []
    held: dict[Hashable, Holding] = {}
    split: list[str] = []
    for name, value in variables:
        with budget.variable(name):
            if name not in plan.values and (nbytes := _elsewhere(plan, value, budget)):
                size = size_text(nbytes)
                split.append(f"{name} has some of what has moved, and {size} elsewhere: move {name} as well.")
            found = holdings_of([value], budget) if before else {}
        if old := {key: holding for key, holding in found.items() if key in before}:
            names.append(name)
            held |= old
    lines = [unfinished_text(budget.unfinished)] if budget.unfinished else []
    if not names:
        return split + lines
    devices = listed(sorted({str(one.device) for one in held.values()}))
    copy = f"with the old copy ({size_text(sum(one.nbytes for one in held.values()))} on {devices})"
    text = f"Not named, and not tied to what has moved: {', '.join(names)}, {copy}. "
    text += "Names that belong together move together in one line."
    if moves_all:
        text = f"Not moved: {', '.join(names)}, {copy}. Datasets and outputs stay where they are."
    return [text, *split, *lines]


def _elsewhere(plan: Plan, value: object, budget: Budget) -> int:
    """Return how many bytes a value has elsewhere, if it shares what was moved in place; else 0."""
    try:
        graph = Graph(plan.requested, budget=budget)
        found = graph.add(value)
        if found.unmovable or not graph.unchanged_arrays() & plan.graph.unchanged_arrays():
            return 0
        with collection_paused():
            loads = [
                transfer_of(framework_of(module), plan.requested).add(arrays)
                for module, arrays in found.arrays.items()
            ]
    except Exception:  # noqa: BLE001 - it can't be moved, for whatever reason, and nobody has asked for it
        return 0
    return sum(load.nbytes for load in loads)
