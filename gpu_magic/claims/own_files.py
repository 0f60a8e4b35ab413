"""The files of this process in the folder for one purpose."""

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
    """Files by a key. They end with the process, however that ends, and with this object.

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
    def by_key(self) -> dict[str, OwnFile]:
        """The files."""
        with self._lock:
            return dict(self._files)

    def add(self, folder: int, key: str, about: str, *lines: str) -> None:
        """Make a file, where there is none with this key.

        Raises
        ------
        OSError
            It can't be made.

        """
        with self._lock:
            if key in self._files:
                return
            # It is known before it is there: an interrupt leaves none behind that nobody knows.
            made = self._files[key] = OwnFile(time.time(), new_name(about), None)
            try:
                self._files[key] = made._replace(descriptor=publish(folder, made.name, *lines))
            except BaseException:
                withdraw(folder, made.name, None)
                self._files.pop(key)
                raise

    def keep(self, keys: Iterable[str]) -> None:
        """Remove all files but those with these keys."""
        with self._lock:
            _withdraw(self._files, self._access, keys)


def _withdraw(files: dict[str, OwnFile], access: Access, keys: Iterable[str] = ()) -> None:
    ended = files.keys() - keys
    if not ended or os.getpid() != access.pid:
        return
    with contextlib.ExitStack() as stack:
        folder = None
        with contextlib.suppress(NoFolder):
            folder = stack.enter_context(access.folder())
        for key in ended:
            _, name, descriptor = files.pop(key)
            withdraw(folder, name, descriptor)
