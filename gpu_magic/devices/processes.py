"""The owner, the name and the notebook of a process, read from /proc, and its name for display."""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.devices.call_timeout import CallTimeout
from gpu_magic.devices.model import UNKNOWN, GpuProcess, Unknown, idle_text
from gpu_magic.text import age_text, bytes_text, printable, shortened

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Container,
        Hashable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from gpu_magic.devices.model import Inventory

__all__ = [
    "ProcessNames",
    "ProcessTable",
    "PythonLine",
    "age_of",
    "ancestors_of",
    "descends_from",
    "is_this_process",
    "name_text",
    "owner_name",
    "parent_of",
    "pids_are_local",
    "read_process",
    "read_python_line",
    "start_of",
    "with_names",
]

# The initial PID namespace's inode is a constant of Linux (PROC_PID_INIT_INO, linux/proc_ns.h).
_INITIAL_NAMESPACE = "pid:[4026531836]"
_LONGEST_NAME = 40
_MOST_KEPT = 4096
_LONGEST_PATH = 4096  # bytes
_NOTEBOOK = b"JPY_SESSION_NAME="  # jupyter_server sets it for each kernel: the path of its notebook
_PIECE, _MOST_PIECES = 16 << 10, 64  # bytes of a read, and the most reads: 1 MiB of an environment
_MOST_ANCESTORS = 64  # limits the work for a long chain of processes
_FAILED_FOR = 60.0  # seconds for which a user has no name after a failed look-up. The database can recover

# The command line and the environment of a process that hangs in the driver can hang, too: reading them needs
# the process's memory. A remote user database can take seconds. The other files of /proc always answer.
_timeout = CallTimeout(2.0)
_owners: dict[int, tuple[str, float]] = {}  # by user ID: the name, and until when it is kept


