"""The folder in which processes of all users publish claims, wait in line and take turns.

All users must agree on the folder, so the machine decides it: /run/lock if everybody can write there, else
/tmp. /run/lock is in memory, not private to a service (systemd's PrivateTmp), and not cleaned by age.
Everybody can make files in it. Only the owner of a file or of the folder can remove a file ("sticky"). Files
of other users are not trusted: gpu_magic follows no link and writes to no file of another user.

Each claim is a locked file. The file system knows its owner. The first line is the UUID of the device. The
next lines are as the owner wrote them: the name of the notebook, what a place in line waits for, and the PID
namespace of the process (its inode) with the host name. The mode of one file of each process, and of each
launched command, shows whether a cell or the command runs. A bit of the mode of each claim shows that the
process is parked: its variables are in the host's memory, so others can use the device. The last change of
the mode (st_ctime) is the only time that the owner cannot set. The time of writing (st_mtime) is set to the
time of the claim. Readers use it if it is plausible. If a notebook is renamed, a new file replaces that of
its claim.

A place in line is such a file with PLACE for the UUID. The file never changes, so its st_ctime gives the
order of arrival.

The lock is a POSIX record lock (fcntl(2)). It ends with its process, a forked child does not inherit it, and
F_GETLK gives all readers the PID of its holder. It also ends when the process closes any descriptor of the
file, so a process never opens its own claims again.

Containers can share the folder. F_GETLK then gives each reader the PID in its own PID namespace, or 0 if the
holder is not in it (Linux 4.14). So a PID is certain. No two PID namespaces with processes have the same
inode.
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
from gpu_magic.text import is_off, shortened

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LONGEST_NAME", "PLACE", "Access", "Found", "NoFolder", "OwnFile", "read_files"]

LONGEST_NAME = 60  # characters of a notebook's name
PLACE = "place"  # older versions do not read such a file as a claim

_BASES = ("/run/lock", "/tmp")  # noqa: S108 - the folder must be open to all users
_SHARED = stat.S_ISVTX | stat.S_IROTH | stat.S_IWOTH | stat.S_IXOTH
_BEING_MADE = 1.0  # seconds within which the process that made a folder opens it to all users
_LOOK_AGAIN = 0.002  # seconds

# A device's UUID, or the bus ID of a GPU without one (`0000:05:00.0`), or PLACE, and random digits.
_BUS_ID = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"
_NAME = rf"({PLACE}|{_BUS_ID}|[A-Za-z]+-[0-9A-Za-z-]{{1,80}})\.[0-9a-f]{{16}}"
_ABANDONED = 60.0  # seconds after which an unfinished file counts as abandoned
_LONGEST_FILE = 8192  # bytes
_MOST = 1024  # files read for each user, so that no user can hide other users' claims behind many files
# By whether a cell or a command runs. None: the process has no cells, or its version does not publish it.
_MODES = {None: 0o644, False: 0o744, True: 0o754}
_HAS_CELLS, _IN_CELL = stat.S_IXUSR, stat.S_IXGRP
_IS_PARKED = stat.S_IXOTH  # which older versions neither set nor read
_FLOCK = struct.Struct("hhqqi4x")  # on 64-bit Linux: type, whence, start, length, process

# The names of other users' files beyond `_MOST`, which are not looked at again. Names cannot be foreseen, so
# no other user's file gets such a name.
_skipped: frozenset[str] = frozenset()

# The device and inode of this process's files, which it must not open again.
_own_inodes: set[tuple[int, int] | None] = set()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_own_inodes.clear)  # a forked child has no claims


class NoFolder(Exception):  # noqa: N818 - no error, because GPUs can be chosen without claims
    """Claims cannot be shared. `str` returns why, as a clause: empty if sharing is off or not needed."""


class Access:
    """One process's access to the folder. Forked children and simulated processes have no access."""

    def __init__(self, *, is_shared: bool = True) -> None:
        self._is_shared = is_shared and sys.platform == "linux"
        self.pid = os.getpid()
        self._thread = threading.local()

    @contextmanager
    def folder(self, *, make: bool = False, waits: bool = True) -> Iterator[int]:
        """Run a block with a descriptor of the folder, which nested blocks share, or raise NoFolder.

        With `waits`, it waits for another process that is making the folder.
        """
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
                os.fchmod(folder, 0o1777)  # the umask restricts the mode of mkdir
            until = time.monotonic() + _BEING_MADE
            while not _is_shared(found := os.fstat(folder)):
                is_being_made = make and waits and abs(time.time() - found.st_ctime) < _BEING_MADE
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
        """Run a block in which the folder is opened at most once, or not at all if there is none."""
        with ExitStack() as stack:
            with suppress(NoFolder):
                stack.enter_context(self.folder())
            yield

    @contextmanager
    def turn(self, seconds: float) -> Iterator[None]:
        """Run a block under a lock that one process at a time holds, or without the lock after `seconds`.

        A process that keeps the lock, or is stopped with it, only delays other processes, so the block must
        also be correct without the lock. flock(2) needs no permission to write.
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
                    else:  # closing the descriptor is not enough, because a forked child may share it
                        stack.callback(fcntl.flock, folder, fcntl.LOCK_UN)
                        break
            yield


def _path() -> str:
    """Return the path of the folder, the same for all users of a machine, or raise NoFolder."""
    if named := os.environ.get("GPU_MAGIC_CLAIMS", "").strip():
        if is_off(named):
            raise NoFolder
        if not os.path.isabs(named):  # noqa: PTH117 - it would be another folder for each notebook
            raise NoFolder(f"GPU_MAGIC_CLAIMS={named} is not an absolute path")
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

    what: str  # the identity of a device, or PLACE
    claim: Claim
    arrival: tuple[int, str]  # later processes have a greater one
    rest: str  # the owner's further text


class OwnFile:
    """A claim or a place of this process. Its name is known before the file exists, to remove the file.

    `since` is the time of a claim that is made again.
    """

    def __init__(self, what: str, since: float | None = None) -> None:
        self.since = time.time() if since is None else since
        self.notebook = ""  # as it was published
        self.is_parked = False  # as it is published
        self._what, self._name = what, f"{what}.{os.urandom(8).hex()}"
        self._folder = ""
        self._descriptor: int | None = None
        self._inode: tuple[int, int] | None = None

    @property
    def is_there(self) -> bool:
        """Whether other users can find the file, and it is locked.

        The owner of the folder, or of a folder above, can remove, rename or hide it. A cell can close it.
        """
        with suppress(OSError):
            found = os.stat(f"{self._folder}/{self._name}", follow_symlinks=False)  # noqa: PTH116
            # No reader follows a link in place of the folder.
            is_open_to_all = _is_shared(os.stat(self._folder, follow_symlinks=False))  # noqa: PTH116
            return is_open_to_all and _identity(found) == self._inode and self._opened() is not None
        return False

    @property
    def arrival(self) -> tuple[float, str]:
        """The `Found.arrival` that other processes see. Last if a cell has closed the descriptor."""
        file = self._opened()
        return (math.inf if file is None else os.fstat(file).st_ctime_ns), self._name

    def publish(self, folder: int, notebook: str, wants: str = "") -> None:
        """Make the file, readable by all users. After an OSError, `withdraw` removes what was made.

        The file is locked before other processes can open it and before it has its final name. So an unlocked
        file has lost its process.
        """
        self._folder, self.notebook = os.path.abspath(_path()), notebook  # noqa: PTH100
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = file = os.open(f".{self._name}", flags, 0o600, dir_fd=folder)
        self._inode = _identity(os.fstat(file))
        _own_inodes.add(self._inode)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # keeps systemd-tmpfiles away (tmpfiles.d(5), "Age")
        os.write(file, f"{self._what}\n{notebook}\n{wants}\n{' '.join(_where())}".encode())
        os.utime(file, (self.since, self.since))
        os.fchmod(file, _MODES[None])  # the umask does not apply
        os.rename(f".{self._name}", self._name, src_dir_fd=folder, dst_dir_fd=folder)

    def withdraw(self, folder: int | None) -> None:
        """Remove the file. If the folder can no longer be used (None), the file stays behind, unlocked."""
        if folder is not None:
            for name in (self._name, f".{self._name}"):
                with suppress(OSError):  # already removed
                    os.unlink(name, dir_fd=folder)
        if (file := self._opened()) is not None:
            os.close(file)
        _own_inodes.discard(self._inode)

    def publish_activity(self, is_at_work: bool | None, *, is_parked: bool) -> None:
        """Publish that a cell has begun or ended now, and whether the process is parked."""
        if (file := self._opened()) is not None:
            os.fchmod(file, _MODES[is_at_work] | _IS_PARKED * is_parked)
            self.is_parked = is_parked

    def _opened(self) -> int | None:
        """Return the descriptor. None if a cell has closed it, or if it now belongs to another file."""
        with suppress(OSError):
            if self._descriptor is not None and _identity(os.fstat(self._descriptor)) == self._inode:
                return self._descriptor
        return None


def read_files(folder: int, *, places: bool = False) -> Iterator[Found]:
    """Yield the claims of other processes, or their places in line.

    It removes the files of this user's ended processes.
    """
    global _skipped  # noqa: PLW0603
    seen: Counter[int] = Counter()
    names = os.listdir(folder)
    skipped = set(_skipped.intersection(names))
    for name in names:
        match = name not in _skipped and re.fullmatch(_NAME, name.removeprefix("."))
        if not match or (match[1] == PLACE) is not places:
            continue
        with suppress(OSError):  # its process has ended meanwhile, or it is not a claim
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            seen[found.st_uid] += 1
            if seen[found.st_uid] > _MOST and found.st_uid != os.geteuid():
                skipped.add(name)
            if (
                seen[found.st_uid] > _MOST
                or not stat.S_ISREG(found.st_mode)
                or _identity(found) in _own_inodes
            ):
                continue
            if name.startswith("."):
                if found.st_uid == os.geteuid() and time.time() - found.st_mtime > _ABANDONED:
                    os.unlink(name, dir_fd=folder)
            elif one := _read(folder, name, match[1]):
                yield one
    _skipped = frozenset(skipped)


def _read(folder: int, name: str, what: str) -> Found | None:
    """Read a file. Return None if it is not a file of gpu_magic, or if its process has ended."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    file = os.open(name, flags, dir_fd=folder)
    try:
        found = os.fstat(file)
        is_same_user = found.st_uid == os.geteuid()
        if not stat.S_ISREG(found.st_mode) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return None
        # Only a write lock excludes a reader, and it needs permission to write. So another user's lock cannot
        # make a file look held.
        asked = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
        if kind == fcntl.F_UNLCK:
            if is_same_user:
                os.unlink(name, dir_fd=folder)
            return None
        text = os.read(file, _LONGEST_FILE).decode("utf-8", "replace")
        first, notebook, rest, where, *_ = (*text.split("\n"), "", "", "")
        if first != what:  # a link under another name
            return None
    finally:
        os.close(file)
    # A process in another PID namespace has the number 0. In a container, this user's ID can belong to
    # another person.
    is_seen, now, changed = pid > 0, time.time(), found.st_ctime
    age = age_of(start_of(pid)) if is_seen else UNKNOWN
    earliest = now - (time.clock_gettime(time.CLOCK_BOOTTIME) if age is UNKNOWN else age + 1)
    since = found.st_mtime if earliest <= found.st_mtime <= changed else changed
    idle: int | Unknown = UNKNOWN
    if found.st_mode & _HAS_CELLS:
        idle = 0 if found.st_mode & _IN_CELL else max(0, int(now - changed))
    owner, notebook = owner_name(found.st_uid), shortened(notebook, LONGEST_NAME)
    (here, host), (namespace, _, container) = _where(), where.partition(" ")
    if namespace in ("", here) or container == host:
        container = ""
    claim = Claim(
        owner,
        since,
        pid if is_seen else UNKNOWN,
        notebook,
        is_same_user and is_seen,
        idle,
        container=shortened(container, LONGEST_NAME),
        is_parked=bool(found.st_mode & _IS_PARKED),
    )
    return Found(what, claim, (found.st_ctime_ns, name), rest)


def _where() -> tuple[str, str]:
    """Return the inode of this process's PID namespace, empty if it is unknown, and the host name."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino), os.uname().nodename  # noqa: PTH116
    except OSError:
        return "", ""


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
