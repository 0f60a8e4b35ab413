"""The machine as a process sees it: its variables, the name of each GPU in frameworks, and problems."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.claims.held import waiting
from gpu_magic.devices.model import UNKNOWN, Inventory, Unknown
from gpu_magic.process.drivers import State
from gpu_magic.process.environment import Program, program, variables_now
from gpu_magic.process.given import Given
from gpu_magic.process.guard import judge_process
from gpu_magic.process.mask import Flaw, Note, names_of
from gpu_magic.process.visible import in_force, read_visible, seen_vendor
from gpu_magic.process.watch import cuda_watch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_magic.devices.model import Claim, Device, Vendor
    from gpu_magic.process.guard import Guard
    from gpu_magic.process.session import Session

__all__ = ["KernelView", "Snapshot", "ask_guard", "read_for_auto", "read_machine", "take_snapshot"]

# Looks at utilization after the first one, and the pause before each of them.
_LOOKS = 2
BETWEEN_LOOKS = 0.25  # seconds; tests set it


class KernelView(NamedTuple):
    """The machine as this process sees it."""

    inherited: str | None  # CUDA_VISIBLE_DEVICES at the launch of the process. None: not set
    mask: str | None  # the same now
    order: str | None
    # The name of a device in frameworks, by `Gpu.identity`: {"GPU-8f3a…": "cuda:0"}.
    names: Mapping[str, str] | Unknown
    given: tuple[str, ...] | None  # the identities that the process may use. None: all, or unknown
    state: str  # whether the choice can still change: see `State`
    cuda: str  # the same as a sentence, with when and how CUDA started, and its GPUs
    notes: tuple[Note, ...] = ()  # what is wrong with the mask
    allotted: str = ""  # who gave which GPUs: "allotted by Slurm job 123: GPUs 2, 5"
    amd: tuple[tuple[str, str], ...] = ()  # the variables that hide AMD's GPUs here, with their values
    inherited_amd: tuple[tuple[str, str], ...] = ()  # the same at the launch of the process
    vendor: Vendor = "nvidia"  # whose GPUs `names` names
    others: tuple[str, ...] = ()  # the identities of the other vendor's visible GPUs, also "cuda:0"…
    program: Program = "kernel"
    is_as_begun: bool = False  # the variables are those that were chosen when the kernel started


@dataclass(frozen=True, slots=True)
class Snapshot(Inventory):
    """The machine at one moment, as this process sees it."""

    kernel: KernelView = field(kw_only=True)
    # The claims for commands and engines that the process has launched, each after the device's identity.
    launched: tuple[tuple[str, Claim], ...] = field(default=(), kw_only=True)
    claimed: tuple[str, ...] = field(default=(), kw_only=True)  # the identities of its claimed devices
    waiting: int = field(default=0, kw_only=True)  # processes of all users that wait for GPUs


def take_snapshot(session: Session, state: State | None = None) -> Snapshot:
    """Read the machine as this process sees it.

    On any thread but the main one, the caller must pass the state from `probe`. Without it, the watch would
    note that the cell that runs on the main thread started CUDA.
    """
    inventory = read_machine(session)
    guard = judge_process(inventory, cuda_watch.look() if state is None else state)
    return Snapshot(
        **{one.name: getattr(inventory, one.name) for one in fields(inventory)},
        kernel=_kernel_view(session, inventory, guard),
        launched=tuple(session.claims.of_commands()),
        claimed=tuple(sorted(session.claims.held)),
        waiting=waiting(session.access),
    )


def ask_guard(session: Session) -> Guard:
    """Ask whether a choice can still take effect.

    GPUs are read only to name those that the process keeps, or if there may be AMD GPUs.
    """
    state = cuda_watch.look()
    is_needed = state is State.FROZEN or session.reader.reads_amd
    return judge_process(read_machine(session) if is_needed else Inventory(), state)


def read_machine(session: Session) -> Inventory:
    """Read the machine's GPUs with their figures, the claims of other processes, and idle times."""
    machine = session.reader.inventory().with_claims(session.claims.others())
    return session.reader.idleness.note(machine, time.monotonic())


def read_for_auto(session: Session) -> Inventory:
    """Read the machine's GPUs for `auto`, so that a GPU that rests only for a moment does not look free.

    All is as the last of three looks within half a second shows it, but the utilization is the highest of the
    three. NVML's sampling period is between a sixth of a second and a second (`nvmlUtilization_t`).
    """
    inventory = read_machine(session)
    if not inventory.problem and len(inventory.devices) > 1:  # with one device, nothing is to be picked
        for _ in range(_LOOKS):
            time.sleep(BETWEEN_LOOKS)
            inventory = read_machine(session).with_highest(inventory)
    return inventory


def _kernel_view(session: Session, inventory: Inventory, guard: Guard) -> KernelView:
    """Make the view from the machine, the variables and the guard."""
    inherited, now = session.inherited, variables_now()
    given = Given(inventory, inherited, session.grant)
    vendor = guard.vendor if guard.vendor in inventory.vendors[1:] else seen_vendor(now, inventory)
    reading = read_visible(now, inventory.of_vendor(vendor))
    visible, notes = _identities(reading.devices), list(reading.notes)
    if now != inherited and in_force(inherited, inventory):
        notes += [note._replace(is_past=True) for note in given.reading.notes]
    if guard.state is State.FROZEN and guard.is_known and visible not in (None, guard.uuids):
        why = (
            f"{names_of(vendor)[0]} was changed after {guard.runtime} started. {guard.keeps}. New processes "
            "use the new value, and frameworks may count by it."
        )
        notes.append(Note(why, Flaw.CHANGED))
    if not guard.can_change:
        visible = guard.uuids if guard.is_known else None
    others: list[str] = []
    for other in inventory.vendors:
        if other != vendor:
            machine = inventory.of_vendor(other)
            seen = _identities(read_visible(now, machine).devices)
            others += [gpu.identity for gpu in machine] if seen is None else seen
    hides_amd = "amd" in inventory.vendors
    return KernelView(
        inherited=inherited.mask,
        mask=now.mask,
        order=now.order,
        names=UNKNOWN if visible is None else {uuid: f"cuda:{place}" for place, uuid in enumerate(visible)},
        given=None if given.is_all else _identities(given.devices),
        state=guard.state.value,
        cuda=guard.sentence,
        notes=tuple(notes),
        allotted=given.text,
        amd=tuple(in_force(now, inventory.of_vendor("amd")).items()) if hides_amd else (),
        inherited_amd=tuple(in_force(inherited, inventory.of_vendor("amd")).items()) if hides_amd else (),
        vendor=vendor,
        others=tuple(others),
        program=program(),
        is_as_begun=now == session.begun_with,
    )


def _identities(devices: tuple[Device, ...] | Unknown) -> tuple[str, ...] | None:
    """Return the identities of devices. None if the devices or an identity are unknown."""
    if devices is UNKNOWN or not all(device.identity for device in devices):
        return None
    return tuple(device.identity for device in devices)