class ProcessTable:
    """Reads owners and names of processes from /proc, and keeps them.

    The driver reports the host's PIDs. In a container, such a PID may be absent or belong to another process.
    So in a container, names and owners are UNKNOWN rather than wrong.

    The owner is the effective user, from `os.stat` of /proc/PID (2 µs). psutil returns the real user and
    takes 15 times as long. Names and notebooks are kept while /proc/PID is the same inode, which ends with
    the process.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[int, float, int, int], GpuProcess]] = {}
        self._pids_are_local = pids_are_local()

    def look_up(self, pids: Iterable[int]) -> dict[int, GpuProcess]:
        """Return processes by PID. The name and owner of one that cannot be seen or has ended are UNKNOWN."""
        if not self._pids_are_local:
            return {pid: GpuProcess(pid) for pid in pids}
        found, new = {}, {}
        for pid in pids:
            try:
                stat = os.stat(f"/proc/{pid}")  # noqa: PTH116 - pathlib takes twice as long
            except OSError:
                found[pid] = _unseen(pid)
                continue
            # With this process's PID, because `is_this_process` differs in a forked child.
            key = stat.st_ino, stat.st_ctime, stat.st_uid, os.getpid()
            known, process = self._known.get(pid, (None, GpuProcess(pid)))
            if known == key:
                owner, age = owner_name(stat.st_uid), age_of(process.started)
                found[pid] = replace(process, owner=owner, age=age)
            else:
                new[pid] = key
        if len(self._known) + len(new) > _MOST_KEPT:  # a kernel can run for weeks and see many processes
            self._known.clear()
        for pid, process in read_processes(new).items():
            found[pid] = process
            if process.name is not UNKNOWN:  # a process that hangs has its name later
                self._known[pid] = new[pid], process
        return found


def with_names(
    machine: Inventory, look_up: Callable[[Collection[int]], Mapping[int, GpuProcess]]
) -> Inventory:
    """Return a machine whose processes have only a PID and figures, with the facts that `look_up` returns."""
    statuses = [*(gpu.status for gpu in machine), *(part.status for gpu in machine for part in gpu.mig)]
    listed = [status.processes for status in statuses if status.processes is not UNKNOWN]
    pids = {one.pid for processes in listed for one in processes}
    if not pids:
        return machine
    found = look_up(pids)

    def named(part: Any) -> Any:
        status = part.status
        if status.processes is UNKNOWN or not status.processes:
            return part
        processes = [replace(found[one.pid], memory=one.memory, work=one.work) for one in status.processes]
        return replace(part, status=replace(status, processes=tuple(processes)))

    gpus = [named(replace(gpu, mig=tuple(map(named, gpu.mig))) if gpu.mig else gpu) for gpu in machine]
    return replace(machine, gpus=tuple(gpus))


def read_process(pid: int) -> GpuProcess:
    """Read a process of this PID namespace from /proc. `started` is UNKNOWN if it has ended."""
    return read_processes([pid])[pid]


def _unseen(pid: int) -> GpuProcess:
    """Return a process of this PID namespace that /proc does not show, on Linux.

    It is another user's if /proc hides those (`hidepid`). Otherwise it has ended, and its user is unknown.
    """
    with contextlib.suppress(ProcessLookupError, OverflowError):
        try:
            os.kill(pid, 0)  # sends nothing
        except PermissionError:
            return GpuProcess(pid, is_this_process=False, is_same_user=False)
    return GpuProcess(pid)


def read_processes(pids: Iterable[int]) -> dict[int, GpuProcess]:
    """Read processes of this PID namespace together, so that several that hang take no longer than one.

    The name of a process that hangs is UNKNOWN, and its notebook is empty.
    """
    found, users = {}, {}
    for pid in pids:
        found[pid] = GpuProcess(pid)
        with contextlib.suppress(OSError):
            users[pid] = os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116
            started = start_of(pid)
            found[pid] = GpuProcess(
                pid,
                is_this_process=is_this_process(pid),
                is_same_user=_is_same_user(pid),
                started=started,
                age=age_of(started),
            )
    calls = [(pid, partial(_name_and_notebook, pid, found[pid].is_same_user is True)) for pid in users]
    names = _in_time(calls)
    for (pid, uid), answer in zip(users.items(), names, strict=True):
        name, notebook = answer or (UNKNOWN, "")
        found[pid] = replace(found[pid], name=name, notebook=notebook, owner=owner_name(uid))
    return found


def _name_and_notebook(pid: int, is_same_user: bool) -> tuple[str | Unknown, str]:
    return _name(pid), _notebook(pid) if is_same_user else ""


def _in_time(calls: Sequence[tuple[Hashable, Callable[[], Any]]]) -> list[Any]:
    """Make calls that can hang. None for one that hangs, now or since an earlier call with its key."""
    with _timeout.lock:
        try:
            return _timeout.call(calls)
        finally:
            _timeout.close()  # its thread: new processes and users are rare


def owner_name(uid: int) -> str:
    """Return a user's name for display: printable, and not too long.

    `uid 1234` if there is none, or if the user database does not answer in time. One call for all users can
    hang, so a database that hangs is waited for once.
    """
    if time.monotonic() >= _owners.get(uid, ("", -math.inf))[1]:
        _in_time([("users", partial(_find_owner, uid))])
    return _owners.get(uid, (f"uid {uid}", 0.0))[0]


def _find_owner(uid: int) -> None:
    """Keep a user's name, also if the call ends after it was abandoned."""
    import pwd  # not on Windows

    try:
        _owners[uid] = name_text(pwd.getpwuid(uid).pw_name), math.inf
    except KeyError:
        _owners[uid] = f"uid {uid}", time.monotonic() + _FAILED_FOR


def pids_are_local() -> bool:
    """Return whether the driver's PIDs are of this PID namespace. In a container they are the host's."""
    try:
        return os.readlink("/proc/self/ns/pid") == _INITIAL_NAMESPACE  # noqa: PTH115
    except OSError:
        return False


