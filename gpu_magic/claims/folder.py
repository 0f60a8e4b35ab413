"""The folder in which processes of all users take turns, wait in turn and see claims, a locked file for each.

All users have to agree on the folder, so it follows from the machine: /run/lock if everybody can write there,
else /tmp. /run/lock is in memory, not private to a service (systemd's PrivateTmp), and not aged. Everybody
can make files in it, and only their owner, and that of the folder, can remove them ("sticky"). What other
users have put there is not trusted: no link is followed, and no file of theirs is written to.

The file system says who owns a file. The text is the UUID of the device, and the owner's word in the next
line. The mode of one of a process's files says whether a cell runs. When that has changed (st_ctime) is the
one time that its owner can't set. It was written (st_mtime) when the claim was made, if that can be true.

A place among those who wait is such a file without a UUID: PLACE, the owner's word, and what it waits for. It
never changes, so its st_ctime says who came first.

The lock is a POSIX record lock (fcntl(2)): it ends however its process ends, a forked child does not get it,
and F_GETLK tells all readers who has it. But it ends as soon as its process closes any descriptor of the
file, so a process never opens its own claims again.
"""

from __future__ import annotations

import math
import os
import re
import stat
import struct
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.model import UNKNOWN, Claim, Unknown
from gpu_magic.devices.processes import age_of, owner_name, start_of
from gpu_magic.text import shortened

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LONGEST_NAME", "PLACE", "Access", "Found", "NoFolder", "OwnFile", "read"]

LONGEST_NAME = 60  # characters of a notebook's name
PLACE = "place"  # older versions take no such file for a claim

_BASES = ("/run/lock", "/tmp")  # noqa: S108 - a folder for all users is what is wanted
_SHARED = stat.S_ISVTX | stat.S_IWOTH | stat.S_IXOTH
_BEING_MADE = 1.0  # seconds after which whoever makes a folder does not open it to all users any more
_LOOK_AGAIN = 0.002  # seconds

# A device's UUID or PLACE, and what is random.
_NAME = re.compile(rf"({PLACE}|[A-Za-z]+-[0-9A-Za-z-]{{1,80}})\.[0-9a-f]{{16}}")
_ABANDONED = 60.0  # seconds after which the process of a file that is not finished has ended
_LONGEST_FILE = 8192  # bytes
_MOST = 1024  # files of one user that are looked at: nobody can hide others' claims behind many of their own
# By whether a cell runs; None: there are no cells, or it is a version's that does not say.
_MODES = {None: 0o644, False: 0o744, True: 0o754}
_HAS_CELLS, _IN_CELL = stat.S_IXUSR, stat.S_IXGRP
_FLOCK = struct.Struct("hhqqi4x")  # on Linux with 64 bits: type, whence, start, length, process

# The device and the inode of this process's files, which it must not open again.
_ours: set[tuple[int, int] | None] = set()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ours.clear)  # a child has claimed nothing


class NoFolder(Exception):  # noqa: N818 - a reason, and no failure: GPUs can be chosen without claims
    """Claims can't be shared here: why, as a clause; empty if nobody wants it, or nobody has claimed."""


