"""The claims and the places in line of this process and of other processes."""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
import time
import weakref
from contextlib import ExitStack, suppress
from pathlib import PurePath
from random import SystemRandom
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from gpu_magic.claims.folder import LONGEST_NAME, PLACE, Access, Found, NoFolder, OwnFile, read_files
from gpu_magic.devices.model import UNKNOWN, Claim, Unknown
from gpu_magic.devices.notebooks import can_be_renamed, notebook_here
from gpu_magic.devices.pace import paced
from gpu_magic.devices.processes import ancestors_of, is_this_process
from gpu_magic.errors import NotFreeError
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

__all__ = ["Claims", "PickedTwiceError", "PlaceInLine", "Taken", "count_waiting"]

T = TypeVar("T")
Taken: TypeAlias = "Mapping[str, tuple[Claim, ...]]"  # by the UUID of the device

_LONGEST_TURN = 2.0  # seconds to wait for other processes' turns. A turn takes about a millisecond
# If processes cannot take turns and claim the same GPUs: the attempts, and the longest pause in seconds.
_ATTEMPTS, _BETWEEN = 20, 0.1
_BETWEEN_NAMES = 30.0  # seconds between two looks at the name of the notebook
_lock = threading.RLock()  # while a thread changes the files of this process
_naming: threading.Event | None = None  # ends the thread that keeps the names in claims. None: there is none
_random = SystemRandom()  # so that notebooks with the same seed do not try at the same moments
_log = logging.getLogger("gpu_magic.claims")


def _renew_lock() -> None:
    global _lock, _naming
    _lock, _naming = threading.RLock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class PickedTwiceError(Exception):
    """Two processes have picked the same GPU at the same moment."""


