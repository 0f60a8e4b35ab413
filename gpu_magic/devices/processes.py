"""The owner, the name and the notebook of a process, read from /proc, and its name for display."""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.devices.call_timeout import CallTimeout
from gpu_magic.devices.model import (
    KERNEL,
    MARIMO,
    UNKNOWN,
    WORKER,
    GpuProcess,
    JupyterKernel,
    Unknown,
    UsedBy,
    idle_text,
)
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

    from gpu_magic.devices.model import Device, Inventory

__all__ = [
    "ProcessNames",
    "ProcessTable",
    "PythonLine",
    "age_of",
    "ancestors_of",
    "descends_from",
    "ended_text",
    "is_this_process",
    "lineage_of",
    "name_text",
    "notebook_path",
    "owner_name",
    "parent_of",
    "pids_are_local",
    "program_text",
    "read_process",
    "read_python_line",
    "session_of",
    "start_of",
    "starter_has_ended",
    "with_each",
    "with_names",
]

# The initial PID namespace's inode is a constant of Linux (PROC_PID_INIT_INO, linux/proc_ns.h).
_INITIAL_NAMESPACE = "pid:[4026531836]"
_LONGEST_NAME = 40
_MOST_KEPT = 4096
_LONGEST_PATH = 4096  # bytes
# jupyter_server sets the path of the notebook for each kernel, jupyter_client the PID of the kernel's parent.
_NOTEBOOK, _SERVER = b"JPY_SESSION_NAME=", b"JPY_PARENT_PID="
# The connection file: `-f FILE`, `--f=FILE`. Jupyter servers, consoles and editors name it by the kernel's
# ID. Without a name, jupyter_client makes a temporary file (`process.environment.program`).
_CONNECTION = re.compile(r"(?:-.*=)?(/.*)/(?:kernel-(.+)|(tmp[a-z0-9_]{8}))\.json", re.DOTALL)
# VS Code adds it to the names of its kernels at a Jupyter server (vscode-jupyter, `jvscIdentifier`).
_OF_VSCODE = re.compile(r"-jvsc-[0-9a-f-]+(?=\.ipynb$)")
_PIECE, _MOST_PIECES = 16 << 10, 64  # bytes of a read, and the most reads: 1 MiB of an environment
_ONLY_FORKED = 0x40  # a flag in /proc/PID/stat: it still has the program of its parent (PF_FORKNOEXEC)
# Programs of Python that run the user's script in their own process.
_RUNNERS = frozenset(
    "pdb ipdb ipdb3 pudb pudb3 debugpy pydevd pydevd.py ipython ipython3 IPython "
    "cProfile profile trace coverage kernprof memory_profiler scalene viztracer "
    "line_profiler memray streamlit".split()
)
# What starts the workers of multiprocessing and of loky (CPython 3.14, joblib 1.5).
_WORKERS = ("multiprocessing.spawn", "multiprocessing.forkserver", "loky.backend.popen_loky")
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
        found, new, me = {}, {}, os.getpid()
        for pid in pids:
            try:
                stat = os.stat(f"/proc/{pid}")  # noqa: PTH116 - pathlib takes twice as long
            except OSError:
                found[pid] = _unseen(pid)
                continue
            # With this process's PID, because `is_this_process` differs in a forked child.
            key = stat.st_ino, stat.st_ctime, stat.st_uid, me
            known = self._known.get(pid)
            if known is None or known[0] != key:
                new[pid] = key
                continue
            process, owner = known[1], owner_name(stat.st_uid)
            age = age_of(process.started)
            if process.age != age or process.owner != owner:
                process = process._replace(owner=owner, age=age)
                self._known[pid] = key, process
            found[pid] = process
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

    return with_each(machine, lambda one: found[one.pid]._replace(memory=one.memory, work=one.work))


def with_each(machine: Inventory, change: Callable[[GpuProcess], GpuProcess]) -> Inventory:
    """Return a machine with each process changed."""

    def changed(part: Any) -> Any:
        before = part.status.processes
        after = before if before is UNKNOWN else tuple(map(change, before))
        return part if after == before else part._replace(status=part.status._replace(processes=after))

    gpus = [changed(gpu._replace(mig=tuple(map(changed, gpu.mig))) if gpu.mig else gpu) for gpu in machine]
    return replace(machine, gpus=tuple(gpus))


def read_process(pid: int) -> GpuProcess:
    """Read a process of this PID namespace from /proc. `started` is UNKNOWN if it has ended."""
    return read_processes([pid])[pid]


