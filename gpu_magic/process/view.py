"""What a process makes of the machine: its variables, what frameworks call each GPU, and what is wrong."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpu_magic.devices.inventory import Inventory
from gpu_magic.devices.limits import UNKNOWN_LIMITS, Limits
from gpu_magic.devices.machine_reader import MachineReader
from gpu_magic.devices.processes import UNKNOWN_PROCESS, Process
from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.process import Program, driver, program
from gpu_magic.process.environment import variables_now
from gpu_magic.process.given import Given
from gpu_magic.process.guard import judge, judge_rocm
from gpu_magic.process.mask import Variables, names_of
from gpu_magic.process.state import State
from gpu_magic.process.visible import in_force, read_visible, seen_vendor
from gpu_magic.process.watch import cuda_watch

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpu_magic.devices.claim import Claim
    from gpu_magic.devices.counters import Counters
    from gpu_magic.devices.model import Device, Gpu, Vendor
    from gpu_magic.process.guard import Guard
    from gpu_magic.process.session import Session

__all__ = [
    "KernelView",
    "Snapshot",
    "ask_guard",
    "judge_process",
    "look_up_process",
    "read_counters",
    "read_for_auto",
    "read_limits",
    "read_machine",
    "take_snapshot",
]

# After the first look at utilization: how many more, and the seconds before each.
_LOOKS, _BETWEEN_LOOKS = 2, 0.25


@dataclass(frozen=True, slots=True)
class KernelView:
    """What this process makes of the machine.

    Parameters
    ----------
    inherited, inherited_order
        CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER as the process was launched; None: not set.
    mask, order
        CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER now; None: not set.
    names
        What frameworks call a device here, by UUID: `{"GPU-8f3a…": "cuda:0"}`. UNKNOWN where that
        can't be known.
    given
        The UUIDs of the devices that it may use; None where these are all, or can't be known.
    state
        Whether the choice can still change: see `State`.
    cuda
        The same as a sentence: since when, by what, and with which GPUs.
    notes
        What is wrong with the mask, a sentence each.
    allotted
        Who gave it which GPUs: `allotted by Slurm job 123: GPUs 2, 5`; empty where nobody is known.
    amd, inherited_amd
        On a machine with AMD's GPUs the variables that hide some of them, and their values, now and as the
        process was launched.
    vendor
        Whose GPUs `names` names.
    others
        The UUIDs of the other vendor's GPUs that are not hidden: a framework for these calls them `cuda:0`,
        too.
    program
        What this process is: a kernel, IPython in a terminal, or Python.

    """

    inherited: str | None
    inherited_order: str | None
    mask: str | None
    order: str | None
    names: Mapping[str, str] | Unknown
    given: tuple[str, ...] | None
    state: str
    cuda: str
    notes: tuple[str, ...] = ()
    allotted: str = ""
    amd: tuple[tuple[str, str], ...] = ()
    inherited_amd: tuple[tuple[str, str], ...] = ()
    vendor: Vendor = "nvidia"
    others: tuple[str, ...] = ()
    program: Program = "kernel"


@dataclass(frozen=True, slots=True)
class Snapshot(Inventory):
    """The machine at one moment, and what this process makes of it.

    Parameters
    ----------
    kernel
        What this process makes of it.
    launched
        The claims for commands and engines that it has launched, each behind the UUID of its device.

    """

    kernel: KernelView = field(kw_only=True)
    launched: tuple[tuple[str, Claim], ...] = field(default=(), kw_only=True)


def take_snapshot(session: Session, state: State | None = None) -> Snapshot:
    """Read the machine, and what this process makes of it.

    Parameters
    ----------
    session
        This process's.
    state
        Whether CUDA has been initialized, where that was asked already. Another thread has to ask `probe`
        itself: what the watch finds, it notes as found in the cell that runs, on the main thread.

    """
    inventory = read_machine(session)
    guard = judge_process(inventory, cuda_watch.look() if state is None else state)
    allotment = Given(inventory, session.inherited, session.grant)
    kernel = _kernel_view(allotment, session.inherited, variables_now(), guard)
    return Snapshot(
        inventory.gpus,
        inventory.driver_version,
        inventory.cuda_version,
        inventory.simulated,
        inventory.problem,
        inventory.limitation,
        kernel=kernel,
        launched=tuple(session.claims.of_commands()),
    )


def ask_guard(session: Session) -> Guard:
    """Ask whether a choice can still take effect.

    GPUs are read only to name those that the process keeps, and where it can be AMD's that it is about.
    """
    state = cuda_watch.look()
    is_needed = state is State.FROZEN or _reader(session).reads_amd
    return judge_process(read_machine(session) if is_needed else Inventory(), state)


def read_machine(session: Session) -> Inventory:
    """Read the machine's GPUs, with figures and others' claims of now."""
    return _reader(session).inventory().with_claims(session.claims.others())


def _reader(session: Session) -> MachineReader:
    if session.reader is None:
        session.reader = MachineReader()
    return session.reader


def read_for_auto(session: Session) -> Inventory:
    """Read the machine's GPUs to pick from: a GPU that rests for a moment only is not taken for a free one.

    The utilization is the highest of three looks within half a second: NVML's own period is between a sixth
    of a second and a second (`nvmlUtilization_t`).
    """
    inventory = read_machine(session)
    reader = session.reader
    if reader is None or inventory.problem or len(inventory.devices) < 2:  # noqa: PLR2004 - one is no choice
        return inventory
    for _ in range(_LOOKS):
        time.sleep(_BETWEEN_LOOKS)
        inventory = inventory.with_highest(reader.utilization())
    return inventory


def read_limits(session: Session, gpu: Gpu) -> Limits:
    """Read what holds a GPU back; after `read_machine`, which finds the GPUs."""
    return UNKNOWN_LIMITS if session.reader is None else session.reader.limits(gpu)


def read_counters(session: Session, uuids: Collection[str], since: float | None) -> dict[str, Counters]:
    """Read what devices count, by their UUIDs; after `read_machine`, which finds the devices.

    Parameters
    ----------
    session
        This process's.
    uuids
        Which GPUs and MIG instances. One that is not there any more is left out.
    since
        Tell the work of processes after this moment, in seconds since the epoch; None: read energy and memory
        alone.

    """
    return (
        {}
        if session.reader is None
        else session.reader.counters(uuids, None if since is None else int(since * 1e6))
    )


def look_up_process(session: Session, pid: int) -> Process:
    """Return who a process belongs to, and its name, given the number that the driver reports."""
    return UNKNOWN_PROCESS if session.reader is None else session.reader.look_up(pid)


def judge_process(inventory: Inventory, state: State) -> Guard:
    """Put together what the driver, the watch and the machine say."""
    asked = driver()
    if asked.vendor == "amd" or inventory.vendors == ("amd",):
        return judge_rocm(state, Variables(*asked.began_with), cuda_watch.first, inventory)
    return judge(state, asked.devices(), cuda_watch.first, inventory, asked.error)


def _kernel_view(allotment: Given, inherited: Variables, now: Variables, guard: Guard) -> KernelView:
    """Put the machine, the variables and the guard's answer together.

    Parameters
    ----------
    allotment
        What the process was given of the machine.
    inherited, now
        The variables as the process was started, and as they are.
    guard
        Whether CUDA has read them, and what it then took.

    """
    inventory = allotment.inventory
    vendor = guard.vendor if guard.vendor in inventory.vendors[1:] else seen_vendor(now, inventory)
    reading, is_frozen = read_visible(now, inventory.of_vendor(vendor)), guard.state is State.FROZEN
    notes = list(reading.notes)
    if now != inherited and in_force(inherited, inventory):
        started = read_visible(inherited, inventory)
        notes += [f"As this process was started: {note}" for note in started.notes]
    if is_frozen and guard.is_known and _uuids(reading.devices) not in (None, guard.uuids):
        notes.append(
            f"{names_of(vendor)[0]} now means other GPUs than {guard.runtime} has read: this process stays "
            f"with {guard.frozen_to}; frameworks may count by the new value, and new processes will."
        )
    visible = _uuids(reading.devices)
    if not guard.can_change:
        visible = guard.uuids if guard.is_known else None
    names: dict[str, str] | Unknown = UNKNOWN
    if visible is not None:
        names = {uuid: f"cuda:{position}" for position, uuid in enumerate(visible)}
    return KernelView(
        inherited=inherited.mask,
        inherited_order=inherited.order,
        mask=now.mask,
        order=now.order,
        names=names,
        given=None if allotment.is_all else _uuids(allotment.devices),
        state=guard.state.value,
        cuda=guard.sentence,
        notes=tuple(notes),
        allotted=allotment.text,
        amd=_hiding_amd(now, inventory),
        inherited_amd=_hiding_amd(inherited, inventory),
        vendor=vendor,
        others=_seen_of_others(now, inventory, vendor),
        program=program(),
    )


def _hiding_amd(variables: Variables, inventory: Inventory) -> tuple[tuple[str, str], ...]:
    return (
        tuple(in_force(variables, inventory.of_vendor("amd")).items()) if "amd" in inventory.vendors else ()
    )


def _seen_of_others(now: Variables, inventory: Inventory, vendor: Vendor) -> tuple[str, ...]:
    """Return the UUIDs of the other vendor's GPUs that are not hidden, as far as that is known."""
    found: list[str] = []
    for other in inventory.vendors:
        machine = inventory.of_vendor(other)
        seen = _uuids(read_visible(now, machine).devices)
        if other != vendor:
            found += [str(gpu.uuid) for gpu in machine] if seen is None else seen
    return tuple(found)


def _uuids(devices: tuple[Device, ...] | Unknown) -> tuple[str, ...] | None:
    """Return what is visible; None where it can't be told."""
    if devices is UNKNOWN or any(device.uuid is UNKNOWN for device in devices):
        return None
    return tuple(str(device.uuid) for device in devices)
