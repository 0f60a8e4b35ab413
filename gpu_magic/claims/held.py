"""The claims of this process, and those of others as it sees them."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from contextlib import contextmanager
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from gpu_magic.claims.files import publish, read, withdraw
from gpu_magic.claims.folder import NoFolder, open_folder
from gpu_magic.claims.lock import turn
from gpu_magic.devices.claim import Claim
from gpu_magic.devices.processes import descends_from
from gpu_magic.devices.unknown import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Claims", "PickedTwiceError"]


class PickedTwiceError(Exception):
    """Two processes have picked the same GPU at the same moment."""


class Claims:
    """What this process has claimed for one purpose: its own choice, or a command that it has launched.

    They end with the process, however that ends, with `release`, and with this object.

    Parameters
    ----------
    purpose
        What a launched command is; empty for the process itself.
    is_shared
        Whether other processes see them, and theirs are seen. A simulation of one process has none.

    Attributes
    ----------
    are_wanted
        Whether choices claim GPUs where they do not say.

    """

    def __init__(self, purpose: str = "", *, is_shared: bool = True) -> None:
        self.are_wanted = True
        self.is_shared = is_shared and sys.platform == "linux"
        self._purpose, self._pid = purpose, os.getpid()
        self._lock = threading.Lock()
        # By UUID: when it was claimed, and the file's name and the descriptor that keeps it.
        self._files: dict[str, tuple[float, str, int]] = {}
        weakref.finalize(self, _withdraw, self._files, self._pid, self.is_shared)
        _all.add(self)

    @property
    def held(self) -> frozenset[str]:
        """The UUIDs of the devices that are claimed."""
        return frozenset(self._files)

    def others(self) -> dict[str, tuple[Claim, ...]]:
        """Return the claims of others, by the UUID of the device.

        A process that this one has started, or that has started it, works with it and is no other.
        """
        return _by_uuid(
            found for found in self._read() if not _is_ours(found[1]) and not _has_started_us(found[1])
        )

    def taken(self) -> dict[str, tuple[Claim, ...]]:
        """Return what `auto` keeps off: others' claims, and those for what this process has started."""
        of_commands = [
            (uuid, Claim("this kernel", since, self._pid, other._purpose))  # noqa: SLF001
            for other in tuple(_all)
            if other._purpose and other is not self and other._pid == self._pid  # noqa: SLF001
            for uuid, (since, _, _) in tuple(other._files.items())  # noqa: SLF001
        ]
        of_processes = [
            (uuid, replace(claim, owner="this kernel") if _is_ours(claim) else claim)
            for uuid, claim in self._read()
            if not _has_started_us(claim)
        ]
        return _by_uuid([*of_commands, *of_processes])

    @contextmanager
    def turn(self, seconds: float) -> Iterator[None]:
        """Run a block while no other process of the machine runs one, so that two do not choose the same.

        After so many seconds it is run all the same: see `lock.turn`.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(NoFolder):
                folder = stack.enter_context(_folder(self.is_shared, self._pid, make=True))
                stack.enter_context(turn(folder, seconds))
            yield

    def hold(self, uuids: Iterable[str]) -> str:
        """Claim these devices and no others.

        Interrupted, it has the claims that it had before, and perhaps some of these.

        Returns
        -------
        str
            Why others can't see it, as it goes on after "Others can't see it:"; empty where they can.

        """
        wanted = list(uuids)
        problem = self._publish(wanted)
        self._keep(wanted)
        return problem

    def hold_alone(self, uuids: Iterable[str]) -> str:
        """Claim these devices as `hold` does, where nobody else has claimed one of them.

        Of processes that do this at one moment, each claims first and looks then: none can miss another.

        Raises
        ------
        PickedTwiceError
            Another process has; the claims are as before.

        """
        before, wanted = self.held, list(uuids)
        kept: Iterable[str] = before
        try:
            problem = self._publish(wanted)
            if not self.others().keys().isdisjoint(set(wanted) - before):
                raise PickedTwiceError
            kept = wanted
        finally:  # after an interrupt, too
            self._keep(kept)
        return problem

    def release(self) -> None:
        """End them all."""
        self._keep(())

    def _publish(self, wanted: Iterable[str]) -> str:
        """Claim devices besides those that are claimed; return why others can't see it."""
        with self._lock:
            missing = [uuid for uuid in wanted if uuid not in self._files]
            if not missing:
                return ""
            try:
                with _folder(self.is_shared, self._pid, make=True) as folder:
                    for uuid in missing:
                        self._files[uuid] = (time.time(), *publish(folder, uuid, _what_this_is()))
            except NoFolder as error:
                return str(error)
            except OSError as error:
                return f"no file can be made ({error.strerror})"
        return ""

    def _keep(self, wanted: Iterable[str]) -> None:
        """End all claims but these."""
        with self._lock:
            _withdraw(self._files, self._pid, self.is_shared, wanted)

    def _read(self) -> Iterator[tuple[str, Claim]]:
        with contextlib.suppress(NoFolder, OSError), _folder(self.is_shared, self._pid, make=False) as folder:
            yield from read(folder)


_all: weakref.WeakSet[Claims] = weakref.WeakSet()


@contextmanager
def _folder(is_shared: bool, pid: int, *, make: bool) -> Iterator[int]:
    if not is_shared or os.getpid() != pid:  # a forked child has claimed nothing
        raise NoFolder
    folder = open_folder(make=make)
    try:
        yield folder
    finally:
        os.close(folder)


def _withdraw(
    files: dict[str, tuple[float, str, int]],
    pid: int,
    is_shared: bool,
    wanted: Iterable[str] = (),
) -> None:
    """End claims, but for those that are still wanted."""
    ended = files.keys() - wanted
    if not ended or os.getpid() != pid:
        return
    with contextlib.ExitStack() as stack:
        folder = None
        with contextlib.suppress(NoFolder):
            folder = stack.enter_context(_folder(is_shared, pid, make=False))
        for uuid in ended:
            _, name, file = files.pop(uuid)
            withdraw(folder, name, file)


def _by_uuid(found: Iterable[tuple[str, Claim]]) -> dict[str, tuple[Claim, ...]]:
    claims: dict[str, tuple[Claim, ...]] = {}
    for uuid, claim in found:
        claims[uuid] = (*claims.get(uuid, ()), claim)
    return claims


def _is_ours(claim: Claim) -> bool:
    return claim.pid is not UNKNOWN and descends_from(claim.pid, (os.getpid(),))


def _has_started_us(claim: Claim) -> bool:
    return claim.pid is not UNKNOWN and descends_from(os.getpid(), (claim.pid,))


def _what_this_is() -> str:
    """Return the name of this process's notebook, or of its script; empty where it has none."""
    name = PurePath(os.environ.get("JPY_SESSION_NAME") or sys.argv[0]).name
    return "" if name in ("-c", "-m", "__main__.py", "ipykernel_launcher.py") else name