class Claims:
    """The claims of this process for one purpose: its own choice, or a command that it has launched.

    The claims end with the process, with `release`, or with this object.
    """

    def __init__(
        self,
        purpose: str = "",
        access: Access | None = None,
        is_at_work: Callable[[], bool | None] = lambda: None,
        is_parked: Callable[[], bool] = lambda: False,
    ) -> None:
        self.are_wanted = True  # c.GpuMagics.claims
        self._is_at_work = is_at_work  # whether a cell or the command runs. None: no cells
        self.is_parked = is_parked  # whether all that variables held on GPUs is in the host's memory
        self._purpose, self._access = purpose, access or Access()
        self._files: dict[str, OwnFile] = {}  # by the UUID of the device
        weakref.finalize(self, _withdraw, self._files, self._files, self._access)
        _all.add(self)

    @property
    def held(self) -> frozenset[str]:
        """The UUIDs of the devices whose claims other users can see."""
        return frozenset(uuid for uuid, file in self._files.copy().items() if file.is_there)

    def others(self) -> dict[str, tuple[Claim, ...]]:
        """Return the claims of other processes, by the UUID of the device.

        Ancestors and descendants of this process do not count as other processes.
        """
        return _by_uuid(found for found in self._read() if not _is_this_process(found[1].pid))

    def taken(self) -> dict[str, tuple[Claim, ...]]:
        """Return the claims that `auto` avoids: others' claims, and those of this process's commands."""
        of_processes = [
            (
                uuid,
                claim._replace(owner="this kernel", is_same_user=False)
                if _is_this_process(claim.pid)
                else claim,
            )
            for uuid, claim in self._read()
        ]
        return _by_uuid([*self.of_commands(), *of_processes])

    def everybodys(self) -> dict[str, tuple[Claim, ...]]:
        """Return the claims of all other processes except the ancestors of this one."""
        return _by_uuid(self._read())

    def of_commands(self) -> list[tuple[str, Claim]]:
        """Return the UUID and the claim of each device that this process has claimed for commands."""
        return [
            (uuid, Claim("this kernel", file.since, os.getpid(), other._purpose))  # noqa: SLF001
            for other in _all
            if other._purpose and other is not self and other._access.pid == os.getpid()  # noqa: SLF001
            for uuid, file in dict(other._files).items()  # noqa: SLF001
        ]

    def hold(self, uuids: Iterable[str], *, unclaimed: bool = False, waits: bool = True) -> str:
        """Claim exactly these devices. Return why other users cannot see the claims; empty if they can.

        With `unclaimed`, it raises PickedTwiceError if another process that is not parked has claimed one of
        the devices, and the claims stay as before. Each process publishes its claims before it reads those of
        the others, so two processes cannot miss each other. `waits` is as for `Access.folder`.
        """
        with _lock:
            before, wanted, held = self._files.copy(), frozenset(uuids), self.held
            if wanted == before.keys() == held:  # nothing changes
                return ""
            since = {uuid: file.since for uuid, file in before.items()}  # a lost claim keeps its time
            made = {uuid: OwnFile(uuid, since.get(uuid)) for uuid in wanted - held}
            try:
                problem = self._publish(made.values(), waits=waits)
                shared = made if problem is None else {}
                if unclaimed and any(
                    uuid in made and not all(claim.is_parked for claim in claims)
                    for uuid, claims in self.others().items()
                ):
                    raise PickedTwiceError
                self._files.update(shared)
                for uuid in before.keys() - wanted:
                    del self._files[uuid]
            finally:  # also after an interrupt
                for files in made, before:
                    gone = [uuid for uuid, file in files.items() if self._files.get(uuid) is not file]
                    _withdraw(files, gone, self._access)
            self.publish_activity()
            _follow_names()
        for what, changed in (
            ("Claimed", shared.keys() - since.keys()),
            ("Claimed again", shared.keys() & since.keys()),
            ("Claim ended", since.keys() - wanted),
        ):
            if changed:
                _log.info("%s: %s", what, ", ".join(sorted(changed)))
        if problem:
            _log.debug("Other users cannot see a claim: %s", problem)
        return problem or ""

    def _publish(self, files: Collection[OwnFile], *, waits: bool) -> str | None:
        """Make files. Return why they cannot be shared (empty if that is off), or None if they are."""
        try:
            if files:
                with self._access.folder(make=True, waits=waits) as folder:
                    for file in files:
                        file.publish(folder, _notebook())
        except NoFolder as error:
            return str(error)
        except OSError as error:
            return f"no file can be written ({error.strerror})"
        return None

    def rename(self, notebook: str) -> None:
        """Publish the claims that other users can see under another name of the notebook, if it has changed.

        Their idle time starts again, because readers only trust a time that the owner cannot set.
        """
        held = self.held
        before = {
            uuid: file for uuid, file in self._files.items() if uuid in held and file.notebook != notebook
        }
        if not before:
            return  # a file whose mode is set again would lose its idle time
        made = {uuid: OwnFile(uuid, file.since) for uuid, file in before.items()}
        if self._publish(made.values(), waits=False) is None:
            self._files.update(made)
            _withdraw(before, tuple(before), self._access)
            self.publish_activity()
        else:
            _withdraw(made, tuple(made), self._access)

    def release(self) -> None:
        """End all claims."""
        self.hold(())

    def renew(self) -> tuple[frozenset[str], str]:
        """Claim again what other users can no longer see, also what this process has claimed for commands.

        Return the UUIDs of the devices, and why other users still cannot see the claims. It runs around each
        cell, so it does not wait.
        """
        lost, problem = frozenset[str](), ""
        for one in _all:
            with _lock:  # another thread can end the claims of a command
                if one._access is self._access and (gone := one._files.keys() - one.held):  # noqa: SLF001
                    lost |= gone
                    problem = one.hold(one._files, waits=False) or problem  # noqa: SLF001
        return lost, problem

    def publish_activity(self) -> None:
        """Publish that a cell has begun or ended, and when, and whether the process is parked.

        Only one file is changed unless that is news, because this runs around each cell.
        """
        with _lock:  # another thread can close the file's descriptor, whose number a user's file then gets
            is_parked, files = self.is_parked(), tuple(self._files.values())
            for file in files[:1]:
                file.publish_activity(self._is_at_work(), is_parked=is_parked)
            for file in files[1:]:
                if file.is_parked != is_parked:
                    file.publish_activity(None, is_parked=is_parked)

    def pick_in_turn(self, pick: Callable[[], T], *, waits: bool = True) -> T:
        """Call `pick` while no other process of the machine picks, and return its result.

        `pick` reads the claims, and claims its devices by `hold` with `unclaimed`. With `waits`, this waits
        for its turn and between attempts. It raises NotFreeError if other processes claimed the same devices
        at each attempt.
        """
        for attempt in range(_ATTEMPTS if waits else 1):
            with self._access.turn(_LONGEST_TURN if waits and not attempt else 0), suppress(PickedTwiceError):
                return pick()
            if waits:
                time.sleep(_random.uniform(0, _BETWEEN))
        who = "other processes are claiming the same GPUs"
        raise NotFreeError(f"Nothing was picked because {who}.", who, instead="again")

    def _read(self) -> Iterator[tuple[str, Claim]]:
        """Yield the claims of other processes, except ancestors of this one, with the UUID of the device.

        Of several claims of a process on a device, it yields only the earliest, so that no process fills the
        tables of all users. It is parked only if all of them are: a command can use the device.
        """
        with suppress(NoFolder, OSError), self._access.folder() as folder:
            found = sorted(read_files(folder), key=lambda one: one.claim.since)
            idle: dict[int | Unknown, int] = {}  # a process is at work if one of its claims says so
            first: dict[tuple[object, ...], Found] = {}
            for one in found:
                claim = one.claim
                if claim.idle is not UNKNOWN:
                    idle[claim.pid] = min(claim.idle, idle.get(claim.pid, claim.idle))
                process = (claim.container, claim.notebook) if claim.pid is UNKNOWN else claim.pid
                earliest = first.setdefault(key := (one.what, claim.owner, process), one)
                if earliest.claim.is_parked and not claim.is_parked:
                    first[key] = earliest._replace(claim=earliest.claim._replace(is_parked=False))
            above = set(ancestors_of(os.getpid())) if first else set()
            for uuid, claim, *_ in first.values():
                if claim.pid is UNKNOWN:
                    yield uuid, claim
                elif claim.pid not in above:
                    yield uuid, claim._replace(idle=idle.get(claim.pid, UNKNOWN))