def _unseen(pid: int) -> GpuProcess:
    """Return a process of this PID namespace that /proc does not show, on Linux.

    It is another user's if /proc hides those (`hidepid`). Otherwise it has ended, and its user is unknown.
    """
    try:
        os.kill(pid, 0)  # sends nothing
    except PermissionError:
        return GpuProcess(pid, is_this_process=False, is_same_user=False)
    except (ProcessLookupError, OverflowError):
        return GpuProcess(pid, has_ended=True)  # it can have been a child of this one
    return GpuProcess(pid)  # it has started meanwhile


def read_processes(pids: Iterable[int]) -> dict[int, GpuProcess]:
    """Read processes of this PID namespace together, so that several that hang take no longer than one.

    The name of a process that hangs is UNKNOWN, and its notebook and folder are empty.
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
    if not users:
        return found
    kernel_at, parent = cache(_kernel_at), cache(parent_of)  # many processes have the same ancestors
    calls = [
        (pid, partial(_read_texts, pid, found[pid].is_same_user is True, kernel_at, parent)) for pid in users
    ]
    names = _in_time(calls)
    for (pid, uid), answer in zip(users.items(), names, strict=True):
        name, notebook, folder, kernel = answer or (UNKNOWN, "", "", None)
        owner = owner_name(uid)
        found[pid] = found[pid]._replace(
            name=name, notebook=notebook, folder=folder, kernel=kernel, owner=owner
        )
    return found


def _read_texts(
    pid: int,
    is_same_user: bool,
    kernel_at: Callable[[int], JupyterKernel | None],
    parent: Callable[[int], int],
) -> tuple[str | Unknown, str, str, JupyterKernel | None]:
    """Return the name, the notebook, the folder, and the kernel that a process is or that has started it."""
    name = _name(pid)
    if not is_same_user:
        return name, "", "", None
    kernel = next(filter(None, map(kernel_at, (pid, *ancestors_of(pid, parent)))), None)
    notebook = folder = ""
    if name == MARIMO:
        notebook = _file_of_marimo(pid) or _file_of_marimo(parent_of(pid))
    elif kernel is not None and kernel.id.startswith("tmp"):
        notebook = _notebook_that_runs(parent_of(kernel.pid))
    notebook = notebook or notebook_path(_variable(pid, _NOTEBOOK))
    if name in (KERNEL, MARIMO) and not notebook:
        with contextlib.suppress(OSError):
            folder = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115
    return name, notebook, folder, kernel


def notebook_path(path: str) -> str:
    """Return the path of a notebook, without what VS Code adds to its name."""
    return _OF_VSCODE.sub("", path)


def _kernel_at(pid: int) -> JupyterKernel | None:
    """Return the kernel of Jupyter that a process is. None if it is none, or cannot be seen.

    A Jupyter server describes itself in `jpserver-PID.json`, beside the connection files of its kernels
    (jupyter_server 2, `info_file`).
    """
    match = next(filter(None, map(_CONNECTION.fullmatch, _words(pid))), None)
    if not match or _is_only_forked(pid):
        return None
    files = (f"{match[1]}/jpserver-{above}.json" for above in ancestors_of(pid))
    return JupyterKernel(pid, match[2] or match[3], next(filter(os.path.exists, files), ""))


def _notebook_that_runs(pid: int) -> str:
    """Return the notebook that a program runs, if its command line tells. Empty if not.

    `papermill in.ipynb out.ipynb` writes the notebook that it runs to the second file. nbclient
    (`jupyter execute`), nbconvert and nbval can run several, one after the other.
    """
    words = _words(pid)
    named = [
        word for before, word in pairwise(["", *words]) if word.endswith(".ipynb") and before != "--output"
    ]
    if any(word.rpartition("/")[2] == "papermill" for word in words[:3]):
        return named[:2][-1] if named else ""
    return named[0] if len(named) == 1 else ""


def _file_of_marimo(pid: int) -> str:
    """Return the one file that marimo edits, runs or exports. Empty if there is none, or several."""
    words = _words(pid)
    if _python_program(words[1:]) != MARIMO:
        return ""
    words = words[: words.index("--")] if "--" in words else words
    named = [word for word in words[1:] if word.endswith((".py", ".md", ".qmd"))]
    return named[0] if len(named) == 1 else ""


def _words(pid: int) -> list[str]:
    """Return the command line of a process. Empty if it has ended, or cannot be seen."""
    with contextlib.suppress(OSError):
        return _read(f"/proc/{pid}/cmdline").decode("utf-8", "replace").split("\0")
    return []


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


def ended_text(process: GpuProcess, device: Device) -> str:
    """Return a sentence, without its full stop, for a process that the driver lists and that has ended."""
    memory = "it" if process.memory is UNKNOWN else f"{bytes_text(process.memory)} of it"
    return f"Process {process.pid} has ended, but the driver still lists {memory} on {device.label}"


def program_text(process: GpuProcess) -> str:
    """Return the name of the script or the program of a process, or `process 4711` if it is unknown."""
    if process.name is UNKNOWN:
        return f"process {process.pid}{' (ended)' * process.has_ended}"
    return process.name


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
        name = _python_program(arguments[1:])
        # A notebook that marimo edits runs in a process of multiprocessing (0.25, `KernelManagerImpl`).
        if name == WORKER and _python_program(_words(parent_of(pid))[1:]) == MARIMO:
            return MARIMO
        return WORKER if name == KERNEL and _is_only_forked(pid) else name_text(name or program)
    return name_text(program)


def _python_program(arguments: list[str]) -> str:
    """Return the module or the script that `python …` runs. The rest of the command line is private."""
    line = read_python_line(arguments)
    if any(one in word for one in _WORKERS for word in arguments[: line.options]):
        return WORKER
    if line.kind == "module":
        name = KERNEL if line.name in ("ipykernel_launcher", "gpu_magic.kernelspec") else line.name
        name = MARIMO if name == "marimo._ipc.launch_kernel" else name  # `marimo edit --sandbox`
    else:
        name = PurePath(line.name).name
    rest = arguments[line.options + (line.kind == "script") :]
    return _run_by(rest) or name if name in _RUNNERS else name


def _run_by(arguments: list[str]) -> str:
    """Return the script or the module that a debugger or a profiler runs. Empty if it cannot be told.

    PyCharm starts `pydevd.py … --file train.py`, and `--module` before it for a module. VS Code starts
    `debugpy … train.py` and `debugpy … -m train`.
    """
    for before, word in pairwise(["", *arguments]):
        if before in ("-m", "--file") or word.endswith((".py", ".ipy")):
            return PurePath(word).name
    return ""


def _is_only_forked(pid: int) -> bool:
    """Return whether a process has its parent's program because it was forked."""
    flags = _stat_of(pid, 6)
    return flags is not UNKNOWN and bool(flags & _ONLY_FORKED)


