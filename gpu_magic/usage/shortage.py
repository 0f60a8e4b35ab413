"""What holds the memory of a GPU that had none left: this process by variable, others by owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.errors import causes
from gpu_magic.frameworks import imported
from gpu_magic.moving.free import free
from gpu_magic.placement.budget import Budget
from gpu_magic.placement.holdings import holdings_of, is_same_device
from gpu_magic.process.physical import LazySnapshot, described, physical
from gpu_magic.selection.target import LogicalDevice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_magic.devices.status import GpuProcess
    from gpu_magic.frameworks.answers import OutOfMemory
    from gpu_magic.moving.history import History

__all__ = ["Shortage", "find_shortage"]


class Shortage(NamedTuple):
    """A GPU that had no memory left. All sizes are in bytes.

    Parameters
    ----------
    device
        It, with its physical GPU; empty where it is not known which one it was.
    wanted
        What was asked for; None where that is not known.
    free, total
        What it has now, as the driver says.
    held
        What each variable holds there.
    unnamed
        What frameworks count there, and no variable leads to.
    cached
        What they keep there unused.
    others
        Other processes that have memory there.
    droppable
        What of the history alone holds memory on GPUs, by name: what `gpu_free` would drop.

    """

    device: str
    wanted: int | None
    free: int | Unknown
    total: int | Unknown
    held: Mapping[str, int]
    unnamed: int
    cached: int
    others: Sequence[GpuProcess]
    droppable: Mapping[str, int]


def find_shortage(error: BaseException, history: History) -> Shortage | None:
    """Return what holds the memory where an error was raised as it ran out; None for any other error.

    Parameters
    ----------
    error
        What a cell has ended with.
    history
        That of the shell.

    """
    found = next(filter(None, map(_told, causes(error))), None)
    if found is None:
        return None
    machine = LazySnapshot()
    device = found.device or _only_device(machine)
    gpu = None if device is None else physical(device, machine)
    status = None if gpu is None else gpu.status
    processes = () if status is None or status.processes is UNKNOWN else status.processes
    pools = [
        pool
        for framework in imported()
        for place, pool in framework.pools().items()
        if device is not None and is_same_device(place, device)
    ]
    held, keys = _held(history, device)
    freed = free(history, dry_run=True)
    used = sum(pool.used for pool in pools)
    return Shortage(
        "" if device is None else described(device, machine),
        found.wanted,
        UNKNOWN if status is None else status.memory_free,
        UNKNOWN if gpu is None else gpu.memory_total,
        held,
        max(0, used - keys),
        sum(pool.reserved - pool.used for pool in pools),
        [process for process in processes if not process.mine],
        freed.dropped,
    )


def _told(error: BaseException) -> OutOfMemory | None:
    return next(filter(None, (framework.out_of_memory(error) for framework in imported())), None)


def _only_device(machine: LazySnapshot) -> LogicalDevice | None:
    """Return the GPU of this process, where it has no more than one."""
    places = {place for framework in imported() for place in framework.pools()}
    if len(places) == 1:
        return places.pop()
    names = machine.snapshot.kernel.names
    return LogicalDevice("gpu", 0) if names is not UNKNOWN and len(names) == 1 else None


def _held(history: History, device: LogicalDevice | None) -> tuple[dict[str, int], int]:
    """Return what each variable holds on a GPU, the largest first, and what all of them do together.

    Where it is not known which one it was, that is on any of them.
    """
    found: dict[str, int] = {}
    all_of_them: dict[object, int] = {}
    budget = Budget()
    for name, value in history.variables().items():
        with budget.variable(name):
            sizes = {
                key: one.nbytes
                for key, one in holdings_of([value], budget).items()
                if isinstance(one.device, LogicalDevice)
                and one.device.kind == "gpu"
                and (device is None or is_same_device(one.device, device))
            }
        all_of_them |= sizes
        if sizes:
            found[name] = sum(sizes.values())
    return dict(sorted(found.items(), key=lambda item: -item[1])), sum(all_of_them.values())
