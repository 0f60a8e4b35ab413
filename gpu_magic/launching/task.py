"""A command on its GPUs: it is started, followed, ended, and tells what became of it."""

from __future__ import annotations

import logging
import selectors
import threading
import time
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING

from gpu_magic.devices.processes import descends_from
from gpu_magic.errors import CommandFailed, GpuMagicError
from gpu_magic.launching.failures import Causes, find_first_failure, how_it_ended
from gpu_magic.launching.gpu_use import GpuUse
from gpu_magic.launching.guarded import Guarded
from gpu_magic.launching.output import Output
from gpu_magic.process.tasks import BackgroundTask
from gpu_magic.public import public
from gpu_magic.text import bytes_text, listed, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from gpu_magic.devices.model import Device
    from gpu_magic.launching.prepared import Prepared, Process
    from gpu_magic.process.session import Session

__all__ = ["Task"]

_LOOK_AGAIN = 1.0  # seconds between two looks at the GPUs
_READ_AGAIN = 0.1  # seconds between two looks at what is written
# Bytes that `follow` yields at once, and how many more of them each time: a Jupyter server drops what exceeds
# 1 MB a second.
_MOST_AT_ONCE = 512 << 10
_MORE = 48 << 10
_log = logging.getLogger("gpu_magic.launching")