def _comm(pid: int) -> str | Unknown:
    try:
        return name_text(_read(f"/proc/{pid}/comm").decode("utf-8", "replace").strip()) or UNKNOWN
    except OSError:
        return UNKNOWN


def is_this_process(pid: int) -> bool:
    """Return whether a process is this one, or one that it has started, such as a worker of a DataLoader.

    Servers start each kernel in a session of its own. There a process stays, even if the shell between it and
    the kernel has ended.
    """
    me = os.getpid()
    return pid == me or _stat_of(pid, 3) == me or (has_children() and descends_from(pid, (me,)))


def descends_from(pid: int, ancestors: Container[int]) -> bool:
    """Return whether a process descends from one of these processes."""
    return any(one in ancestors for one in ancestors_of(pid))


def parent_of(pid: int) -> int:
    """Return the PID of a process's parent. 0 if it has none, or it cannot be seen."""
    parent = _stat_of(pid, 1)
    return 0 if parent is UNKNOWN else parent


def session_of(pid: int) -> int:
    """Return the PID of the leader of a process's session. 0 if it cannot be seen."""
    session = _stat_of(pid, 3)
    return 0 if session is UNKNOWN else session


def _stat_of(pid: int, field: int) -> int | Unknown:
    """Return a number of /proc/PID/stat, by its place after the name. UNKNOWN if there is none."""
    try:
        # The program's name is in parentheses and can contain any character, also ")".
        return int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[field])
    except (OSError, ValueError, IndexError):
        return UNKNOWN


def ancestors_of(pid: int, parent: Callable[[int], int] = parent_of) -> Iterator[int]:
    """Yield the PIDs of a process's parent, the parent's parent, and so on, as far as they can be seen."""
    for _ in range(_MOST_ANCESTORS):
        pid = parent(pid) if pid > 1 else 0
        if not pid:
            return
        yield pid


def lineage_of(
    pid: int, parent: Callable[[int], int] = parent_of, session: Callable[[int], int] = session_of
) -> Iterator[int]:
    """Yield the PIDs of a process, its ancestors, and the leaders of their sessions.

    A process that a shell started in the background loses its ancestors when the shell ends. Its session
    stays, and servers start each kernel in a session of its own.
    """
    for one in (pid, *ancestors_of(pid, parent)):
        yield one
        yield session(one)


def has_children() -> bool:
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


