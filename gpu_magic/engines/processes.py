"""The processes of engines on this machine: a controller and one engine a GPU, each under a guardian."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from gpu_magic.engines.ranks import Meeting, rank_variables
from gpu_magic.engines.starter import CONTROLLER, Starter
from gpu_magic.errors import ClusterError
from gpu_magic.launching.failures import Causes, how_it_ended
from gpu_magic.launching.guarded import Guarded
from gpu_magic.launching.guardian import send
from gpu_magic.launching.run_folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gpu_magic.engines.engine import Engine
    from gpu_magic.gpus.select import Selection

__all__ = ["LocalProcesses"]

# Seconds: what the nanny of an engine may take to tell the controller that the engine has ended, and how long
# an engine waits for the controller at its start.
_LINGER, _WAIT = 5, 60
# Milliseconds between two heartbeats, with which the controller finds new engines, too; and how many may be
# missed. Hearts beat in a thread of libzmq's, whatever Python does (ipyparallel/controller/heartmonitor.py).
_BEAT, _MISSED = 250, 120
_AGAIN = 0.02  # seconds between two looks
# Connection files: those of the controller, and the one that engines wait for.
_FOR_CLIENTS, _FOR_ENGINES, _ENGINES = "ipcontroller-client.json", "ipcontroller-engine.json", "engines.json"
_MOST_SHOWN, _MOST_LINES = 16 << 10, 10  # bytes and lines of a log


class LocalProcesses(Starter):
    """The controller and the engines, from their start to their end.

    Parameters
    ----------
    parts
        The GPUs of each engine, in the order of their numbers.

    Attributes
    ----------
    codes
        The exit code of each process that has ended, by its number: negative where a signal has ended it, and
        None where it can't be known.

    """

    is_here = True
    can_restart = True

    def __init__(self, parts: Sequence[Selection]) -> None:
        self._parts, self._meeting = parts, Meeting.on_one_host(len(parts))
        self._files = RunFolder()
        self._folder = self._files.path
        self._security = self._folder / "security"
        self._causes = Causes(self._folder)
        self.codes: dict[int, int | None] = {}
        self._running: dict[int, tuple[Guarded, threading.Thread]] = {}
        self._expected: set[int] = set()  # those that are being ended
        self._security.mkdir(mode=0o700)
        try:
            self._start_controller()
            for number in range(len(parts)):
                self.start(number)
        except BaseException:  # an interrupt, too
            self.end()
            raise

    def start(self, number: int) -> None:
        """Start an engine, also in the place of one that has ended."""
        part = self._parts[number]
        self._run(
            number,
            [
                "ipyparallel.engine",
                f"--file={self._security / _ENGINES}",
                f"--IPEngine.wait_for_url_file={_WAIT}",
                f"--timeout={_WAIT}",
                f"--IPEngine.id={number}",
            ],
            {
                **part.variables,
                "GPU_MAGIC_INDEX": str(number),
                "GPU_MAGIC_COUNT": str(len(self._parts)),
                **rank_variables(number, self._meeting),
            },
        )

    def _start_controller(self) -> None:
        self._run(
            CONTROLLER,
            [
                "ipyparallel.controller",
                "--ip=127.0.0.1",
                "--nodb",
                "--usethreads",
                f"--ping={_BEAT}",
                f"--HeartMonitor.max_heartmonitor_misses={_MISSED}",
            ],
            {},
        )

    def connection_file(self) -> Path:
        """Wait for the controller, and return the connection file for clients.

        Raises
        ------
        ClusterError
            The controller has not come.

        """
        deadline = time.monotonic() + _WAIT
        while not all(map(_is_whole, (self._security / _FOR_CLIENTS, self._security / _FOR_ENGINES))):
            self.check(*range(len(self._parts)))
            if time.monotonic() > deadline:
                raise ClusterError(f"The controller has not answered within {_WAIT} s.")
            time.sleep(_AGAIN)
        return self._security / _FOR_CLIENTS

    def let_engines_come(self) -> None:
        """Let the engines connect, once there is a client.

        A client that connects while they do can miss one: it asks for a list, and subscribes to what changes
        only then. And the controller writes its file in place, so that an engine could read a part of it.
        """
        (self._security / _FOR_ENGINES).rename(self._security / _ENGINES)

    @property
    def has_no_controller(self) -> bool:
        return CONTROLLER in self.codes

    def check(self, *numbers: int) -> None:
        """Raise ClusterError where the controller, or one of these engines, has ended while they start."""
        for number in {CONTROLLER, *numbers} & self.codes.keys():
            what = "The controller" if number == CONTROLLER else f"Engine {number}"
            last = "".join(self.last_lines(number)[-1:])
            raise ClusterError(f"{what}: {self.how_it_ended(number)} while it started. {last}")

    def _run(self, number: int, words: Sequence[str], variables: Mapping[str, str | None]) -> None:
        # Variables for programs of ipyparallel would lead them to another cluster.
        mine = {name: value for name, value in os.environ.items() if not name.startswith("IPP_")}
        environment = {name: value for name, value in {**mine, **variables}.items() if value is not None}
        self.log(number).unlink(missing_ok=True)  # that of the one before
        guarded = Guarded(
            # -P: a file of the user's must not stand in for a module of Python's.
            [sys.executable, "-P", "-m", *words, f"--profile-dir={self._folder}", "--log-level=CRITICAL"],
            environment,
            os.getcwd(),  # noqa: PTH109
            self.log(number),
            str(self._folder),
            linger=_LINGER,
        )
        self.codes.pop(number, None)
        self._expected.discard(number)
        thread = threading.Thread(
            target=self._follow, args=(number, guarded), name=f"gpu_magic engine {number}", daemon=True
        )
        self._running[number] = guarded, thread
        thread.start()

    def _follow(self, number: int, one: Guarded) -> None:
        while not one.has_ended:
            one.read_report()
            if (one.code is not None or one.has_ended) and number not in self.codes:
                self.codes[number] = one.code
                if self.on_end and number not in self._expected:
                    self.on_end(number, self.how_it_ended(number), self.last_lines(number))

    @property
    def logs(self) -> dict[int, str]:  # type: ignore[override] # it is only read
        return {number: str(self.log(number)) for number in range(len(self._parts))}

    def log(self, number: int) -> Path:
        """Return the file with what a process has written, outside of cells."""
        return self._folder / ("controller.log" if number == CONTROLLER else f"engine-{number}.log")

    def how_it_ended(self, number: int) -> str:
        """Return what became of a process, and what of the machine can be the cause."""
        code = self.codes[number]
        how = how_it_ended(code, "") if code else "ended"
        return " · ".join([how, *self._causes.find([code], [])])

    def last_lines(self, number: int) -> list[str]:
        """Return the end of what a process has written, outside of cells."""
        try:
            text = self.log(number).read_bytes()[-_MOST_SHOWN:].decode(errors="replace")
        except OSError:
            return []
        lines = [line for line in text.splitlines() if line.strip() and "[KernelNanny" not in line]
        # The frames of a crash, of which the first are the user's (faulthandler).
        fatal = next((place for place, line in enumerate(lines) if line.startswith("Fatal ")), None)
        return lines[-_MOST_LINES:] if fatal is None else lines[fatal : fatal + _MOST_LINES]

    def how_to_restart(self, numbers: Sequence[int]) -> str:
        names = ",".join(map(str, numbers))
        return f"%gpu_cluster restart {names} starts {'it' if len(numbers) == 1 else 'them'} anew"

    def end_engines(self, engines: Sequence[Engine]) -> None:
        for engine in engines:
            self._expected.add(engine.number)
            send(engine.process, signal.SIGKILL)
        for engine in engines:
            self._running[engine.number][1].join()

    def note_gone(self, number: int) -> None:
        """Do nothing: the end of the process itself is seen."""

    def end(self) -> None:
        """End all of them, and return when nothing of them is left."""
        self._expected |= self._running.keys()
        for guarded, _ in self._running.values():
            guarded.end()
        for _, thread in self._running.values():
            thread.join()
        self._files.remove()


def _is_whole(file: Path) -> bool:
    try:
        json.loads(file.read_bytes())
    except (OSError, ValueError):
        return False
    return True
