"""The machine as a process sees it at one moment: its GPUs, its variables, and what can still change."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpu_magic.claims.held import count_waiting
from gpu_magic.devices.model import UNKNOWN, Inventory, Unknown
from gpu_magic.devices.notebooks import with_notebooks
from gpu_magic.devices.pace import paced
from gpu_magic.errors import GpuMagicError
from gpu_magic.process.drivers import State, probe
from gpu_magic.process.environment import Program, program, variables_now
from gpu_magic.process.given import Given, Grant
from gpu_magic.process.guard import Guard, judge_process
from gpu_magic.process.mask import NAMES, By, Flaw, Note, Reading, Variables, names_of
from gpu_magic.process.session import Session, current
from gpu_magic.process.visible import in_force, read_visible
from gpu_magic.process.watch import cuda_watch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Self

    from gpu_magic.devices.model import Claim, Device, Gpu, OtherGpus
    from gpu_magic.devices.problems import Problem
    from gpu_magic.frameworks.target import LogicalDevice

__all__ = ["Snapshot", "ask_guard", "read_for_auto", "read_machine"]

# Looks at utilization after the first one, and the pause before each of them.
_LOOKS = 2
_BETWEEN_LOOKS = 0.25  # seconds


@dataclass(frozen=True, repr=False)
class Snapshot:
    """The machine at one moment, as a process sees it.

    Parameters
    ----------
    machine
        The GPUs with their figures.
    inherited, now
        The variables that name GPUs, at the start of the process and now.
    grant
        The GPUs that a scheduler or a container gave to the process.
    guard
        Whether the process can still change its GPUs.
    launched
        The claims for commands and engines that the process has launched, each after the device's identity.
    claimed
        The identities of the devices that the process has claimed.
    waiting
        How many processes of all users wait for GPUs.
    program
        The kind of the process.
    is_as_begun
        Whether the variables are those that were chosen when the kernel started.
    by
        How users want the variables to name GPUs (`c.GpuMagics.by`).
    chosen
        The latest choice of the process, as it was asked for.
    replaced
        The variables that a choice has set, and those that other code has set since. None: the choice stands.

    """

    machine: Inventory
    inherited: Variables = Variables()  # noqa: RUF009 - it is immutable
    now: Variables = Variables()  # noqa: RUF009
    grant: Grant = Grant()  # noqa: RUF009
    guard: Guard = Guard(State.ABSENT)  # noqa: RUF009
    launched: tuple[tuple[str, Claim], ...] = ()
    claimed: frozenset[str] = frozenset()
    waiting: int = 0
    program: Program = "kernel"
    is_as_begun: bool = False
    by: By | None = None
    chosen: object = None
    replaced: tuple[Variables, Variables] | None = None

    @classmethod
    def of(cls, session: Session, machine: Inventory, state: State | None = None) -> Self:
        """Return what a choice decides by, on a machine that was read. The rest is only shown: see `take`."""
        return cls(
            machine,
            session.inherited,
            variables_now(),
            session.grant,
            judge_process(machine, cuda_watch.look() if state is None else state),
            claimed=session.claims.held,
            by=session.by,
            chosen=session.chosen,
        )

    @classmethod
    def take(cls, session: Session, state: State | None = None) -> Self:
        """Read the machine as this process sees it.

        On any thread but the main one, the caller must pass the state from `probe`. Without it, the watch
        would note that the cell that runs on the main thread started CUDA.
        """
        with session.access.opened():
            found = cls.of(session, read_machine(session), state)
            waiting = count_waiting(session.access)
        return replace(
            found,
            launched=tuple(session.claims.of_commands()),
            waiting=waiting,
            program=program(),
            is_as_begun=found.now == session.begun_with,
            replaced=session.environment.replaced(),
        )

    def __iter__(self) -> Iterator[Gpu]:
        return iter(self.machine)

    def __len__(self) -> int:
        return len(self.machine)

    def __getitem__(self, index: int) -> Gpu:
        return self.machine[index]

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs in the order of nvidia-smi, or of rocm-smi."""
        return self.machine.gpus

    @property
    def devices(self) -> tuple[Device, ...]:
        """Every GPU and MIG instance that has an identity."""
        return self.machine.devices

    @property
    def driver_version(self) -> str | Unknown:
        """The driver's version."""
        return self.machine.driver_version

    @property
    def cuda_version(self) -> str | Unknown:
        """The newest CUDA version that the driver supports. UNKNOWN for AMD."""
        return self.machine.cuda_version

    @property
    def simulated(self) -> str:
        """The profile of a simulated machine. Empty for a real one."""
        return self.machine.simulated

    @property
    def problem(self) -> Problem | None:
        """Why gpu_magic could read nothing. None if it read the GPUs."""
        return self.machine.problem

    @property
    def limitation(self) -> Problem | None:
        """Why gpu_magic could read only names and UUIDs. Else None."""
        return self.machine.limitation

    @property
    def others(self) -> OtherGpus | None:
        """The GPUs of the other vendor. None: there are none, or they cannot be read."""
        return self.machine.others

    @cached_property
    def given(self) -> Given:
        """The devices that the process was given."""
        return Given(self.machine, self.inherited, self.grant)

    @cached_property
    def visible(self) -> tuple[Device | str, ...] | Unknown:
        """The devices of `cuda:0`, `cuda:1`, …. The UUID of a device that NVML does not list."""
        if not self.guard.can_change:
            return self.guard.devices if self.guard.is_known else UNKNOWN
        return _named(self._by_variables.devices)

    @cached_property
    def parked(self) -> Mapping[LogicalDevice, int]:
        """The bytes that the process has parked, by the GPU that they were on. Looked at when first asked."""
        module = sys.modules.get("gpu_magic.process.parked")
        return module.parked.nbytes() if module is not None else {}

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """What is wrong with the variables."""
        seen, guard, notes = self._by_variables, self.guard, list(self._by_variables.notes)
        if self.now != self.inherited and in_force(self.inherited, self.machine):
            notes += [note._replace(is_past=True) for note in self.given.reading.notes]
        at_start = self.given.host_numbers if self.now == self.inherited else None
        notes += filter(None, [at_start, self.given.contradiction])
        devices = _named(seen.devices)
        is_changed = devices is not UNKNOWN and tuple(one.identity for one in devices) != guard.uuids
        if guard.state is State.FROZEN and guard.is_known and is_changed:
            why = (
                f"{names_of(guard.vendor)[0]} was changed after {guard.runtime} started. {guard.keeps}. New "
                "processes use the new value, and frameworks may count by it."
            )
            notes.append(Note(why, Flaw.CHANGED))
        if self.replaced and guard.can_change:
            notes.append(self._in_place_of_choice(*self.replaced))
        return tuple(notes)

    def _in_place_of_choice(self, chosen: Variables, now: Variables) -> Note:
        """Return what became of a choice that other code has changed."""
        devices = read_visible(chosen, self.machine).devices
        changes = zip(NAMES, chosen, now, strict=True)
        name, value = next((name, value) for name, before, value in changes if before != value)
        what = f"{name}={value} was set" if value is not None else f"{name} was removed"
        if devices is UNKNOWN:
            return Note(f"{what} after you chose. Choose again.", Flaw.REPLACED)
        numbers = ",".join(device.number_text for device in devices) or "none"
        numbers = "reset" if chosen == self.inherited else numbers
        new = _named(self._by_variables.devices)
        keep = ""
        if new is not UNKNOWN and not self.given.outside(new):
            keep = ",".join(device.number_text for device in new) or "none"
        is_other = keep not in ("", numbers)  # the same GPUs in another CUDA_DEVICE_ORDER
        advice = f"To restore: %gpus {numbers}{f'. To keep it: %gpus {keep}' * is_other}"
        return Note(f"{what} after %gpus {numbers}.", Flaw.REPLACED, advice)

    @cached_property
    def _by_variables(self) -> Reading:
        return read_visible(self.now, self.machine)

    def ordinal(self, device: Device) -> int | Unknown | None:
        """Return the i of `cuda:i` of a device. None if it is not visible, UNKNOWN if that is unknown."""
        if self.visible is UNKNOWN:
            return UNKNOWN
        names = (one if isinstance(one, str) else one.identity for one in self.visible)
        return next((place for place, name in enumerate(names) if name == device.identity), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the GPUs as values for JSON. See `Inventory.to_dict`."""
        return self.machine.to_dict()


def _named(devices: tuple[Device, ...] | Unknown) -> tuple[Device, ...] | Unknown:
    """Return the devices. UNKNOWN if one of them has no identity."""
    return UNKNOWN if devices is UNKNOWN or not all(device.identity for device in devices) else devices


def ask_guard(session: Session) -> Guard:
    """Ask whether a choice can still take effect.

    GPUs are read only to name those that the process keeps, or if there may be AMD GPUs.
    """
    state = cuda_watch.look()
    is_needed = state is State.FROZEN or session.reader.reads_amd
    return judge_process(read_machine(session) if is_needed else Inventory(), state)


def read_machine(session: Session) -> Inventory:
    """Read the machine's GPUs with their figures, the claims of other processes, and idle times."""
    machine = with_notebooks(session.reader.inventory().with_claims(session.claims.others()))
    return session.reader.idleness.note(machine, time.monotonic())


def read_for_auto(session: Session) -> Inventory:
    """Read the machine's GPUs for `auto`, so that a GPU that rests only for a moment does not look free.

    All is as the last of three looks within half a second shows it, but the utilization is the highest of the
    three. NVML's sampling period is between a sixth of a second and a second (`nvmlUtilization_t`).
    """
    inventory = read_machine(session)
    if not inventory.problem and len(inventory.devices) > 1:  # with one device, nothing is to be picked
        for _ in range(_LOOKS):
            time.sleep(paced(_BETWEEN_LOOKS))
            inventory = read_machine(session).with_highest(inventory)
    return inventory


def _publish_activity(is_shown: bool) -> None:
    """Publish that a cell begins or ends. Print, once each, what has happened to claims and to a choice.

    A cell whose output is not shown leaves the news to the next cell.
    """
    session = current()
    session.claims.publish_activity()
    session.renew_claims()
    change = _follow_other_code(session, is_shown=is_shown)
    if is_shown:
        strayed = session.settings.strayed() if session.narrowed else []
        strayed = [f"{one} To restore: %gpus {session.narrowed} --in-process" for one in strayed]
        for text in filter(None, [session.lost_claims, change, *strayed]):
            print(text, file=sys.stderr)  # noqa: T201 - for the user of the cell
        session.lost_claims = ""


def _follow_other_code(session: Session, *, is_shown: bool) -> str:
    """If other code has changed a choice, claim what it names instead. Return what to tell; empty if nothing.

    It is told once for each change, and only if CUDA has not started: then the variables mean nothing.
    """
    replaced = session.environment.replaced()
    if replaced is None:
        session.followed = session.reported = None  # the next change is news again
    known = session.reported if is_shown else session.followed
    if replaced is None or replaced == known or not probe().can_change:
        return ""
    try:
        machine = session.reader.inventory()
    except GpuMagicError:  # the next cell's end asks again
        return ""
    devices = read_visible(replaced[1], machine).devices if in_force(replaced[1], machine) else ()
    if session.claims.held and devices is not UNKNOWN:
        session.claims.hold([device.identity for device in devices], waits=False)
    session.followed = replaced
    if not is_shown:
        return ""
    session.reported = replaced
    notes = replace(Snapshot.of(session, machine), replaced=replaced).notes
    return "".join(str(note) for note in notes if note.flaw is Flaw.REPLACED)


cuda_watch.on_activity = _publish_activity  # whatever claims or chooses has loaded this module
