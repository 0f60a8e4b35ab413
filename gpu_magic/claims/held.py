"""The claims of this process, and those of others as it sees them."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from contextlib import contextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING

from gpu_magic.claims.files import publish, read, withdraw
from gpu_magic.claims.folder import NoFolder, open_folder
from gpu_magic.claims.lock import turn
from gpu_magic.devices.processes import descends_from
from gpu_magic.devices.unknown import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpu_magic.devices.claim import Claim

__all__ = ["Claims"]


class Claims:
    """What one process has claimed. Its claims end with it, however it ends, and with `release`.

    Parameters
    ----------
    is_shared
        Whether other processes see them, and theirs are seen. A simulation of one process has none.

    Attributes
    ----------
    are_wanted
        Whether choices claim GPUs where they do not say.

    """

    def __init__(self, *, is_shared: bool = True) -> None:
        self.are_wanted = True
        self._is_shared = is_shared and sys.platform == "linux"
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._files: dict[str, tuple[str, int]] = {}  # by UUID: the name, and the descriptor that keeps it

    @property
    def held(self) -> frozenset[str]:
        """The UUIDs of the devices that are claimed."""
        return frozenset(self._files)

    def others(self) -> dict[str, tuple[Claim, ...]]:
        """Return the claims of others, by the UUID of the device.

        A process that this one has started, or that has started it, works with it and is no other.
        """
        found: dict[str, tuple[Claim, ...]] = {}
        with contextlib.suppress(NoFolder, OSError), self._folder() as folder:
            for uuid, claim in read(folder):
                if not _is_kin(claim):
                    found[uuid] = (*found.get(uuid, ()), claim)
        return found

    @contextmanager
    def turn(self, seconds: float) -> Iterator[None]:
        """Run a block while no other process of the machine runs one, so that two do not choose the same.

        After so many seconds it is run all the same: see `lock.turn`.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(NoFolder):
                stack.enter_context(turn(stack.enter_context(self._folder()), seconds))
            yield

    def hold(self, uuids: Iterable[str]) -> str:
        """Claim these devices and no others.

        Returns
        -------
        str
            Why others can't see it, as it goes on after "GPUs can't be claimed here:"; empty where they can.

        """
        wanted, problem = list(uuids), ""
        with self._lock:
            try:
                with self._folder() as folder:
                    for uuid in wanted:
                        if uuid not in self._files:
                            self._claim(folder, uuid)
            except NoFolder as error:
                problem = str(error)
            except OSError as error:
                problem = f"no file can be made ({error.strerror})"
            self._withdraw(self._files.keys() - wanted)
        return problem if self._is_shared else ""

    def release(self) -> None:
        """End all claims."""
        with self._lock:
            self._withdraw(list(self._files))

    @contextmanager
    def _folder(self) -> Iterator[int]:
        if not self._is_shared or os.getpid() != self._pid:  # a forked child has claimed nothing
            raise NoFolder("this process shares none")
        folder = open_folder()
        try:
            yield folder
        finally:
            os.close(folder)

    def _claim(self, folder: int, uuid: str) -> None:
        if not self._files:
            atexit.register(self.release)
        self._files[uuid] = publish(folder, uuid, _what_this_is())

    def _withdraw(self, uuids: Iterable[str]) -> None:
        with contextlib.ExitStack() as stack:
            folder = None
            with contextlib.suppress(NoFolder):
                folder = stack.enter_context(self._folder())
            for uuid in uuids:
                withdraw(folder, *self._files.pop(uuid))
        if not self._files:
            atexit.unregister(self.release)


def _is_kin(claim: Claim) -> bool:
    me = os.getpid()
    return claim.pid is not UNKNOWN and (descends_from(claim.pid, (me,)) or descends_from(me, (claim.pid,)))


def _what_this_is() -> str:
    """Return the name of this process's notebook, or of its script; empty where it has none."""
    name = PurePath(os.environ.get("JPY_SESSION_NAME") or sys.argv[0]).name
    return "" if name in ("-c", "-m", "ipykernel_launcher.py") else name
