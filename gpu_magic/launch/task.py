"""A launched command: starts, follows and ends the command, and reports its end."""

from __future__ import annotations

import logging
import selectors
import shlex
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic.devices.model import UNKNOWN, Unknown, sum_of
from gpu_magic.devices.processes import descends_from
from gpu_magic.errors import CommandFailed
from gpu_magic.interrupts import defer_interrupts
from gpu_magic.launch.output import Output, last_traceback
from gpu_magic.launch.process import LOST, Causes, Guarded, how_it_ended
from gpu_magic.process.mask import MASK, NAMES
from gpu_magic.process.view import read_machine
from gpu_magic.processes.tasks import BackgroundTask
from gpu_magic.public import public
from gpu_magic.text import bytes_text, listed, printable, simulated_mark

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpu_magic.claims.held import Claims
    from gpu_magic.devices.model import Device, GpuProcess
    from gpu_magic.launch.launchers import Command
    from gpu_magic.launch.process import RunFolder
    from gpu_magic.process.session import Session

__all__ = ["Task"]

_USE_SECONDS = 1.0  # between two readings of the GPUs
_OUTPUT_SECONDS = 0.1  # between two readings of the output
# Bytes that `follow` yields at once, and how many more each time, because a Jupyter server drops output above
# 1 MB a second.
_MAX_BYTES = 512 << 10
_ADDED_BYTES = 48 << 10
_log = logging.getLogger("gpu_magic.launch")
_kept_claims: list[Claims] = []  # of lost commands, which may still run; they end with this process