def name_text(name: str) -> str:
    """Return a process's or a user's name for display: printable, and not too long."""
    return shortened(name, _LONGEST_NAME)


def _name(pid: int) -> str | Unknown:
    """Name a process by its script or module if Python runs it, else by its program."""
    try:
        arguments = _read(f"/proc/{pid}/cmdline").decode("utf-8", "replace").split("\0")
    except OSError:
        return UNKNOWN
    program = arguments[0].rpartition("/")[2]
    if not program:
        return _comm(pid)
    if program.startswith("python"):
        return name_text(_python_program(arguments[1:]) or program)
    return name_text(program)


def _python_program(arguments: list[str]) -> str:
    """Return the module or the script that `python …` runs. The rest of the command line is private."""
    line = read_python_line(arguments)
    if line.kind == "module":
        return "ipykernel" if line.name in ("ipykernel_launcher", "gpu_magic.kernelspec") else line.name
    return PurePath(line.name).name


def _comm(pid: int) -> str | Unknown:
    try:
        return name_text(_read(f"/proc/{pid}/comm").decode("utf-8", "replace").strip()) or UNKNOWN
    except OSError:
        return UNKNOWN


def is_this_process(pid: int) -> bool:
    """Return whether a process is this one or a descendant (for example a worker of a DataLoader)."""
    me = os.getpid()
    return pid == me or (_has_children() and descends_from(pid, (me,)))


def descends_from(pid: int, ancestors: Container[int]) -> bool:
    """Return whether a process descends from one of these processes."""
    return any(one in ancestors for one in ancestors_of(pid))


def parent_of(pid: int) -> int:
    """Return the PID of a process's parent. 0 if it has none, or it cannot be seen."""
    try:
        # The program's name is in parentheses and can contain any character, also ")".
        return int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def ancestors_of(pid: int, parent: Callable[[int], int] = parent_of) -> Iterator[int]:
    """Yield the PIDs of a process's parent, the parent's parent, and so on, as far as they can be seen."""
    for _ in range(_MOST_ANCESTORS):
        pid = parent(pid) if pid > 1 else 0
        if not pid:
            return
        yield pid


def _has_children() -> bool:
    """Return whether this process has children, by one system call that does not reap them."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def start_of(pid: int) -> int | Unknown:
    """Return when a process started, in the unit of `GpuProcess.started`. UNKNOWN if it has ended."""
    try:
        # The name in parentheses can contain anything. The start is the 22nd field in proc(5).
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        state, started = fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        return UNKNOWN
    return UNKNOWN if state in (b"Z", b"X") else started  # ended, but not yet reaped by its parent


def age_of(started: int | Unknown) -> int | Unknown:
    """Return the whole seconds since a process started."""
    if started is UNKNOWN:
        return UNKNOWN
    # CLOCK_BOOTTIME, as Linux uses, because it also counts while the machine is suspended.
    return int(max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")))


def _is_same_user(pid: int) -> bool:
    """Return whether all user IDs of a process are the real user ID of this process.

    The owner of /proc/PID is no answer, because it is root for a process that cannot be dumped.
    """
    try:
        # No earlier line can contain "\nUid:", because the process's name is escaped.
        users = _read(f"/proc/{pid}/status").partition(b"\nUid:")[2].partition(b"\n")[0]
    except OSError:
        return False
    return set(map(int, users.split())) == {os.getuid()}


def _notebook(pid: int) -> str:
    """Return the path of a process's notebook. Empty if there is none, or it cannot be read."""
    try:
        variables = _read(f"/proc/{pid}/environ").split(b"\0")
    except OSError:
        return ""
    paths = [one.removeprefix(_NOTEBOOK) for one in variables if one.startswith(_NOTEBOOK)]
    # A longer path names no file (PATH_MAX, linux/limits.h).
    return paths[0].decode("utf-8", "replace") if paths and len(paths[0]) < _LONGEST_PATH else ""


