"""Moves the variables that a line names, and reports what became of them: what `%to_gpu` does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from gpu_magic.errors import PlacementError
from gpu_magic.moving.leftovers import Leftovers, find_leftovers
from gpu_magic.moving.move import carry_out
from gpu_magic.moving.or_cpu import planned
from gpu_magic.moving.plan import Plan
from gpu_magic.process.physical import LazySnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from gpu_magic.moving.names import Names
    from gpu_magic.moving.planned_variable import PlannedVariable
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["MoveReport", "MoveRequest", "ProgressBar", "move_variables"]


class MoveRequest(NamedTuple):
    """What `%to_gpu` or `%to_cpu` was asked for.

    Parameters
    ----------
    names
        The variables, as they were typed.
    all
        Move every variable that can be moved.
    device
        As after `--device`; None: see `read_destination`.
    converts
        The module of the framework that NumPy's arrays are converted for; None: they stay.
    dry_run
        Report what would move, and change nothing.
    or_cpu
        Move to the CPU where the device can't be used, and print that in a line.
    magic
        What was typed, as an error shows it.

    """

    names: str
    all: bool = False
    device: str | None = None
    converts: str | None = None
    dry_run: bool = False
    or_cpu: bool = False
    magic: str = "%to_gpu"


class MoveReport(NamedTuple):
    """What has moved, or with `dry_run` would move.

    Parameters
    ----------
    device
        The device, as users write it.
    device_text
        The device with its physical GPU, where there is one.
    variables
        What was planned for each variable.
    nbytes
        The size of what has moved, in bytes.
    free
        How many bytes were free on the device, for a dry run; None for unknown.
    seconds
        How long it took; None for a dry run.
    skipped
        The variables that `all` left where they are, and why each can't be moved.
    unmoved
        A sentence for each object with arrays that is not moved.
    leftovers
        What it has left elsewhere; nothing for a dry run.
    moves_all
        Whether every variable was to be moved that can be.
    converted_in_place
        The framework whose arrays NumPy's have become, where nothing was copied; empty for none.

    """

    device: str
    device_text: str
    variables: Sequence[PlannedVariable]
    nbytes: int
    free: int | None
    seconds: float | None
    skipped: Sequence[tuple[str, str]]
    unmoved: Sequence[str] = ()
    leftovers: Leftovers = Leftovers()
    moves_all: bool = False
    converted_in_place: str = ""


class ProgressBar(Protocol):
    """A context manager that shows how many bytes have been copied."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def update(self, done: int) -> None: ...


def move_variables(
    request: MoveRequest, names: Names, progress_bar: Callable[[int], ProgressBar]
) -> MoveReport:
    """Move variables of a namespace.

    Parameters
    ----------
    request
        What to move, and where to.
    names
        The variables.
    progress_bar
        Makes a progress bar for a number of bytes.

    Raises
    ------
    PlacementError
        They can't be moved, do not fit, or a copy failed. Everything is as it was.

    """
    machine = LazySnapshot()

    def make(device: LogicalDevice) -> tuple[Plan, list[tuple[str, str]]]:
        plan = Plan(device, request.converts, machine)
        skipped = _add(request, plan, names)
        plan.check()
        if request.or_cpu and not request.dry_run:
            plan.check_converted()
        return plan, skipped

    plan, skipped = planned(request.device, machine, make, or_cpu=request.or_cpu)
    unmoved = plan.unmoved
    free = plan.free if request.dry_run and plan.has_load else None
    seconds, leftovers = None, Leftovers()
    if not request.dry_run:
        begin = time.monotonic()
        with progress_bar(plan.nbytes) as progress:
            carry_out(plan, names, progress.update)
        seconds = time.monotonic() - begin
        leftovers = find_leftovers(plan, names.variables_and_outputs())
    return MoveReport(
        str(plan.device),
        plan.device_text,
        plan.variables,
        plan.nbytes,
        free,
        seconds,
        skipped,
        unmoved,
        leftovers,
        request.all,
        plan.converted_in_place,
    )


def _add(request: MoveRequest, plan: Plan, names: Names) -> list[tuple[str, str]]:
    """Add the variables that are named, or all that can be moved; return those that can't be, and why."""
    if request.all and request.names:
        raise PlacementError(
            f"--all is every variable, and {request.names} is also named: use one of the two."
        )
    if not request.all and not request.names:
        raise PlacementError(f"Which variables? {request.magic} model batch names them, --all is every one.")
    if request.names:
        for name, value in names.read(request.names).items():
            plan.add(name, value)
        return []
    reasons = {name: plan.add_if_possible(name, value) for name, value in names.read_all().items()}
    return [(name, reason.removeprefix(f"{name}: ")) for name, reason in reasons.items() if reason]
