"""Lists the processes of this user on GPUs as a table, and ends them: by TERM, then by KILL."""

from __future__ import annotations

import os
import select
import signal
import time
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.model import UNKNOWN, GpuProcess, Unknown, idle_text
from gpu_magic.devices.notebooks import notebook_here, notebook_of
from gpu_magic.devices.processes import (
    ProcessNames,
    ended_text,
    pids_are_local,
    read_process,
    start_of,
    starter_has_ended,
)
from gpu_magic.errors import ProcessError, show_as
from gpu_magic.process.session import current
from gpu_magic.process.view import read_machine
from gpu_magic.processes.tasks import tasks
from gpu_magic.public import public
from gpu_magic.text import (
    age_text,
    bytes_text,
    html_block,
    html_table,
    listed,
    printable,
    simulated_title,
    text_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpu_magic.devices.model import Device

__all__ = [
    "Manager",
    "OwnProcess",
    "OwnProcesses",
    "end_process",
    "finders",
    "my_processes",
    "next_step",
    "send",
]

_HEADINGS = ("Process", "PID", "GPUs", "Age", "What it is")
# Linux 5.3, and a Python built for it, can signal a process without a risk if its PID is used again.
_CAN_END = hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")
_PATIENCE = 5.0  # seconds that a process has to end after TERM
_BETWEEN_LOOKS = 0.05  # seconds
_asked: dict[tuple[int, int | Unknown], float] = {}  # when processes got TERM, by PID and start


class Manager(NamedTuple):
    """The part of this kernel that started a process, and how to end it if `end_process` does not."""

    name: str
    how_to_end: str = ""


finders: list[Callable[[GpuProcess], Manager | None]] = []  # for features that start processes without a task


def _find_manager(process: GpuProcess) -> Manager | None:
    """Return the part of this kernel that started a process. None if this kernel did not start it."""
    if process.started is not UNKNOWN and start_of(process.pid) is UNKNOWN:  # its name and start are cached
        return Manager("ended", "only its parent has not noticed")
    if process.is_this_process is UNKNOWN:  # its number is not of this PID namespace
        return None
    if process.pid == os.getpid():
        restarts = "Jupyter's Kernel menu restarts it or shuts it down"
        return Manager("this kernel", f"%gpu_free gives memory back, and {restarts}")
    for task in tasks:
        if process.is_this_process and task.is_running and task.has_started(process.pid):
            return Manager(f"task {task.name}", f"%gpu_tasks stop {task.name} ends it")
    found = next(filter(None, (find(process) for find in finders)), None)
    return found or (Manager("started by this kernel") if process.is_this_process else None)


class OwnProcess(NamedTuple):
    """A process of this user that has memory on GPUs, or claims GPUs.

    Parameters
    ----------
    pid, name
        The number, and the name: the notebook of a kernel (`train.ipynb`), or the script or program.
    what, how_to_end
        The kind: `this kernel`, `task train`, `another kernel`. How to end it, if `end_process` refuses.
    memory
        Bytes on each device. UNKNOWN if the driver does not give them, None if there is only a claim.
    notebook
        The path of the notebook whose kernel it is, or whose kernel started it. Empty: none.
    started
        When the process started, in clock ticks since the machine started.
    age
        Whole seconds since the process started.
    idle
        Whole seconds since its last cell, or since its last work on a GPU.
    is_kernel
        Whether it is a kernel.
    is_left_over
        Whether the kernel or the script that has started it has ended.

    """

    pid: int
    name: str
    what: str
    how_to_end: str
    memory: Mapping[Device, int | Unknown | None]
    notebook: str
    started: int | Unknown
    age: int | Unknown
    idle: int | Unknown = UNKNOWN
    is_kernel: bool = False
    is_left_over: bool = False

    def __str__(self) -> str:
        """Return `train.ipynb (pid 4711, 12.4 GiB on GPU 3)`."""
        return printable(f"{self.name} (pid {self.pid}, {', '.join(self.places())})")

    def places(self) -> list[str]:
        """Return its use of each device: `12.4 GiB on GPU 3`, `a claim on GPU 4`."""
        places = []
        for device, size in self.memory.items():
            text = "a claim" if size is None else "?" if size is UNKNOWN else bytes_text(size)
            places.append(f"{text} on {device.label}")
        return places


class OwnProcesses(list[OwnProcess]):
    """The processes of this user on GPUs. They show themselves as a table."""

    def __init__(self, processes: Iterable[OwnProcess], devices: Sequence[Device], simulated: str) -> None:
        super().__init__(processes)
        self.simulated = simulated
        unlisted = [device.label for device in devices if device.status.processes is UNKNOWN]
        none = "" if self or len(unlisted) == len(devices) else ". On the other GPUs none is yours"
        self._notes = [f"The processes on {listed(unlisted)} are unknown{none}."] * bool(unlisted)
        self._ended: dict[str, str] = {}  # by number: processes that the driver lists and that do not exist
        for device in devices:
            for one in () if device.status.processes is UNKNOWN else device.status.processes:
                if one.has_ended:
                    text = f"{ended_text(one, device)}. %gpu_doctor shows what an administrator can do."
                    self._ended[str(one.pid)] = text
        self._notes += self._ended.values()

    @public
    def find(self, which: int | str) -> OwnProcess:
        """Return the process with this number or this name, as the table shows it.

        Raises
        ------
        ProcessError
            There is none, or there are several.

        """
        found = self.find_all(which)
        if len(found) > 1:
            raise ProcessError(f"{which} could be {' or '.join(str(own.pid) for own in found)}.")
        return found[0]

    @public
    def find_all(self, which: int | str) -> list[OwnProcess]:
        """Return the process with this number or this name, or all workers that a kernel has left.

        The workers have the name of the kernel's notebook, unless a kernel has it again.

        Raises
        ------
        ProcessError
            There is none, or there are several of which some are not left over.

        """
        text = str(which).strip()
        found = [own for own in self if str(own.pid) == text] or [own for own in self if own.name == text]
        found = found or [
            own for own in self if own.is_left_over and f"/{own.notebook}".endswith(f"/{text}") and text
        ]
        if len(found) > 1 and not all(own.is_left_over for own in found):
            raise ProcessError(f"{text} could be {' or '.join(str(own.pid) for own in found)}.")
        if not found:
            yours = listed(f"{own.pid} ({own.name})" for own in self)
            none = f"You have no process {text} on a GPU.{f' Yours: {yours}' * bool(yours)}"
            raise ProcessError(self._ended.get(text, none))
        return found

    def __repr__(self) -> str:
        table = text_table(_HEADINGS, self._rows()) if self else []
        return "\n".join([*filter(None, [self._title()]), *table, *(f"! {note}" for note in self._notes)])

    def _repr_html_(self) -> str:
        return html_block(self._title(), html_table(_HEADINGS, self._rows()) if self else "", self._notes)

    def _title(self) -> str:
        title = [simulated_title(self.simulated)] * bool(self.simulated)
        if not self and not self._notes:
            title.append("None of your processes uses or claims a GPU.")
        ended = [own for own in self if not (own.how_to_end or self.simulated)]
        for own in sorted(ended, key=lambda one: not one.is_left_over)[:1]:
            alike = [one for one in self if one.name == own.name]
            has_more = len(alike) > 1 and all(one.is_left_over for one in alike)
            what = f"each {own.name}" if has_more else own.name
            title.append(f"To end {what}: %gpu_ps end {own.name if has_more else own.pid}")
        return printable(" · ".join(title))

    def _rows(self) -> list[tuple[str, ...]]:
        """Return a row for each process, and one for each of its further devices."""
        rows: list[tuple[str, ...]] = []
        for own in self:
            first, *more = own.places()
            age = "" if own.age is UNKNOWN else age_text(own.age)
            ages = ", ".join(filter(None, (age, idle_text(own.idle))))
            rows += [(own.name, str(own.pid), first, ages, own.what)]
            rows += [("", "", place, "", "") for place in more]
        return rows


@public
def my_processes() -> OwnProcesses:
    """Return the processes of this user that have memory on GPUs, or claim GPUs: kernels and scripts.

    The list shows itself as a table. Each process has `pid`, `name`, `notebook`, `age` and `idle` in
    seconds, and `memory` in bytes by device.

    Raises
    ------
    ProcessError
        gpu_magic cannot know which processes are this user's, for example in a container.

    """
    session = current()
    machine = read_machine(session)
    is_clear = machine.simulated or pids_are_local()
    container = "" if is_clear else "In a container, the driver's process numbers are those of the host."
    if problem := machine.problem or machine.limitation or container:
        raise ProcessError(f"Which processes are yours is unknown here. {problem}")
    found: dict[int, GpuProcess] = {}
    memory: defaultdict[int, dict[Device, int | Unknown | None]] = defaultdict(dict)
    parked = {os.getpid()} if session.claims.is_parked() else set[int | Unknown]()
    devices: list[Device] = []
    for gpu in machine.gpus:
        devices += gpu.mig if gpu.is_split else [gpu]
    for device in devices:
        for process in () if device.status.users is UNKNOWN else device.status.users:
            if True in (process.is_same_user, process.is_this_process):
                found.setdefault(process.pid, process)
                memory[process.pid][device] = process.memory
        for claim in device.status.claims:
            parked |= {claim.pid} if claim.is_parked else set()
            if claim.is_same_user and claim.pid is not UNKNOWN and device not in memory[claim.pid]:
                process = session.reader.look_up(claim.pid)
                if process.is_same_user is True:
                    process = process._replace(notebook=notebook_of(process, [claim]) or process.notebook)
                else:  # on a simulated machine the process is unknown
                    name = claim.notebook or UNKNOWN
                    process = GpuProcess(claim.pid, name, claim.owner, is_this_process=False)
                found.setdefault(claim.pid, process._replace(idle=claim.idle))
                memory[claim.pid][device] = None
        if device.identity in session.claims.held and device not in memory[os.getpid()]:
            here = read_process(os.getpid())  # no simulated machine has it
            found.setdefault(os.getpid(), here._replace(notebook=notebook_here() or here.notebook))
            memory[os.getpid()][device] = None
    names = ProcessNames(found.values())
    processes = [_own_process(one, memory[one.pid], names) for one in found.values()]
    processes = [one._replace(what=f"{one.what}, parked") if one.pid in parked else one for one in processes]
    return OwnProcesses(processes, devices, machine.simulated)


def _own_process(
    process: GpuProcess, memory: Mapping[Device, int | Unknown | None], names: ProcessNames
) -> OwnProcess:
    started = f"started in {names.notebook(process)}" if process.notebook else "another process"
    manager = _find_manager(process) or Manager("another kernel" if process.is_kernel else started)
    is_left_over = process.is_this_process is not True and starter_has_ended(process)
    if is_left_over:
        manager = Manager(
            f"{started}, whose kernel has ended"
            if process.notebook
            else "started by a process that has ended"
        )
    return OwnProcess(
        process.pid,
        names.name(process),
        *manager,
        memory,
        process.notebook,
        process.started,
        process.age,
        process.idle,
        process.is_kernel,
        is_left_over,
    )


@public
def end_process(
    which: int | str | OwnProcess, *, kill: bool = False, confirm: Callable[[str], bool] | None = None
) -> bool | None:
    """End a process of this user on GPUs, or the workers that a kernel has left. Wait up to 5 s.

    Return whether they have ended.

    A kernel ends as soon as it gets the signal. If a Jupyter server started it, the server starts a new
    kernel without variables.

    Parameters
    ----------
    which
        The number of the process, its name in `my_processes()`, or an item of that list.
    kill
        Send KILL, not TERM. `end_process` refuses this until 5 s after it has sent TERM to the process.
    confirm
        A function. Before `end_process` sends a signal, it calls this function with a question. If the
        function returns False, `end_process` sends nothing and returns None.

    Raises
    ------
    ProcessError
        The process is not this user's, has ended, is this process itself, or belongs to %gpu_tasks or
        %gpu_cluster. Nothing was sent.

    """
    there = my_processes()
    found = [which] if isinstance(which, OwnProcess) else there.find_all(which)
    for own in found:
        _check(there, own.pid, own.started, kill=kill)
    if confirm:
        if not confirm(f"{'Kill' if kill else 'End'} {listed(map(str, found))}?"):
            return None
        there = my_processes()  # the answer can have taken long
    if len(found) == 1:
        return _send(there, found[0].pid, found[0].started, kill=kill, patience=_PATIENCE)
    until = time.monotonic() + _PATIENCE
    for own in found:
        if start_of(own.pid) == own.started:  # the end of a worker can end others
            _send(there, own.pid, own.started, kill=kill)
    while (is_left := any(start_of(own.pid) == own.started for own in found)) and time.monotonic() < until:
        time.sleep(_BETWEEN_LOOKS)
    return not is_left


def next_step(process: GpuProcess) -> str:
    """Return the next step to end a process: nothing, "end", "wait" for its end, or "kill"."""
    manager = _find_manager(process)
    is_another = process.is_same_user is not True or process.started is UNKNOWN
    if not _CAN_END or is_another or (manager and manager.how_to_end):
        return ""
    asked_at = _asked.get((process.pid, process.started))
    return "end" if asked_at is None else "kill" if time.monotonic() - asked_at >= _PATIENCE else "wait"


def send(pid: int, started: int | Unknown, *, kill: bool) -> None:
    """Send TERM or KILL to the process with this start, and do not wait."""
    _send(my_processes(), pid, started, kill=kill)


def _send(
    there: OwnProcesses, pid: int, started: int | Unknown, *, kill: bool, patience: float = 0.0
) -> bool:
    """Send TERM or KILL to the process with this start. Return whether it ends within `patience` seconds."""
    try:
        if not _CAN_END:
            raise OSError  # noqa: TRY301 - as an older Linux would
        # The descriptor stays with one process, so `_check` and the signal concern the same process.
        with open(os.pidfd_open(pid), "rb", 0) as process:  # noqa: PTH123
            _check(there, pid, started, kill=kill)
            signal.pidfd_send_signal(process.fileno(), signal.SIGKILL if kill else signal.SIGTERM)
            _asked.setdefault((pid, started), time.monotonic())
            waiting = select.poll()  # not `select`, which accepts no descriptor above 1023
            waiting.register(process, select.POLLIN)
            return bool(waiting.poll(patience * 1000))
    except ProcessLookupError:
        raise ProcessError(f"Process {pid} has already ended.") from None
    except OSError:  # an older Linux, a sandbox, or a system that does not allow it
        raise ProcessError(f"Process {pid} cannot be ended from here. In a terminal: kill {pid}") from None
    except KeyboardInterrupt as interrupt:
        if (pid, started) in _asked:
            shows = "%gpu_ps shows if it has ended."
            show_as(interrupt, f"KeyboardInterrupt: process {pid} got the signal. {shows}")
        raise


def _check(there: OwnProcesses, pid: int, started: int | Unknown, *, kill: bool) -> None:
    """Raise ProcessError if the process that has this PID now must not get the signal."""
    own, now = there.find(pid), read_process(pid)
    if now.started is UNKNOWN and not there.simulated:
        raise ProcessError(f"Process {pid} has already ended.")
    if own.how_to_end:
        raise ProcessError(f"Process {pid} is {own.what}: {own.how_to_end}.")
    if there.simulated:
        raise ProcessError(f"Process {pid} cannot be ended: the GPUs here are SIMULATED.")
    if now.is_same_user is not True:
        raise ProcessError(f"Process {pid} is not yours, so you cannot end it from here.")
    if now.started != started:
        raise ProcessError(f"Process {pid} is not the one that was shown. Nothing was sent to it.")
    if kill and time.monotonic() - _asked.get((pid, started), time.monotonic()) < _PATIENCE:
        raise ProcessError(f"Process {pid} has not had {_PATIENCE:.0f} s to end. First run %gpu_ps end {pid}")