class _Living(Generic[T]):
    """Objects that are not kept alive. Unlike a WeakSet, it can change while another thread iterates."""

    def __init__(self) -> None:
        self._references: set[weakref.ref[T]] = set()

    def add(self, one: T) -> None:
        self._references.add(weakref.ref(one, self._references.discard))

    def __iter__(self) -> Iterator[T]:
        return (one for reference in self._references.copy() if (one := reference()) is not None)


_all: _Living[Claims] = _Living()


def _follow_names() -> None:
    """Have a thread that keeps the notebook's name in claims while there are any. Call it under the lock."""
    global _naming  # noqa: PLW0603 - a process has one such thread
    is_needed = can_be_renamed() and any(one._files for one in _all if one._access.pid == os.getpid())  # noqa: SLF001
    if is_needed and _naming is None:
        _naming = threading.Event()
        threading.Thread(target=_keep_names, args=(_naming,), name="gpu_magic-names", daemon=True).start()
    elif not is_needed and _naming is not None:
        _naming.set()
        _naming = None


def _keep_names(end: threading.Event) -> None:
    while not end.wait(paced(_BETWEEN_NAMES)):
        notebook = _notebook()
        with _lock:
            for one in _all:
                if one._access.pid == os.getpid() and not end.is_set():  # noqa: SLF001
                    one.rename(notebook)
            _follow_names()  # also the claims of an object that is gone have ended


class PlaceInLine:
    """The place of this process in the line of all users who wait for GPUs, by the order of arrival.

    The place ends with the process, with `leave`, or with this object.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._files: dict[str, OwnFile] = {}
        weakref.finalize(self, _withdraw, self._files, self._files, access)
        _places.add(self)

    def join(self, wants: str) -> None:
        """Join the line, unless the process has a place. Without a shared folder there is no line."""
        if self._files:
            return
        file = self._files[PLACE] = OwnFile(PLACE)
        try:
            with self._access.folder(make=True) as folder:
                file.publish(folder, _notebook(), wants)
        except (NoFolder, OSError):  # the later choice reports the reason
            self.leave()

    def ahead(self) -> list[Found]:
        """Return the places of other processes before this one, in order. Without a place, return all."""
        own = self._files[PLACE].arrival if self._files else (math.inf, "")
        found = [one for one in _others(self._access) if one.arrival < own]
        return sorted(found, key=lambda one: one.arrival)

    def leave(self) -> None:
        """Leave the line."""
        _withdraw(self._files, self._files, self._access)


_places: _Living[PlaceInLine] = _Living()


def count_waiting(access: Access) -> int:
    """Return how many places in line there are on this machine, including those of this process."""
    own = [one for one in tuple(_places) if one._files and one._access.pid == os.getpid()]  # noqa: SLF001
    return len(own) + len(_others(access))


def _others(access: Access) -> list[Found]:
    """Return the places of other processes."""
    with suppress(NoFolder, OSError), access.folder() as folder:
        return list(read_files(folder, places=True))
    return []


def _withdraw(files: dict[str, OwnFile], uuids: Iterable[str], access: Access) -> None:
    ended = [files.pop(uuid, None) for uuid in tuple(uuids)]  # two threads can end the claims of a command
    if not ended or os.getpid() != access.pid:
        return
    with ExitStack() as stack:
        folder = None
        with suppress(NoFolder):
            folder = stack.enter_context(access.folder())
        for file in filter(None, ended):
            file.withdraw(folder)


def _notebook() -> str:
    """Return the name of this process's notebook or script. Empty if there is none."""
    name = PurePath(notebook_here() or sys.argv[0]).name
    is_nameless = name in ("-", "-c", "-m", "__main__.py", "ipykernel_launcher.py")
    return "" if is_nameless else shortened(name, LONGEST_NAME)


def _is_this_process(pid: int | Unknown) -> bool:
    """Return whether a process is this one or a descendant."""
    return pid is not UNKNOWN and is_this_process(pid)


def _by_uuid(found: Iterable[tuple[str, Claim]]) -> dict[str, tuple[Claim, ...]]:
    claims: dict[str, tuple[Claim, ...]] = {}
    for uuid, claim in found:
        claims[uuid] = (*claims.get(uuid, ()), claim)
    return claims