class Task(BackgroundTask):
    """A launched command. `str` returns a line: the use of its GPUs while it runs, then how it ended.

    Attributes
    ----------
    name
        The name of the task.
    typed
        The command, as typed.
    devices
        Its GPUs, in the order of `cuda:i`.
    outputs
        Its output: an `Output` for each rank, and one for the launcher.
    causes
        Possible causes of a failure on this machine, a clause each.
    first_failure
        The first rank that failed with a traceback, and the traceback. None if there is no such rank.

    """

    def __init__(
        self, session: Session, typed: str, commands: Sequence[Command], files: RunFolder, claims: Claims
    ) -> None:
        self.name, self.typed, self.files = "launch", typed, files
        self.devices = tuple(device for command in commands for device in command.devices)
        self.outputs: list[Output] = []
        self.causes: list[str] = []
        self.first_failure: tuple[Output, str] | None = None
        self._session, self._commands, self._claims = session, commands, claims
        self.simulated = session.reader.simulated  # the profile of a simulated machine; empty for a real one
        self._mark = simulated_mark(self.simulated)
        self._guarded: list[Guarded] = []
        self._first_failed: int | None = None  # the number of the first of several processes that failed
        self._ended, self._was_stopped = threading.Event(), False
        self._began, self._seconds = time.monotonic(), 0.0
        # By UUID: the utilization in percent and the command's memory in bytes; the peak of that memory.
        self._use: dict[str, tuple[int | Unknown, int | Unknown]] = {}
        self._peaks: dict[str, int] = {}

    @property
    def shell_lines(self) -> str:
        """The lines that run the command in a shell.

        The shell must not have the variables that the launch removes.
        """
        lines = [] if self.folder == str(Path.cwd()) else [f"cd {shlex.quote(self.folder)}"]
        for command in self._commands:
            variables = [
                f"{name}={shlex.quote(value)}"
                for name, value in command.variables.items()
                if value is not None
            ]
            lines.append(" ".join([*variables, shlex.join(command.words)]))
        return "\n".join([*lines, *(f"# {note}" for note in self.notes)])

    @property
    def notes(self) -> list[str]:
        """What the user should know of the command: a sentence each."""
        return list(dict.fromkeys(filter(None, [self.simulation, *(one.note for one in self._commands)])))

    @property
    def folder(self) -> str:
        """The command's working directory."""
        return self._commands[0].folder

    @property
    def gpu_variables(self) -> list[dict[str, str]]:
        """The variables that name the GPUs of each command."""
        return [
            {name: value for name in NAMES if (value := command.variables.get(name)) is not None}
            for command in self._commands
        ]

    @property
    def simulation(self) -> str:
        """A sentence, if its GPUs are SIMULATED: the command itself can run on real GPUs. Else empty."""
        if not self._mark:
            return ""
        masks = [variables[MASK] for variables in self.gpu_variables if MASK in variables]
        how = f"with {MASK}={' or '.join(masks)}" if masks else f"without {MASK}"
        return f"{self._mark}GPUs do not exist. The command runs {how} and can use real GPUs."

    def start(self, name: str = "launch", *, is_attached: bool = False) -> Task:
        """Start the command, once. Return the task.

        With `is_attached`, the command reads this process's input, as in a shell. A single command without
        ranks also writes to this process's output.
        """
        self.name, self._began = name, time.monotonic()
        causes = Causes(self.files.path.parent)
        watching = threading.Thread(target=self._watch, args=(causes,), name=f"gpu_magic {name}", daemon=True)
        try:
            with defer_interrupts():  # so that the thread follows whatever has started
                for number, command in enumerate(self._commands):
                    self._start(command, number, is_attached=is_attached)
                watching.start()
            gpus = f"{self._mark}{listed(device.label for device in self.devices)}"
            _log.info("Started %s on %s", printable(name), gpus)
        except BaseException:  # also an interrupt
            self.end()
            if self._guarded and watching.ident is None:
                self._watch(causes)
            self.stop()
            self.files.remove()
            raise
        return self

    def _start(self, command: Command, number: int, *, is_attached: bool) -> None:
        label = str(number) if len(self._commands) > 1 else ""
        logs, console = self.files.path / f"ranks{label}", self.files.path / f"output{label}.log"
        command = command.with_rank_files(str(logs))
        patterns = command.rank_files.patterns if command.rank_files else ()
        writes_here = is_attached and not patterns and not label
        self._guarded.append(
            Guarded(
                command.words,
                command.environment,
                command.folder,
                None if writes_here else console,
                str(self.files.path),
                has_input=is_attached,
            )
        )
        title, is_rank = f"Process {label}" if label else "Launcher", bool(label) and not patterns
        self.outputs.append(Output(label, title, lambda: [console], is_rank=is_rank, process=number))
        for rank in range(len(command.gpus) if patterns else 0):
            title, before = (f"Process {label}, rank {rank}", f"{label}.") if label else (f"Rank {rank}", "")
            find = partial(_files, logs, [pattern.format(rank=rank) for pattern in patterns])
            self.outputs.append(Output(f"{before}{rank}", title, find, process=number))

    @property
    def is_running(self) -> bool:
        """Whether a process of the command still runs."""
        return not self._ended.is_set()

    @property
    def code(self) -> int | None:
        """The exit code of the first process that failed. Negative if a signal ended the process."""
        return None if self.is_running else self._code

    @property
    def _code(self) -> int:
        return next((one.code for one in self._guarded if one.code), 0)

    @property
    def has_failed(self) -> bool:
        """Whether the command has ended by itself, with an error."""
        return bool(self.code) and (self._is_lost or not self._was_stopped)

    @property
    def _is_lost(self) -> bool:
        return any(one.is_lost for one in self._guarded)

    @property
    def failure(self) -> str:
        """Why the command could not start. Empty if it started."""
        return next((one.failure for one in self._guarded if one.failure), "")

    @property
    def seconds(self) -> float:
        """How long the command has run, in seconds."""
        return time.monotonic() - self._began if self.is_running else self._seconds

    @property
    def output(self) -> str:
        """The output of the command, or the end of a long output."""
        return "".join(output.text for output in self.outputs)

    @property
    def ranks(self) -> list[Output]:
        """The output of each rank. A command without ranks has one."""
        return [output for output in self.outputs if output.is_rank] or self.outputs

    @property
    def has_ranks(self) -> bool:
        """Whether the output comes from several ranks."""
        return len(self.outputs) > 1

    @property
    def peaks(self) -> dict[Device, int]:
        """The most memory of the command on each GPU, in bytes. gpu_magic reads it once a second."""
        return {device: peak for device in self.devices if (peak := self._peaks.get(device.identity))}

    def is_folded(self, output: Output) -> bool:
        """Return whether a notebook shows an output in a fold at the end, and not as lines at once.

        Lines are for rank 0, the first process that has failed, and launchers.
        """
        return output.is_rank and output is not self.ranks[0] and output.process != self._first_failed

    def follow(self, *, cut: bool, folds: bool = False) -> Iterator[list[tuple[Output, str]]]:
        """Yield new output ten times a second, until the command ends.

        With `cut`, output that is too long for a page is left out. With `folds`, so is folded output.
        """
        most = _MAX_BYTES
        while True:
            has_ended = not self.is_running
            pieces = []
            for output in self.outputs:
                if folds and self.is_folded(output):
                    continue
                if text := output.read(max(most, _ADDED_BYTES // len(self.outputs)) if cut else None):
                    most -= len(text)
                    pieces.append((output, text))
            yield pieces
            if has_ended and (cut or not pieces):
                return
            most = min(_MAX_BYTES, max(0, most) + _ADDED_BYTES)
            self._ended.wait(_OUTPUT_SECONDS)

    @public
    def wait(self, timeout: float | None = None) -> int:
        """Wait until the command ends. Return the exit code.

        Raises
        ------
        TimeoutError
            The command runs longer than the timeout, in seconds.
        CommandFailed
            The command has failed.

        """
        if not self.join(timeout):
            raise TimeoutError(f"{self.typed} still runs after {timeout} s and continues.")
        self.check()
        return self.code or 0

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the command ends. Return whether it ended before the timeout, in seconds."""
        return self._ended.wait(timeout)

    @public
    def check(self) -> None:
        """Raise CommandFailed if the command has failed, with the traceback of the rank that failed first."""
        if not self.has_failed:
            return
        lines = [str(self)]
        if failure := self.first_failure:
            output, traceback = failure
            lines = [f"{output.title}:", traceback, "", *lines]
        raise CommandFailed("\n".join(lines))

    def interrupt(self) -> None:
        """Interrupt the command, as Ctrl-C does. Send TERM after 2 s, and KILL after 5 s."""
        self._was_stopped = self._was_stopped or self.is_running
        for process in self._guarded:
            process.interrupt()

    def end(self) -> None:
        """Send TERM to all processes of the command, and KILL after 3 s."""
        self._was_stopped = self._was_stopped or self.is_running
        for process in self._guarded:
            process.end()

    def stop(self) -> None:
        """End the command. Return when none of its processes is left."""
        self.end()
        if self._guarded:
            self._ended.wait()
        else:  # nothing has started
            self._claims.release()

    def has_started(self, pid: int) -> bool:
        """Return whether a process belongs to the command."""
        return descends_from(pid, {one.pid for one in self._guarded})

    def _is_part(self, process: GpuProcess) -> bool | Unknown:
        """Return whether a process belongs to the command. In a container, each process can."""
        here = process.is_this_process
        return here if here is not True else self.has_started(process.pid)

    def look(self) -> None:
        """Read the command's use of its GPUs now."""
        ours = {device.identity for device in self.devices}
        try:
            there = read_machine(self._session).devices
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the figures, the command goes on
            _log.debug("The use of the GPUs by %s is unknown: %s", printable(self.name), error)
            self._use.clear()
            return
        for device in there:
            uuid, processes = device.identity, device.status.processes
            if uuid not in ours:
                continue
            used: int | Unknown = UNKNOWN
            if processes is not UNKNOWN:
                used = sum_of((self._is_part(one), one.memory) for one in processes)
            if used is not UNKNOWN:
                self._peaks[uuid] = max(used, self._peaks.get(uuid, 0))
            self._use[uuid] = device.status.utilization, used

    def __str__(self) -> str:
        if self.is_running:
            use = " · ".join(map(self._use_of, self.devices))
            return f"{self.typed}: running · {self.seconds:.0f} s · {use}"
        how = "stopped" if self._was_stopped else how_it_ended(self._code, self.failure)
        how = LOST if self._is_lost else how
        parts = [f"{self.typed}: {how}", f"{self.seconds:.1f} s"]
        parts += [
            f"{self._mark}{device.label} at most {bytes_text(size)}" for device, size in self.peaks.items()
        ]
        held = self._claims.held if self._is_lost else ()
        if labels := [device.label for device in self.devices if device.identity in held]:
            verb = "stays" if len(labels) == 1 else "stay"
            parts.append(f"{self._mark}{listed(labels)} {verb} claimed by this process")
        return " · ".join([*parts, *self.causes])

    def _use_of(self, device: Device) -> str:
        """Return `GPU 1: 97 %, 2.0 GiB`. Unknown utilization is `?`. Unknown memory is left out."""
        if (use := self._use.get(device.identity)) is None:  # nothing was read yet
            return f"{self._mark}{device.label}"
        utilization, used = use
        figures = ["?" if utilization is UNKNOWN else f"{utilization} %"]
        figures += [] if used is UNKNOWN else [bytes_text(used)]
        return f"{self._mark}{device.label}: {', '.join(figures)}"

    def _read_reports(self, running: selectors.BaseSelector) -> None:
        """Read the guardians' reports, and the GPUs once a second, until all processes have ended."""
        next_use = 0.0
        while running.get_map():
            for key, _ in running.select(max(0.0, next_use - time.monotonic())):
                number, one = key.data
                one.read_report()
                if one.code and self._first_failed is None and self._commands[1:]:
                    self._first_failed = number
                if one.has_ended:
                    running.unregister(key.fd)
            if time.monotonic() >= next_use and running.get_map():
                next_use = time.monotonic() + _USE_SECONDS
                self.look()

    def _watch(self, causes: Causes) -> None:
        """Follow the processes to their end. Then find why they failed, and release the claims."""
        try:
            with selectors.DefaultSelector() as running:
                for number, one in enumerate(self._guarded):
                    running.register(one.report, selectors.EVENT_READ, (number, one))
                self._read_reports(running)
            self._seconds = time.monotonic() - self._began
            console = "".join(output.text for output in self.outputs if not output.is_rank)
            self.causes = causes.find([one.code for one in self._guarded], console)
            if self._code and not self._was_stopped:
                failed = [one for one in self.outputs if one.is_rank and self._guarded[one.process].code]
                found = [(one, text) for one in failed if (text := last_traceback(one.text))]
                self.first_failure = min(found, key=lambda one: one[0].changed, default=None)
        finally:
            for one in self._guarded:  # also after an error: nothing that runs is called ended
                while not one.has_ended:
                    one.read_report()
            if self._is_lost:
                _kept_claims.append(self._claims)
            else:
                self._claims.release()
            with suppress(OSError):
                # The process is idle from now on, not since its last cell.
                self._session.claims.publish_activity()
            # Before the event, so that the log has the line when a waiting caller continues.
            _log.info("%s has ended with code %d", printable(self.name), self._code)
            self._ended.set()


def _files(folder: Path, patterns: Iterable[str]) -> list[Path]:
    return [file for pattern in patterns for file in sorted(folder.glob(pattern))]