class Access:
    """The access of one process to the folder; a forked child has none, nor has a simulated process."""

    def __init__(self, *, is_shared: bool = True) -> None:
        self._is_shared = is_shared and sys.platform == "linux"
        self.pid = os.getpid()
        self._thread = threading.local()

    @contextmanager
    def folder(self, *, make: bool = False) -> Iterator[int]:
        """Run a block with a descriptor of the folder, also for blocks inside it; else raise NoFolder."""
        if not self._is_shared or os.getpid() != self.pid:
            raise NoFolder
        if (outer := getattr(self._thread, "folder", None)) is not None:
            yield outer
            return
        path, is_new = _path(), False
        try:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(path)  # noqa: PTH102
                    is_new = True
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not make:
                raise NoFolder from None
            what = "opened" if os.path.lexists(path) else "made"
            raise NoFolder(f"{path} cannot be {what} ({error.strerror})") from None
        try:
            if is_new:
                os.fchmod(folder, 0o1777)  # what mkdir is given goes through the umask
            until = time.monotonic() + _BEING_MADE
            while not _is_shared(found := os.fstat(folder)):
                is_being_made = make and abs(time.time() - found.st_ctime) < _BEING_MADE
                if not is_being_made or time.monotonic() >= until:
                    raise NoFolder(f"{path} is not open to all users. Its owner can run chmod 1777 {path}")
                time.sleep(_LOOK_AGAIN)
            self._thread.folder = folder
            yield folder
        finally:
            self._thread.folder = None
            os.close(folder)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Run a block that opens the folder once at most; also without one."""
        with ExitStack() as stack:
            with suppress(NoFolder):
                stack.enter_context(self.folder())
            yield

    @contextmanager
    def turn(self, seconds: float) -> Iterator[None]:
        """Run a block while no other process runs one, or after so many seconds without that.

        Whoever keeps the lock, or is stopped while having it, delays others and no more: what the block does
        has to be right also without it. An flock(2) needs no permission to write.
        """
        with ExitStack() as stack:
            with suppress(NoFolder, OSError):  # OSError: a file system without such locks
                folder, until = stack.enter_context(self.folder(make=True)), time.monotonic() + seconds
                while True:
                    try:
                        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        if time.monotonic() >= until:
                            break
                        time.sleep(_LOOK_AGAIN)
                    else:  # to close the descriptor is not enough: a forked child may share it
                        stack.callback(fcntl.flock, folder, fcntl.LOCK_UN)
                        break
            yield


def _path() -> str:
    """Return the path of the folder, which is the same for all users of a machine; else raise NoFolder."""
    if named := os.environ.get("GPU_MAGIC_CLAIMS"):
        if named == "off":
            raise NoFolder
        return named
    for base in _BASES:
        with suppress(OSError):
            if _is_shared(os.stat(base)):  # noqa: PTH116
                return os.path.join(base, "gpu_magic-claims")  # noqa: PTH118
    raise NoFolder("no folder is open to all users")


def _is_shared(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode) and found.st_mode & _SHARED == _SHARED


class Found(NamedTuple):
    """A file of another process."""

    what: str  # the UUID of a device, or PLACE
    claim: Claim
    order: tuple[int, str]  # who came first
    rest: str  # what else its owner has written


class OwnFile:
    """A claim or a place of this process: its name is known before the file is there, to remove it."""

    def __init__(self, what: str) -> None:
        self.since = time.time()
        self._what, self._name = what, f"{what}.{os.urandom(8).hex()}"
        self._descriptor: int | None = None
        self._inode: tuple[int, int] | None = None

    @property
    def order(self) -> tuple[float, str]:
        """As others see `Found.order`; behind all of them if the file can't be known any more."""
        file = self._opened()
        return (math.inf if file is None else os.fstat(file).st_ctime_ns), self._name

    def publish(self, folder: int, text: str) -> None:
        """Make the file, for all users to read; after an OSError, `withdraw` removes what is there.

        It is locked before others can open it, and before it has its name: a file that is found unlocked has
        lost its process.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = file = os.open(f".{self._name}", flags, 0o600, dir_fd=folder)
        self._inode = _identity(os.fstat(file))
        _ours.add(self._inode)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # keeps tidying away (tmpfiles.d(5), "Age")
        os.write(file, f"{self._what}\n{text}".encode())
        os.fchmod(file, _MODES[None])  # whatever the umask is
        os.rename(f".{self._name}", self._name, src_dir_fd=folder, dst_dir_fd=folder)

    def withdraw(self, folder: int | None) -> None:
        """Remove the file; without a folder, which can't be used any more, it stays behind, unlocked."""
        if folder is not None:
            for name in (self._name, f".{self._name}"):
                with suppress(OSError):  # somebody has tidied up
                    os.unlink(name, dir_fd=folder)
        if (file := self._opened()) is not None:
            os.close(file)
        _ours.discard(self._inode)

    def tell(self, is_at_work: bool | None) -> None:
        """Tell who reads the file that a cell begins or has ended now."""
        if (file := self._opened()) is not None:
            os.fchmod(file, _MODES[is_at_work])

    def _opened(self) -> int | None:
        """Return the descriptor, unless a cell has closed it, or it is another file's by now."""
        with suppress(OSError):
            if self._descriptor is not None and _identity(os.fstat(self._descriptor)) == self._inode:
                return self._descriptor
        return None


def read(folder: int, *, places: bool = False) -> Iterator[Found]:
    """Yield the claims of other processes, or their places among those who wait.

    What ended processes of this user have left is removed.
    """
    seen: Counter[int] = Counter()
    for name in os.listdir(folder):
        match = _NAME.fullmatch(name.removeprefix("."))
        if not match or (match[1] == PLACE) is not places:
            continue
        with suppress(OSError):  # it has ended meanwhile, or is something else
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            seen[found.st_uid] += 1
            if seen[found.st_uid] > _MOST or not stat.S_ISREG(found.st_mode) or _identity(found) in _ours:
                continue
            if name.startswith("."):
                if found.st_uid == os.geteuid() and time.time() - found.st_mtime > _ABANDONED:
                    os.unlink(name, dir_fd=folder)
            elif one := _read(folder, name, match[1]):
                yield one


def _read(folder: int, name: str, what: str) -> Found | None:
    """Return what a file says; None if the file is not one of ours, or its process has ended."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    file = os.open(name, flags, dir_fd=folder)
    try:
        found = os.fstat(file)
        is_own = found.st_uid == os.geteuid()
        if not stat.S_ISREG(found.st_mode) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return None
        # Only a lock for writing keeps a reader out, and takes the permission to write: no other user's lock
        # makes a file seem to be held.
        asked = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
        if kind == fcntl.F_UNLCK:
            if is_own:
                os.unlink(name, dir_fd=folder)
            return None
        text = os.read(file, _LONGEST_FILE).decode("utf-8", "replace")
        first, notebook, rest, *_ = (*text.split("\n"), "", "")
        if first != what:  # another name for a file says what its owner has not said
            return None
    finally:
        os.close(file)
    # A process in another PID namespace has the number 0: in a container, this user's number can be another
    # person's.
    is_seen, now, changed = pid > 0, time.time(), found.st_ctime
    age = age_of(start_of(pid)) if is_seen else UNKNOWN
    earliest = now - (time.clock_gettime(time.CLOCK_BOOTTIME) if age is UNKNOWN else age + 1)
    since = found.st_mtime if earliest <= found.st_mtime <= changed else changed
    idle: int | Unknown = UNKNOWN
    if found.st_mode & _HAS_CELLS:
        idle = 0 if found.st_mode & _IN_CELL else max(0, int(now - changed))
    owner, notebook = owner_name(found.st_uid), shortened(notebook, LONGEST_NAME)
    claim = Claim(owner, since, pid if is_seen else UNKNOWN, notebook, is_own and is_seen, idle)
    return Found(what, claim, (found.st_ctime_ns, name), rest)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