class Task(BackgroundTask):
    """A command that was launched. `str` returns a line: what its GPUs do, or what became of it.

    Parameters
    ----------
    name
        What it is called.
    prepared
        What is run. Its files go with the task.
    session
        This process's, whose GPUs are looked at meanwhile.
    is_attached
        Whether it has this process's input, and where it has no ranks its output: in a shell.

    Attributes
    ----------
    devices
        Its GPUs, in the order of `cuda:i`.
    outputs
        What it writes: an `Output` for each rank, and one for the launcher itself.
    causes
        What of the machine can have made it fail, a clause each.

    """

    def __init__(self, name: str, prepared: Prepared, session: Session, *, is_attached: bool = False) -> None:
        processes = prepared.processes
        self.name, self.typed, self.files = name, prepared.typed, prepared.files
        self.devices = tuple(device for process in processes for device in process.devices)
        self.notes = processes[0].plan.notes
        self._claims = prepared.claims
        self._is_attached = is_attached
        self._begun = time.monotonic()
        self._seconds: float | None = None
        self._use = GpuUse(self.devices, session)
        self._was_stopped = False
        self.causes: list[str] = []
        self._causes = Causes(self.files.path.parent)
        self.outputs: list[Output] = []
        self._guarded: list[Guarded] = []
        try:
            for number, process in enumerate(processes):
                self._start(process, prepared.folder, str(number) if len(processes) > 1 else "")
            self._ended = threading.Event()
            watcher = threading.Thread(target=self._watch, name=f"gpu_magic {name}", daemon=True)
            _log.info("Started %s on %s", printable(name), listed(device.label for device in self.devices))
            watcher.start()
        except BaseException:  # an interrupt, too
            for started in self._guarded:
                started.give_up()
            self.files.remove()
            self._claims.release()
            raise

    def _start(self, process: Process, folder: str, label: str) -> None:
        plan, logs = process.plan, self.files.path / f"ranks{label}"
        console = self.files.path / f"output{label}.log"
        command = plan.command_with_logs(str(logs)) if plan.ranks else plan.command
        environment = {**process.environment, **plan.logging_variables}
        output = None if self._is_attached and not plan.ranks and not label else console
        self._guarded.append(
            Guarded(command, environment, folder, output, str(self.files.path), has_input=self._is_attached)
        )
        title, before = (f"Process {label}", f"{label}.") if label else ("Launcher", "")
        number, has_console = len(self._guarded) - 1, bool(label) and not plan.ranks
        self.outputs.append(Output(label, title, lambda: [console], is_rank=has_console, process=number))
        for rank in range(plan.ranks):
            patterns = [pattern.format(rank=rank) for pattern in plan.logs]
            title = f"Process {label}, rank {rank}" if label else f"Rank {rank}"
            find = partial(_files, logs, patterns)
            self.outputs.append(Output(f"{before}{rank}", title, find, process=number))

    @property
    def is_running(self) -> bool:
        """Whether anything of it is left."""
        return not self._ended.is_set()

    @property
    def code(self) -> int | None:
        """The exit code: that of the first process that failed; negative where a signal ended it."""
        return None if self.is_running else self._first_code

    @property
    def _first_code(self) -> int:
        return next((one.code for one in self._guarded if one.code), 0)

    @property
    def has_failed(self) -> bool:
        """Whether it has ended by itself, and not well."""
        return not self.is_running and bool(self.code) and not self._was_stopped

    @property
    def failure(self) -> str:
        """Why it could not be started; empty where it could."""
        return next((one.failure for one in self._guarded if one.failure), "")

    @property
    def seconds(self) -> float:
        """For how long it has run."""
        return time.monotonic() - self._begun if self._seconds is None else self._seconds

    @property
    def output(self) -> str:
        """All that it has written; of long outputs, the end."""
        return "".join(output.text for output in self.outputs)

    @property
    def ranks(self) -> list[Output]:
        """What each rank has written; a command without ranks has one."""
        return [output for output in self.outputs if output.is_rank] or self.outputs

    @property
    def has_ranks(self) -> bool:
        """Whether what it writes comes from several ranks."""
        return len(self.outputs) > 1

    @property
    def peaks(self) -> dict[Device, int]:
        """The most memory that was seen in use by it on each GPU, in bytes; looked at once a second."""
        return self._use.peaks

    def follow(self, *, cut: bool) -> Iterator[list[tuple[Output, str]]]:
        """Yield what was written since the last look, ten times a second, until its end.

        Parameters
        ----------
        cut
            Leave out what is too much for a page.

        """
        most = _MOST_AT_ONCE
        while True:
            has_ended = not self.is_running
            pieces = []
            for output in self.outputs:
                if text := output.read(max(most, _MORE // len(self.outputs)) if cut else None):
                    most -= len(text)
                    pieces.append((output, text))
            yield pieces
            if has_ended and (cut or not pieces):
                return
            most = min(_MOST_AT_ONCE, max(0, most) + _MORE)
            self._ended.wait(_READ_AGAIN)

    @public
    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return the exit code.

        Raises
        ------
        TimeoutError
            It runs longer than the timeout, in seconds.
        CommandFailed
            It has failed.

        """
        if not self.join(timeout):
            raise TimeoutError(f"{self.typed} runs longer than {timeout} s; it goes on.")
        self.check()
        return self.code or 0

    def join(self, timeout: float | None = None) -> bool:
        """Wait for its end, however it ends; return whether it has come before the timeout, in seconds."""
        return self._ended.wait(timeout)

    @public
    def check(self) -> None:
        """Raise CommandFailed where it has failed, with the traceback of the rank that failed first."""
        if not self.has_failed:
            return
        lines = [str(self)]
        if failure := self.first_failure:
            output, traceback = failure
            lines = [f"{output.title}:", traceback, "", *lines]
        raise CommandFailed("\n".join(lines))

    @property
    def first_failure(self) -> tuple[Output, str] | None:
        """The rank that was the first to write a traceback, and that; None where it has not failed."""
        return self._first_failure if self.has_failed else None

    @cached_property
    def _first_failure(self) -> tuple[Output, str] | None:
        failed = [output for output in self.outputs if output.is_rank and self._guarded[output.process].code]
        return find_first_failure(failed)

    def interrupt(self) -> None:
        """Interrupt it as Ctrl-C does; what is left after 2 s gets TERM, after 5 s KILL."""
        self._was_stopped = self._was_stopped or self.is_running
        for process in self._guarded:
            process.interrupt()

    def end(self) -> None:
        """Send TERM to all that it has started, and KILL after 3 s."""
        self._was_stopped = self._was_stopped or self.is_running
        for process in self._guarded:
            process.end()

    def stop(self) -> None:
        """End it, and return when nothing of it is left."""
        self.end()
        self._ended.wait()

    def has_started(self, pid: int) -> bool:
        """Return whether a process is of the command."""
        return descends_from(pid, {one.pid for one in self._guarded})

    def look(self) -> None:
        """Read what it uses of its GPUs now."""
        with suppress(GpuMagicError):  # a simulation that is described anew, and wrongly
            self._use.look({one.pid for one in self._guarded})

    def __str__(self) -> str:
        if self.is_running:
            return f"{self.typed}: running · {self.seconds:.0f} s · {self._use}"
        how = "stopped" if self._was_stopped else how_it_ended(self.code or 0, self.failure)
        parts = [f"{self.typed}: {how}", f"{self.seconds:.1f} s"]
        parts += [f"{device.label} at most {bytes_text(size)}" for device, size in self.peaks.items()]
        parts += self.causes
        return " · ".join(parts)

    def _watch(self) -> None:
        """Follow what the guardians say, and look at the GPUs, until all has ended."""
        try:
            with selectors.DefaultSelector() as running:
                for one in self._guarded:
                    running.register(one.report, selectors.EVENT_READ, one)
                look_at = 0.0
                while running.get_map():
                    for key, _ in running.select(max(0.0, look_at - time.monotonic())):
                        one = key.data
                        one.read_report()
                        if one.has_ended:
                            running.unregister(key.fd)
                    if time.monotonic() >= look_at and running.get_map():
                        look_at = time.monotonic() + _LOOK_AGAIN
                        self.look()
            self._seconds = time.monotonic() - self._begun
            self.causes = self._causes.find([one.code for one in self._guarded], self.outputs)
        finally:
            self._claims.release()
            # Before anybody learns of it, so that the line is there for whoever has waited for the end.
            _log.info("%s has ended with code %d", printable(self.name), self._first_code)
            self._ended.set()


def _files(folder: Path, patterns: Iterable[str]) -> list[Path]:
    return [file for pattern in patterns for file in sorted(folder.glob(pattern))]
