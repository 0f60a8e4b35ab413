"""Lists the processes of all users that hold GPU memory idle: `gpu-magic ps`. It ends none.

One run knows since when a kernel that chose GPUs has run no cell, because its claim tells all users, and who
works on a GPU during the run. What any other process did before, nothing tells.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.devices.idle import is_working
from gpu_magic.devices.model import UNKNOWN, GpuProcess, parts, sum_of
from gpu_magic.devices.pace import paced
from gpu_magic.devices.processes import ProcessNames, lineage_of
from gpu_magic.process.view import read_machine
from gpu_magic.text import age_text, bytes_text, printable, simulated_title, since_text, text_table, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpu_magic.devices.model import Claim, Device, Inventory, Unknown
    from gpu_magic.devices.problems import Problem
    from gpu_magic.process.session import Session

__all__ = ["Holder", "Holders", "find_idle"]

_HEADINGS = ("User", "PID", "Process", "Memory", "Idle")
# Looks at the machine. The driver says at the second look who has worked since the first.
_LOOKS = 3
_BETWEEN_LOOKS = 1.0  # seconds


class Holder(NamedTuple):
    """A process that has memory on GPUs, with what its descendants have."""

    pid: int
    owner: str | Unknown
    name: str  # the notebook of a kernel, else the script or program
    notebook: str  # empty: none, or unknown
    age: int | Unknown  # whole seconds since it started
    idle: int | Unknown  # whole seconds, see `Idleness`
    memory: Mapping[Device, int | Unknown]  # bytes

    def to_dict(self) -> dict[str, Any]:
        """Return it as values for JSON. None: unknown."""
        since = UNKNOWN if self.idle is UNKNOWN else round(time.time() - self.idle)
        figures = {"owner": self.owner, "age": self.age, "idle": self.idle, "since": since}
        gpus = [
            {"label": one.label, "uuid": _known(one.uuid), "memory": _known(size)}
            for one, size in self.memory.items()
        ]
        return {
            "pid": self.pid,
            "name": self.name,
            "notebook": self.notebook,
            **{name: _known(figure) for name, figure in figures.items()},
            "gpus": gpus,
        }


class Holders(NamedTuple):
    """The processes that have been idle for long enough, the longest first. `str` returns a table.

    Parameters
    ----------
    at_least
        Seconds.
    idle, unknown
        The idle processes, and those of which it is unknown whether they are.
    others
        How many other processes hold GPU memory: they work, or have worked or started since then.
    simulated
        The profile of a simulated machine. Empty for a real one.
    problem
        Why gpu_magic can read no processes. None if it can.

    """

    at_least: float
    idle: list[Holder]
    unknown: list[Holder]
    others: int
    simulated: str
    problem: Problem | None

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = []
        for one in self.idle:
            places = [
                f"{'?' if size is UNKNOWN else bytes_text(size)} on {device.label}"
                for device, size in one.memory.items()
            ]
            owner = "?" if one.owner is UNKNOWN else one.owner
            idle = 0 if one.idle is UNKNOWN else one.idle
            since = f"{age_text(idle)}, since {since_text(time.time() - idle)}"
            rows.append((owner, str(one.pid), one.name, places[0], since))
            rows += [("", "", "", place, "") for place in places[1:]]
        if rows:
            lines = list(text_table(_HEADINGS, rows))
        else:
            lines = [f"No process is known to hold GPU memory idle for {time_text(self.at_least)}."]
            if self.others:
                have = "process has" if self.others == 1 else "processes have"
                lines[0] += f" {self.others} {have} used GPUs since then: gpu-magic shows all."
        if number := len(self.unknown):
            more = " more" * bool(rows)
            hold = f"{number}{more} process holds" if number == 1 else f"{number}{more} processes hold"
            note = f"{hold} GPU memory, and may be idle: --json has the facts."
            lines = [*lines, note] if rows else [f"{lines[0]} {note}"]
        return "\n".join(map(printable, [*filter(None, [simulated_title(self.simulated)]), *lines]))

    def to_dict(self) -> dict[str, Any]:
        """Return them as values for JSON."""
        return {
            "idle": [one.to_dict() for one in self.idle],
            "unknown": [one.to_dict() for one in self.unknown],
        }


def find_idle(session: Session, at_least: float) -> Holders:
    """Return the processes that hold GPU memory, and have been idle for at least so many seconds.

    It looks at the machine for two seconds.
    """
    machine, worked = read_machine(session), set[int]()
    for _ in range(_LOOKS - 1):
        time.sleep(paced(_BETWEEN_LOOKS))
        machine = read_machine(session)
        worked |= set(_working(machine))
    claims = {
        claim.pid: claim
        for device in machine.devices
        for claim in device.status.claims
        if claim.pid is not UNKNOWN and not claim.waits
    }
    families: defaultdict[int, list[tuple[Device, GpuProcess]]] = defaultdict(list)
    for device in parts(machine.devices):
        for one in () if device.status.users is UNKNOWN else device.status.users:
            above = lineage_of(one.pid) if one.is_seen else ()
            families[next((pid for pid in above if pid in claims), one.pid)].append((device, one))
    names = ProcessNames(one for family in families.values() for _, one in family)
    idle, unknown = list[Holder](), list[Holder]()
    for pid, family in families.items():
        own = next((one for _, one in family if one.pid == pid), None) or session.reader.look_up(pid)
        holder = _holder(own, claims.get(pid), family, names)
        is_at_work = not worked.isdisjoint(one.pid for _, one in family)
        if holder.idle is not UNKNOWN:
            idle += [holder] * (holder.idle >= at_least)
        elif not is_at_work and (holder.age is UNKNOWN or holder.age >= at_least):
            unknown.append(holder)
    idle.sort(key=lambda one: 0 if one.idle is UNKNOWN else -one.idle)
    others = len(families) - len(idle) - len(unknown)
    return Holders(at_least, idle, unknown, others, machine.simulated, machine.problem or machine.limitation)


def _working(machine: Inventory) -> Iterable[int]:
    for device in machine.devices:
        for one in () if device.status.users is UNKNOWN else device.status.users:
            if is_working([one], device.status) is True:
                yield one.pid


def _holder(
    own: GpuProcess, claim: Claim | None, family: Iterable[tuple[Device, GpuProcess]], names: ProcessNames
) -> Holder:
    sizes: defaultdict[Device, list[int | Unknown]] = defaultdict(list)
    for device, one in family:
        sizes[device].append(one.memory)
    memory = {device: sum_of((True, size) for size in some) for device, some in sizes.items()}
    name, notebook, owner = names.name(own), own.notebook, own.owner
    if claim is not None:  # it also tells of other users' notebooks
        notebook = notebook or claim.notebook * claim.notebook.endswith(".ipynb")
        name = claim.notebook if claim.notebook and (own.is_kernel or own.name is UNKNOWN) else name
        owner = claim.owner if owner is UNKNOWN else owner
    return Holder(own.pid, owner, name, notebook, own.age, claim.idle if claim else UNKNOWN, memory)


def _known(value: Any) -> Any:
    return None if value is UNKNOWN else value
