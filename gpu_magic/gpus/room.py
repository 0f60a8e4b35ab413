"""Room on GPUs for variables that go there: who holds the memory, and how to wait for some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.devices.processes import ProcessNames
from gpu_magic.errors import NotFreeError, PlacementError
from gpu_magic.gpus.options import Options
from gpu_magic.gpus.request import parse
from gpu_magic.objects.physical import LazySnapshot, physical
from gpu_magic.process.session import current
from gpu_magic.process.view import Snapshot
from gpu_magic.text import size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpu_magic.devices.model import Inventory
    from gpu_magic.move.plan import Plan

__all__ = ["check_room", "wait_for_room"]


def _free_text(plan: Plan) -> str:
    """Return how much is free, and who holds the rest: `3.1 GiB are free (maria: train.py, 60.0 GiB)`."""
    gpu = physical(plan.device, plan.machine)
    processes = () if gpu is None or gpu.status.processes is UNKNOWN else gpu.status.processes
    names = ProcessNames(processes)
    others = [str(names.line(one)) for one in processes if one.is_this_process is not True]
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
    plans: Sequence[Plan], seconds: float | None, on_wait: Callable[[str], object] | None
) -> None:
    """Wait, in turn with all users who wait for GPUs, until the devices have room for the plans.

    `seconds` is how long. None: without a limit.
    """
    from gpu_magic.gpus.wait import Wait  # imports asyncio

    found = [physical(plan.device, plan.machine) for plan in plans]
    gpus = [gpu for gpu in found if gpu is not None]
    if len(gpus) < len(plans):
        raise PlacementError("Which GPUs these are is unknown, so --wait cannot wait for them.")

    def decide(_: Options, machine: Inventory) -> bool:
        now = LazySnapshot()
        now.snapshot = Snapshot.of(current(), machine)
        for plan in plans:
            plan.machine = now
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
        seconds,
        claims=dict,
        decide=decide,
        commit=bool,
    ).wait(lambda line: on_wait(str(line)) if on_wait else None)
