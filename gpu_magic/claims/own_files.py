"""The claims that this process has made for one purpose, as files in the folder."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.claims.files import new_name, publish, withdraw
from gpu_magic.claims.folder import Access, NoFolder

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["OwnFile", "OwnFiles"]


class OwnFile(NamedTuple):
    """A file: when it was made, in seconds since the epoch, its name, and the descriptor that keeps it.

    The descriptor is None while the file is made.
    """

    since: float
    name: str
    descriptor: int | None


class OwnFiles:
    """Files by the UUID of the device. They end with the process, however that ends, and with this object.

    Its methods can be called on any thread.

    Parameters
    ----------
    access
        To the folder.

    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._files: dict[str, OwnFile] = {}
        weakref.finalize(self, _withdraw, self._files, access)

    @property
    def by_uuid(self) -> dict[str, OwnFile]:
        """The files."""
        with self._lock:
            return dict(self._files)

    def add(self, folder: int, uuid: str, notebook: str) -> None:
        """Make a file, where there is none for this device.

        Raises
        ------
        OSError
            It can't be made.

        """
        with self._lock:
            if uuid in self._files:
                return
            # It is known before it is there: an interrupt leaves none behind that nobody knows.
            made = self._files[uuid] = OwnFile(time.time(), new_name(uuid), None)
            try:
                self._files[uuid] = made._replace(descriptor=publish(folder, made.name, notebook))
            except BaseException:
                withdraw(folder, made.name, None)
                self._files.pop(uuid)
                raise

    def keep(self, uuids: Iterable[str]) -> None:
        """Remove all files but those for these devices."""
        with self._lock:
            _withdraw(self._files, self._access, uuids)


def _withdraw(files: dict[str, OwnFile], access: Access, kept: Iterable[str] = ()) -> None:
    ended = files.keys() - kept
    if not ended or os.getpid() != access.pid:
        return
    with contextlib.ExitStack() as stack:
        folder = None
        with contextlib.suppress(NoFolder):
            folder = stack.enter_context(access.folder())
        for uuid in ended:
            _, name, descriptor = files.pop(uuid)
            withdraw(folder, name, descriptor)
