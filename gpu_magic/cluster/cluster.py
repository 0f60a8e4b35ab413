"""A cluster of engines: their GPUs, their restart, their interrupt and their end."""

from __future__ import annotations

import signal
import sys
import threading
from concurrent.futures import wait
from contextlib import suppress
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic import errors
from gpu_magic.devices.model import UNKNOWN, sum_of
from gpu_magic.devices.processes import descends_from
from gpu_magic.errors import ClusterError
from gpu_magic.gpus.table import memory_texts
from gpu_magic.interrupts import defer_interrupts
from gpu_magic.process.session import current
from gpu_magic.process.view import read_machine
from gpu_magic.processes.processes import Manager, finders
from gpu_magic.public import public
from gpu_magic.text import (
    counted,
    html_block,
    html_table,
    listed,
    printable,
    shortened,
    simulated_mark,
    text_table,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpu_magic.cluster.launchers import GpuEngineSetLauncher
    from gpu_magic.devices.model import Device, GpuProcess
    from gpu_magic.launch.process import RunFolder

__all__ = [
    "LONGEST_ERROR",
    "OUTPUT_SECONDS",
    "Cluster",
    "Engine",
    "EngineTable",
    "capitalized",
    "current_cluster",
    "end_engines",
    "running_cluster",
    "use",
]

_INTERRUPT_SECONDS = 5.0  # that an engine may take to answer an interrupt
_CONTROLLER_SECONDS = 5.0  # that the controller may take to answer
OUTPUT_SECONDS = 10.0  # that outputs may come after the result
LONGEST_ERROR = 200  # characters
_START_ANEW = "To start again: %gpu_cluster stop, then %gpu_cluster"


class Engine(NamedTuple):
    """An engine. `str` returns its number and its GPUs.

    Parameters
    ----------
    number
        Its number in ipyparallel. Its rank is the position of this number among all engines.
    devices
        Its GPUs, in the order of `cuda:i`.
    host
        Its machine, if the engines run on several.
    is_simulated
        Whether its GPUs do not exist.

    """

    number: int
    devices: tuple[Device, ...]
    host: str = ""
    is_simulated: bool = False

    @property
    def label(self) -> str:
        """`engine 0 (GPU 2)`, `engine 0 (GPU 2 on node-a)`."""
        return f"engine {self.number} ({listed(device.label for device in self.devices)}{self._where})"

    @property
    def gpus(self) -> str:
        """`GPU 2 (NVIDIA A100 80GB)`, `GPU 2 and GPU 3 (NVIDIA A100 80GB) on node-a`."""
        mark = simulated_mark(self.is_simulated)
        texts = []
        for name, alike in groupby(self.devices, key=lambda device: device.name):
            labels = listed(device.label for device in alike)
            texts.append(labels if name is UNKNOWN else f"{labels} ({mark}{printable(name)})")
        return f"{listed(texts)}{self._where}"

    @property
    def _where(self) -> str:
        return f" on {printable(self.host)}" if self.host else ""

    def __str__(self) -> str:
        """Return `0 = GPU 2 (NVIDIA A100 80GB)`."""
        return f"{self.number} = {self.gpus}"


class EngineTable:
    """What engines do, and the memory in use on their GPUs. Shows itself as text and as HTML."""

    _HEADINGS = ("Engine", "GPU", "Memory", "State")

    def __init__(self, rows: Sequence[Sequence[str]]) -> None:
        self._rows = rows

    def __repr__(self) -> str:
        return "\n".join(text_table(self._HEADINGS, self._rows))

    def _repr_html_(self) -> str:
        return html_block("", html_table(self._HEADINGS, self._rows))


class Cluster:
    """Engines that have their GPUs and are ready. `str` returns them as one line.

    Attributes
    ----------
    client
        ipyparallel's client.
    engines
        All engines by their numbers, also those that have ended.

    """

    def __init__(
        self,
        client: Any,
        engines: Iterable[Engine],
        started: Any = None,  # ipyparallel's cluster. None: another program has started the engines
        files: RunFolder | None = None,  # of engines that gpu_magic has started on this machine
    ) -> None:
        self.client, self._started, self._files = client, started, files
        self._launcher: GpuEngineSetLauncher | None = started.engine_set if files else None
        self.engines = {engine.number: engine for engine in engines}
        # By engine number: the messages of the interrupted work, and of a later request. A reply to any of
        # them shows that the engine is free. When an engine ends, ipyparallel replies for it.
        self._interrupted: dict[int, set[str]] = {}
        self.is_stopped = False
        self._reported: set[int | None] = set()  # engines whose end was reported. None: the controller

    def __str__(self) -> str:
        engines = self.engines.values()
        return f"{counted(len(engines), 'engine')}: {', '.join(map(str, engines))}"

    def __repr__(self) -> str:
        return f"<Cluster {self}>"

    @property
    def can_restart(self) -> bool:
        """Whether `restart` can start the engines again, because gpu_magic started them on this machine."""
        return self._launcher is not None

    @property
    def owns_engines(self) -> bool:
        """Whether `stop` ends the engines. Engines that another program started do not end."""
        return self._started is not None

    @property
    def ended(self) -> list[Engine]:
        """The engines that have ended."""
        there = self.client.ids
        return [engine for number, engine in self.engines.items() if number not in there]

    def find(self, numbers: Iterable[int] | None = None) -> list[Engine]:
        """Return engines by their numbers. None: all."""
        wanted = list(self.engines if numbers is None else numbers)
        if unknown := [number for number in wanted if number not in self.engines]:
            there = listed(map(str, self.engines))
            raise ClusterError(f"There is no engine {unknown[0]}. There are {there}.")
        return [self.engines[number] for number in wanted]

    def check(self, numbers: Iterable[int] | None = None) -> list[Engine]:
        """Return engines that can run code. Raise ClusterError if one has ended or ignored an interrupt."""
        self._check_controller()
        wanted, ended = self.find(numbers), self.ended
        if gone := [engine for engine in wanted if engine in ended]:
            how = f"{about(gone, 'has', 'have')} ended. {self.how_to_restart(gone)}"
            others = ",".join(str(engine.number) for engine in wanted if engine not in ended)
            raise ClusterError(f"{how}. To use the others: %%px --targets {others}" if others else how)
        if left := [engine for engine in wanted if self._is_left(engine.number)]:
            raise ClusterError(self.still_running(left))
        return wanted

    def still_running(self, engines: Sequence[Engine]) -> str:
        """Return which engines ignored an interrupt, and how to restart them, without the last full stop."""
        return f"{about(engines, 'does', 'do')} not respond to the interrupt. {self.how_to_restart(engines)}"

    def how_to_restart(self, engines: Sequence[Engine]) -> str:
        """Return how to restart engines, as a sentence without its full stop."""
        if self._started is None:
            return "Only the program that started the engines can restart them"
        if not self.can_restart:
            profile = self._started.profile
            return f"To restart all engines: %gpu_cluster stop, then %gpu_cluster --profile {profile}"
        numbers = ",".join(str(engine.number) for engine in engines)
        return f"To restart {'it' if len(engines) == 1 else 'them'}: %gpu_cluster restart {numbers}"

    @public
    def restart(self, numbers: Iterable[int] | None = None) -> list[Engine]:
        """Restart engines with the same GPUs, even if they run something. Return them.

        Parameters
        ----------
        numbers
            The numbers of the engines. None: the engines that have ended.

        Raises
        ------
        ClusterError
            There is no such engine, another program has started it, or it does not start.

        """
        self._check_controller()
        engines = self.ended if numbers is None else self.find(numbers)
        if not engines:
            return []
        if self._launcher is None:
            raise ClusterError(self.how_to_restart(engines))
        self._launcher.restart(self.client, [engine.number for engine in engines])
        self._reported -= {engine.number for engine in engines}
        return engines

    @public
    def status(self) -> EngineTable:
        """Return a table: what each engine does, and the memory in use on its GPUs.

        The memory of other machines is unknown.
        """
        self._check_controller()
        busy, ended = busy_engines(self.client), self.ended
        here = {device.identity: device for device in read_machine(current()).devices}
        rows = []
        for number, engine in self.engines.items():
            state = "ended" if engine in ended else "busy" if number in busy else "idle"
            devices = [here.get(device.identity) for device in engine.devices]
            used = sum_of((True, device.status.memory_used if device else UNKNOWN) for device in devices)
            total = sum_of((True, device.memory_total) for device in engine.devices)
            rows.append((str(number), engine.gpus, memory_texts(used, total)[0], state))
        return EngineTable(rows)

    def interrupt(self, running: Mapping[int, str]) -> list[Engine]:
        """Interrupt engines. Return those that still run after 5 s. `check` then refuses them.

        `running` has the number of each engine, and the message id of its work. C code that does not check
        for signals continues, for example a collective that waits for other ranks.
        """
        self._interrupted.update((number, {message}) for number, message in running.items())
        if left := [number for number in running if self._is_left(number)]:
            self.client.send_signal(signal.SIGINT, targets=left, block=False)
            # Wait for a later call, whose reply shows that the engine is done with the work. While an engine
            # replies to a failed cell, it drops cells that arrive, and an interrupt can cost the reply.
            after = {number: self.client[number].apply_async(bool) for number in left}
            for number, call in after.items():
                self._interrupted[number].update(call.msg_ids)
            wait(after.values(), _INTERRUPT_SECONDS)
        return [self.engines[number] for number in left if self._is_left(number)]

    @public
    def stop(self) -> None:
        """End all engines. Return when none is left. Engines that another program started do not end."""
        self.is_stopped = True
        if self._started is not None:
            self.client.close()
            end_engines(self._started, self._files)

    def number_of(self, pid: int) -> int | None:
        """Return the number of the engine that started a process, or is it. None: none of this machine."""
        launchers = self._launcher.all if self._launcher else {}
        return next((int(name) for name, one in launchers.items() if descends_from(pid, (one.pid,))), None)

    def _is_left(self, number: int) -> bool:
        """Return whether an engine still runs interrupted work."""
        messages = self._interrupted.get(number)
        return bool(messages) and messages <= self.client.outstanding

    def _check_controller(self) -> None:
        """Report ends. Raise ClusterError if the controller has ended, because then it never answers."""
        self.report_ends()
        if None in self._reported:
            raise ClusterError(f"The controller of the engines has ended. {_START_ANEW}")

    def report_ends(self) -> None:
        """Print which engines have ended since the last call, how, and their last lines of output."""
        gone: list[int | None] = [engine.number for engine in self.ended]
        if self._launcher and self._launcher.parent.controller.poll() is not None:
            gone.append(None)
        for number in gone:
            if number in self._reported:
                continue
            self._reported.add(number)
            what, how = "The controller of the engines", _START_ANEW
            if number is not None:
                engine = self.engines[number]
                what, how = capitalized(engine.label), self.how_to_restart([engine])
            outcome, output = self._launcher.end_of(number) if self._launcher else ("ended", "")
            sys.stderr.write("\n".join(filter(None, [f"{what}: {outcome}. {how}", output])) + "\n")


def end_engines(started: Any, files: RunFolder | None = None) -> None:
    """End the engines and the controller of ipyparallel's cluster, and remove their files."""
    with defer_interrupts():
        started.stop_cluster_sync()
        if files is not None:
            files.remove()


def about(engines: Sequence[Engine], one: str, several: str) -> str:
    """Return the beginning of a sentence: `Engine 0 (GPU 2) and engine 1 (GPU 0) have`."""
    text = capitalized(listed(engine.label for engine in engines))
    return f"{text} {one if len(engines) == 1 else several}"


def capitalized(text: str) -> str:
    """Return a text with its first letter in upper case."""
    return f"{text[0].upper()}{text[1:]}"


def as_line(error: Exception) -> str:
    """Return an error as a line without a full stop. A RemoteError gives the engine's error."""
    kind = getattr(error, "ename", None) or type(error).__name__
    text = str(getattr(error, "evalue", None) or error).strip().partition("\n")[0].rstrip(".")
    return shortened(text if kind in errors.__all__ else f"{kind}: {text}", LONGEST_ERROR)


def busy_engines(client: Any) -> set[int]:
    """Return the engines that have work. Raise ClusterError if the controller does not answer in 5 s."""
    answers: SimpleQueue[Mapping[int, Mapping[str, int]]] = SimpleQueue()

    def ask() -> None:  # in a daemon thread, because a controller that has ended never answers
        with suppress(OSError):  # the client was closed
            answers.put(client.queue_status())

    threading.Thread(target=ask, name="gpu_magic queues", daemon=True).start()
    try:
        queues = answers.get(timeout=_CONTROLLER_SECONDS)
    except Empty:
        raise ClusterError(f"The controller of the engines does not answer. {_START_ANEW}") from None
    idle = {"queue": 0, "tasks": 0}
    return {number for number in client.ids if idle.items() - queues.get(number, idle).items()}


_cluster: Cluster | None = None


def running_cluster() -> Cluster | None:
    """Return the cluster of this process. None: there is none."""
    return None if _cluster is None or _cluster.is_stopped else _cluster


def current_cluster() -> Cluster:
    """Return the cluster of this process. Raise ClusterError if there is none."""
    if running := running_cluster():
        return running
    raise ClusterError("No engines run. To start one for each GPU: %gpu_cluster")


def use(cluster: Cluster) -> None:
    """Make a cluster the one that this process uses."""
    global _cluster  # noqa: PLW0603 - a process has one cluster
    _cluster = cluster


def _find_engine(process: GpuProcess) -> Manager | None:
    cluster = running_cluster()
    number = cluster.number_of(process.pid) if cluster else None
    if cluster is None or number is None:
        return None
    how = f"%gpu_cluster restart {number} restarts it, %gpu_cluster stop ends all engines"
    return Manager(cluster.engines[number].label, how)


finders.append(_find_engine)  # here, so that `%gpu_ps` imports no cluster module
