"""The processes of a cluster on this machine: a controller and engines, each under a guardian."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress
from random import SystemRandom
from typing import TYPE_CHECKING, Any

from gpu_magic.cluster.engine import LOCAL, rank_variables
from gpu_magic.devices.processes import descends_from
from gpu_magic.errors import ClusterError
from gpu_magic.interrupts import uninterrupted
from gpu_magic.launch.process import LOST, Causes, Guarded, RunFolder, free_ports, how_it_ended
from gpu_magic.process.watch import cuda_watch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from gpu_magic.gpus.select import Selection

__all__ = ["LocalProcesses", "own_places"]

# Seconds that an engine's nanny may take to report the engine's end to the controller, and that processes may
# take to answer and to end.
_LINGER, _WAIT, _END = 5, 60, 30
# Milliseconds between two heartbeats, by which the controller also finds new engines, and how many an engine
# may miss. A thread of libzmq answers them, also if Python is busy (ipyparallel/controller/heartmonitor.py).
_BEAT, _MISSED = 250, 120
_AGAIN = 0.02  # seconds between two checks
# Seconds that ipyparallel's client waits for the controller between two checks that the controller runs.
_ANSWER = 5
# Ports for a controller. ipyparallel 9.2 uses 18, and finds more ports itself if it gets fewer.
_PORTS = 20
_CONTROLLER = -1  # the controller's number; engines count from 0
# Connection files: two that the controller writes, and the one that engines wait for.
_FOR_CLIENTS, _FOR_ENGINES, _ENGINES = "ipcontroller-client.json", "ipcontroller-engine.json", "engines.json"
_MOST_SHOWN, _MOST_LINES = 16 << 10, 10  # bytes and lines of a log


class LocalProcesses:
    """The processes of the controller and the engines. Each of `parts` has the GPUs of an engine."""

    # Called in a thread if a process ends by itself, with its number, how it ended (`ended by SIGKILL`), and
    # its last lines of output outside cells.
    on_end: Callable[[int, str, Sequence[str]], None] | None = None

    def __init__(self, parts: Sequence[Selection]) -> None:
        self._parts, count = parts, len(parts)
        self._ranks = rank_variables([LOCAL] * count, {LOCAL: free_ports(count + 2)})
        self._files = RunFolder()
        self._folder = self._files.path
        self._causes = Causes(self._folder)
        self._security = self._folder / "security"
        self._security.mkdir(mode=0o700)
        self._running: dict[int, tuple[Guarded, threading.Thread]] = {}
        self._ended: dict[int, str] = {}  # how processes ended, by number
        self.expected: set[int] = set()  # processes that gpu_magic ends itself
        try:
            timing = f"--ping={_BEAT}", f"--HeartMonitor.max_heartmonitor_misses={_MISSED}"
            self._run(_CONTROLLER, "controller", [*own_places(), "--nodb", "--usethreads", *timing], {})
            for number in range(count):
                self.start(number)
        except BaseException:  # also an interrupt
            self.end()
            raise

    def start(self, number: int) -> None:
        """Start an engine, also again after its end."""
        wait = f"--IPEngine.wait_for_url_file={_WAIT}", f"--timeout={_WAIT}"
        options = [f"--file={self._security / _ENGINES}", f"--IPEngine.id={number}", *wait]
        variables = {**self._parts[number].variables, **self._ranks[number]}
        self._run(number, "engine", options, variables)

    def connect(self, client_class: Any) -> Any:
        """Connect ipyparallel's client, and then let the engines connect.

        A client that connects at the same time as an engine can miss the engine, because it subscribes to
        changes only after it has read the list of engines. The controller writes the connection file in
        place, so an engine could also read a partial file.
        """
        for_clients, for_engines = files = [self._security / name for name in (_FOR_CLIENTS, _FOR_ENGINES)]
        self.wait_for_answer(_CONTROLLER, lambda: all(map(_is_whole, files)))
        clients: list[Any] = []

        def has_answered() -> bool:
            with suppress(TimeoutError):
                clients.append(client_class(str(for_clients), timeout=_ANSWER))
            return bool(clients)

        self.wait_for_answer(_CONTROLLER, has_answered)
        for_engines.rename(self._security / _ENGINES)
        return clients[0]

    def wait_for_answer(self, number: int, has_answered: Callable[[], bool]) -> None:
        """Wait until a process has answered. Raise ClusterError if it has ended or takes over a minute."""
        self._wait(has_answered, _WAIT, f"{_name(number)} did not answer within {_WAIT} s.", number)

    def wait_for_start(self, number: int, client: Any) -> None:
        """Wait until the controller has registered an engine."""
        self.wait_for_answer(number, lambda: number in client.ids)

    def wait_for_end(self, number: int, client: Any) -> None:
        """Wait until all processes of an engine have ended, and the controller knows that."""
        thread = self._running[number][1]
        says = f"{_name(number)} did not end within {_END} s. To end all engines: %gpu_cluster stop"
        self._wait(lambda: not thread.is_alive() and number not in client.ids, _END, says)

    def _wait(self, is_true: Callable[[], bool], seconds: float, says: str, *numbers: int) -> None:
        deadline = time.monotonic() + seconds
        while not is_true():
            for number in {_CONTROLLER, *numbers} & self._ended.keys():
                last = "".join(self._last_lines(number)[-1:])
                raise ClusterError(f"{_name(number)} {self._ended[number]} while starting. {last}")
            if time.monotonic() > deadline:
                raise ClusterError(says)
            time.sleep(_AGAIN)

    @property
    def has_controller(self) -> bool:
        """Whether the controller still runs."""
        return _CONTROLLER not in self._ended

    def number_of(self, pid: int) -> int | None:
        """Return the number of the engine that a process belongs to. None: no engine's process."""
        guardians = {guarded.pid: number for number, (guarded, _) in self._running.items() if number >= 0}
        return next((number for one, number in guardians.items() if descends_from(pid, (one,))), None)

    def log(self, number: int) -> Path:
        """Return the file with a process's output outside cells."""
        return self._folder / f"engine{number}.log"

    def end(self) -> None:
        """End the controller and the engines. Return when no process is left."""
        self.expected |= self._running.keys()
        for guarded, _ in self._running.values():
            guarded.end()
        for _, thread in self._running.values():
            thread.join()
        self._files.remove()

    def _run(self, number: int, program: str, options: list[str], set_: Mapping[str, str | None]) -> None:
        # Variables of ipyparallel would connect its programs to another cluster.
        variables = cuda_watch.environment()
        own = {name: value for name, value in variables.items() if not name.startswith("IPP_")}
        self.log(number).unlink(missing_ok=True)  # the log of an earlier process
        # -P, so that a file of the user cannot replace a module of Python.
        words = [sys.executable, "-P", "-m", f"ipyparallel.{program}", f"--profile-dir={self._folder}"]
        with uninterrupted():  # so that `end` finds each process that has started, and its thread
            guarded = Guarded(
                [*words, "--log-level=CRITICAL", *options],
                {name: value for name, value in {**own, **set_}.items() if value is not None},
                os.getcwd(),  # noqa: PTH109
                self.log(number),
                str(self._folder),
                linger=_LINGER,
            )
            self._ended.pop(number, None)
            self.expected.discard(number)
            thread = threading.Thread(target=self._follow, args=(number, guarded), daemon=True)
            self._running[number] = guarded, thread
            thread.start()

    def _follow(self, number: int, guarded: Guarded) -> None:
        while not guarded.has_ended:
            guarded.read_report()
            if guarded.code is not None and number not in self._ended:
                how = how_it_ended(guarded.code, "") if guarded.code else "ended"
                how = LOST if guarded.is_lost else how
                self._ended[number] = " · ".join([how, *self._causes.find([guarded.code])])
                if self.on_end and number not in self.expected:
                    self.on_end(number, self._ended[number], self._last_lines(number))

    def _last_lines(self, number: int) -> list[str]:
        """Return a process's last lines of output outside cells."""
        try:
            text = self.log(number).read_bytes()[-_MOST_SHOWN:].decode(errors="replace")
        except OSError:
            return []
        lines = [line for line in text.splitlines() if line.strip() and "[KernelNanny" not in line]
        # After a crash, the first frames of faulthandler are the user's.
        fatal = next((place for place, line in enumerate(lines) if line.startswith("Fatal ")), None)
        return lines[-_MOST_LINES:] if fatal is None else lines[fatal : fatal + _MOST_LINES]


def own_places() -> list[str]:
    """Return options for a controller: a random loopback address, and ports that Linux does not assign.

    If another program opens a port before the controller does, the controller or one of its threads ends.
    """
    address = ".".join(["127", *(str(SystemRandom().randint(1, 254)) for _ in range(3))])
    ports = ",".join(map(str, free_ports(_PORTS)))
    return [f"--ip={address}", f"--IPController.monitor_ip={address}", f"--ports={ports}"]


def _name(number: int) -> str:
    return "The controller" if number == _CONTROLLER else f"Engine {number}"


def _is_whole(file: Path) -> bool:
    try:
        json.loads(file.read_bytes())
    except (OSError, ValueError):
        return False
    return True
