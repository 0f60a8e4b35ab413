"""The claims of this process, and those of others as it sees them."""

from __future__ import annotations

import contextlib
import os
import weakref
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_magic.claims.files import read
from gpu_magic.claims.folder import Access, NoFolder
from gpu_magic.claims.lock import turn
from gpu_magic.claims.origin import LONGEST_NAME, has_started_us, is_ours, notebook_name
from gpu_magic.claims.own_files import OwnFiles
from gpu_magic.devices.claim import Claim
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.log import logger
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Claims", "PickedTwiceError"]

_log = logger("claims")


class PickedTwiceError(Exception):
    """Two processes have picked the same GPU at the same moment."""


class Claims:
    """What this process has claimed for one purpose: its own choice, or a command that it has launched.

    They end with the process, however that ends, with `release`, and with this object.

    Parameters
    ----------
    purpose
        What a launched command is; empty for the process itself.
    access
        To the folder in which other processes see them, and theirs are seen.

    Attributes
    ----------
    are_wanted
        Whether choices claim GPUs where they do not say.

    """

    def __init__(self, purpose: str = "", access: Access | None = None) -> None:
        self.are_wanted = True
        self._purpose, self._access = purpose, access or Access()
        self._files = OwnFiles(self._access)
        _all.add(self)

    @property
    def held(self) -> frozenset[str]:
        """The UUIDs of the devices that are claimed."""
        return frozenset(self._files.by_uuid)

    def others(self) -> dict[str, tuple[Claim, ...]]:
        """Return the claims of others, by the UUID of the device.

        A process that this one has started, or that has started it, works with it and is no other.
        """
        return _by_uuid(
            found for found in self._read() if not is_ours(found[1].pid) and not has_started_us(found[1].pid)
        )

    def taken(self) -> dict[str, tuple[Claim, ...]]:
        """Return what `auto` keeps off: others' claims, and those for what this process has started."""
        of_processes = [
            (uuid, replace(claim, owner="this kernel", is_own=False) if is_ours(claim.pid) else claim)
            for uuid, claim in self._read()
            if not has_started_us(claim.pid)
        ]
        return _by_uuid([*self.of_commands(), *of_processes])

    def of_commands(self) -> list[tuple[str, Claim]]:
        """Return the claims for what this process has launched, each behind the UUID of its device."""
        return [
            (uuid, Claim("this kernel", file.since, self._access.pid, other._purpose))  # noqa: SLF001
            for other in tuple(_all)
            if other._purpose and other is not self and other._access.pid == os.getpid()  # noqa: SLF001
            for uuid, file in other._files.by_uuid.items()  # noqa: SLF001
        ]

    @contextmanager
    def turn(self, seconds: float) -> Iterator[None]:
        """Run a block while no other process of the machine runs one, so that two do not choose the same.

        After so many seconds it is run all the same: see `lock.turn`.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(NoFolder):
                folder = stack.enter_context(self._access.folder(make=True))
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

    def _keep(self, uuids: Iterable[str]) -> None:
        ended = self.held.difference(uuids)
        self._files.keep(uuids)
        if ended:
            _log.info("Claim ended: %s", ", ".join(sorted(ended)))

    def _publish(self, wanted: Iterable[str]) -> str:
        """Claim devices besides those that are claimed; return why others can't see it."""
        if problem := self._add(wanted):
            _log.debug("Others can't see a claim: %s", problem)
        return problem

    def _add(self, wanted: Iterable[str]) -> str:
        if not (new := [uuid for uuid in wanted if uuid not in self.held]):
            return ""
        try:
            with self._access.folder(make=True) as folder:
                for uuid in wanted:
                    self._files.add(folder, uuid, notebook_name())
        except NoFolder as error:
            return str(error)
        except OSError as error:
            return f"no file can be made ({error.strerror})"
        _log.info("Claimed: %s", ", ".join(new))
        return ""

    def _read(self) -> Iterator[tuple[str, Claim]]:
        """Yield the claims of other processes, each behind the UUID of its device."""
        with contextlib.suppress(NoFolder, OSError), self._access.folder() as folder:
            for file in read(folder):
                # A container can have the same number for another person; from here it can't be seen into.
                is_own = file.uid == os.geteuid() and file.pid is not UNKNOWN
                notebook = shortened(file.notebook, LONGEST_NAME)
                yield file.uuid, Claim(file.owner, file.since, file.pid, notebook, is_own)


_all: weakref.WeakSet[Claims] = weakref.WeakSet()


def _by_uuid(found: Iterable[tuple[str, Claim]]) -> dict[str, tuple[Claim, ...]]:
    claims: dict[str, tuple[Claim, ...]] = {}
    for uuid, claim in found:
        claims[uuid] = (*claims.get(uuid, ()), claim)
    return claims