def _variable(pid: int, name: bytes) -> str:
    """Return a variable that a process was started with. Empty if there is none, or it cannot be read."""
    try:
        variables = _read(f"/proc/{pid}/environ").split(b"\0")
    except OSError:
        return ""
    values = [one.removeprefix(name) for one in variables if one.startswith(name)]
    # A longer path names no file (PATH_MAX, linux/limits.h).
    return values[0].decode("utf-8", "replace") if values and len(values[0]) < _LONGEST_PATH else ""


def starter_has_ended(process: GpuProcess) -> bool:
    """Return whether the kernel that has started a process of this user has ended. False if that is unknown.

    It has ended if no older kernel has the process's command line, which a forked process shares, or its
    notebook. The starter of another worker has ended if the worker's parent is in another session. This can
    look at all processes, so ask it only about those of this user on GPUs.
    """
    if process.is_kernel or process.started is UNKNOWN or not (process.is_worker or process.notebook):
        return False
    call = partial(_starter_has_ended, process.pid, process.started)
    (answer,) = _in_time([(("kernel of", process.pid), call)])
    return answer is True


def _starter_has_ended(pid: int, started: int) -> bool:
    if not (arguments := _words(pid)):  # it has ended
        return False
    program = _python_program(arguments[1:])
    is_forked = program == KERNEL
    notebook = _variable(pid, _NOTEBOOK)  # of the start, which its kernel keeps when the notebook is renamed
    if is_forked or notebook:
        return _has_no_kernel(pid, started, "" if is_forked else notebook)
    if program != WORKER:
        return False
    # A worker is in the session of its starter, and then has a parent that is not.
    session, session_above = _stat_of(pid, 3), _stat_of(parent_of(pid), 3)
    return UNKNOWN not in (session, session_above) and session not in (pid, session_above)


def _has_no_kernel(pid: int, started: int, notebook: str) -> bool:
    """Return whether no kernel is older than a process and has its notebook, or else its command line."""
    try:
        line, above = _read(f"/proc/{pid}/cmdline"), list(ancestors_of(pid))
    except OSError:  # it has ended
        return False
    if not line:  # it has ended, but its parent has not noticed
        return False
    server = _variable(pid, _SERVER)
    if notebook and (not server.isdigit() or int(server) in above):
        return False  # it can be a kernel of another kind, which its server has started
    for one in (*above, *map(int, filter(str.isdigit, os.listdir("/proc")))):  # noqa: PTH208
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{one}").st_uid != os.geteuid() or _name(one) != KERNEL:  # noqa: PTH116
                continue
            has_same = _read(f"/proc/{one}/cmdline") == line
            if notebook:
                has_same = _variable(one, _NOTEBOOK) == notebook
            since = start_of(one)
            if has_same and since is not UNKNOWN and since <= started:
                return False
    return True


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
        paths = {path for process in processes if (path := process.notebook or process.folder)}
        self._paths = {path: _shortest(path, paths) for path in paths}

    def line(self, process: GpuProcess) -> UsedBy:
        """Return `maria: train.py, 59.6 GiB, for 3 h, idle 2 h`. For this user's processes: `you: …`."""
        is_here = process.is_this_process is True
        owner = "this kernel" if is_here else "you" if process.is_same_user is True else process.owner
        memory = "?" if process.memory is UNKNOWN else bytes_text(process.memory)
        who = "owner unknown" if owner is UNKNOWN else printable(owner)
        age = "" if process.age is UNKNOWN else f"for {age_text(process.age)}"
        since = "" if is_here else ", ".join(filter(None, (age, idle_text(process.idle))))
        return UsedBy(who, printable(self.name(process)), memory, since, is_own=is_here)

    def name(self, process: GpuProcess) -> str:
        """Return `train.ipynb` for a kernel, else `train.py`, or `process 4711` if the name is unknown.

        A kernel whose notebook is unknown has the name of its folder: `ipykernel in work`.
        """
        notebook = self.notebook(process)
        if process.is_kernel and notebook:
            return notebook
        if process.is_kernel and process.folder:
            return f"{process.name} in {name_text(self._paths.get(process.folder) or process.folder)}"
        if process.is_worker and notebook:
            return f"worker of {notebook}"
        return program_text(process)

    def notebook(self, process: GpuProcess) -> str:
        """Return the notebook of a kernel, or of a process that a kernel started. Empty if there is none."""
        return name_text(self._paths.get(process.notebook) or process.notebook.rpartition("/")[2])


def _shortest(path: str, paths: Collection[str]) -> str:
    """Return the shortest end of a path, in whole folders, that is not the end of another path."""
    parts = path.split("/")
    for count in range(1, len(parts)):
        end = "/".join(parts[-count:])
        if not any(f"/{other}".endswith(f"/{end}") for other in paths if other != path):
            return end
    return path