def _read(path: str) -> bytes:
    """Read a file of /proc, in a quarter of the time that `open` and a large buffer take."""
    file, pieces = os.open(path, os.O_RDONLY), list[bytes]()
    try:
        while len(pieces) < _MOST_PIECES and (piece := os.read(file, _PIECE)):
            pieces.append(piece)
    finally:
        os.close(file)
    return b"".join(pieces)


class PythonLine(NamedTuple):
    """The parts of the command line of Python."""

    kind: str  # "script", "module" or "code"; empty if there is none of them: `python`, `python -V`
    name: str  # the script's path, or the module; empty for code
    options: int  # how many words are options of Python, with the argument of -m or -c
    is_answer: bool  # whether Python only prints an answer and ends: `-V`, `--help`


def read_python_line(words: Sequence[str]) -> PythonLine:
    """Read the words after `python` (3.14).

    Short options can be bundled (`-Ic CODE`, `-mMODULE`). Those before "c", "m", "W" or "X" have no value.
    """
    place, is_answer = 0, False
    while place < len(words) and words[place].startswith("-") and words[place] != "-":
        word = words[place]
        place += 1
        if word.startswith("--"):
            place += word == "--check-hash-based-pycs"
            is_answer = is_answer or word == "--version" or word.startswith("--help")
        elif match := re.fullmatch(r"-[^cmWX]*([cmWX])(.*)", word, re.DOTALL):
            value = match[2] or "".join(words[place : place + 1])
            place += not match[2]
            if match[1] in "cm":
                kind = "module" if match[1] == "m" else "code"
                return PythonLine(kind, value if kind == "module" else "", min(place, len(words)), is_answer)
        else:
            is_answer = is_answer or bool(set("hV?") & set(word))
    place = min(place, len(words))
    script = words[place] if place < len(words) and words[place] != "-" else ""
    return PythonLine("script" if script else "", script, place, is_answer)


class ProcessNames:
    """Names of processes that are shown together.

    A notebook has the name of its file, with only as many folders as make the name unique.
    """

    def __init__(self, processes: Iterable[GpuProcess]) -> None:
        paths = {process.notebook for process in processes if process.notebook}
        self._notebooks = {path: _shortest(path, paths) for path in paths}

    def line(self, process: GpuProcess) -> str:
        """Return `maria: train.py, 59.6 GiB, for 3 h, idle 2 h`. For this user's processes: `you: …`."""
        is_here = process.is_this_process is True
        owner = "this kernel" if is_here else "you" if process.is_same_user is True else process.owner
        memory = "?" if process.memory is UNKNOWN else bytes_text(process.memory)
        facts = [self.name(process), memory]
        if process.age is not UNKNOWN and not is_here:
            facts.append(f"for {age_text(process.age)}")
        if not is_here and (idle := idle_text(process.idle)):
            facts.append(idle)
        return printable(f"{'owner unknown' if owner is UNKNOWN else owner}: {', '.join(facts)}")

    def name(self, process: GpuProcess) -> str:
        """Return `train.ipynb` for a kernel, else `train.py`, or `process 4711` if the name is unknown."""
        if process.is_kernel:
            return self.notebook(process)
        return f"process {process.pid}" if process.name is UNKNOWN else process.name

    def notebook(self, process: GpuProcess) -> str:
        """Return the notebook of a kernel, or of a process that a kernel started. Empty if there is none."""
        return name_text(self._notebooks.get(process.notebook) or process.notebook.rpartition("/")[2])


def _shortest(path: str, paths: Collection[str]) -> str:
    """Return the shortest end of a path, in whole folders, that is not the end of another path."""
    parts = path.split("/")
    for count in range(1, len(parts)):
        end = "/".join(parts[-count:])
        if not any(f"/{other}".endswith(f"/{end}") for other in paths if other != path):
            return end
    return path
