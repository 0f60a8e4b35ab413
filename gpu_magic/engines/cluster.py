"""A cluster: ipyparallel's client, and what each of its engines has and does."""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from gpu_magic.engines.activity import Activity
from gpu_magic.engines.asking import call
from gpu_magic.engines.engine import Engine, EngineNumber, capitalized, named
from gpu_magic.engines.in_engine import begin
from gpu_magic.engines.starter import CONTROLLER
from gpu_magic.errors import ClusterError
from gpu_magic.public import public
from gpu_magic.text import counted, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpu_magic.engines.asking import Answers
    from gpu_magic.engines.starter import Starter

__all__ = ["Cluster"]

T = TypeVar("T")

_ANSWER = 60.0  # seconds that an engine may take from its start to its first answer
_INTERRUPTED = 5.0  # seconds that it may take to answer an interrupt
_READ = 10.0  # seconds that idle engines may take to answer a question
_GONE = 30.0  # seconds until ipyparallel knows that an engine has ended
_AGAIN = 0.02


class Cluster:
    """Engines that have their GPUs, and are ready. `str` returns them, a line.

    Parameters
    ----------
    client
        ipyparallel's.
    engines
        All of them, in the order of their numbers.
    starter
        Who has started them.

    Attributes
    ----------
    engines
        All of them by their numbers, also those that have ended.
    activity
        What they do, and since when.
    on_end
        Called with a text when an engine has ended by itself, in a thread of its own; writes it to stderr.
    is_stopped
        Whether `stop` was called.

    """

    def __init__(self, client: Any, engines: Iterable[Engine], starter: Starter) -> None:
        self.client, self._starter = client, starter
        self.engines = {engine.number: engine for engine in engines}
        self.on_end: Callable[[str], None] = _write
        self.is_stopped = False
        self._left: list[Engine] = []  # those that have not answered an interrupt
        starter.on_end = self._note_end
        self.activity = Activity(client, starter.note_gone)

    @property
    def is_here(self) -> bool:
        """Whether all engines are known to run on this machine."""
        return self._starter.is_here

    @property
    def owns_engines(self) -> bool:
        """Whether `stop` ends them: somebody else's are let go of."""
        return self._starter.owns_engines

    @property
    def alive(self) -> list[Engine]:
        """The engines that can be used."""
        there = set(self.client.ids)
        return [engine for number, engine in self.engines.items() if number in there]

    @property
    def ended(self) -> list[Engine]:
        """The engines that have ended."""
        alive = self.alive
        return [engine for engine in self.engines.values() if engine not in alive]

    @public
    def find(self, numbers: Iterable[int]) -> list[Engine]:
        """Return engines by their numbers.

        Raises
        ------
        ClusterError
            There is no such engine.

        """
        wanted = list(numbers)
        if unknown := [number for number in wanted if number not in self.engines]:
            there = listed(map(str, self.engines))
            raise ClusterError(f"There is no engine {unknown[0]}; there are {there}.")
        return [self.engines[number] for number in wanted]

    @public
    def targets(self, numbers: Iterable[int] | None = None) -> list[EngineNumber]:
        """Return engines for a view of ipyparallel's, which shows their GPUs in front of their outputs.

        Parameters
        ----------
        numbers
            Those of the engines; None: all.

        Raises
        ------
        ClusterError
            There is no such engine, or it has ended.

        """
        self._check_controller()
        wanted = self.find(self.engines if numbers is None else numbers)
        ended = self.ended
        if gone := [engine for engine in wanted if engine in ended]:
            others = ",".join(str(engine.number) for engine in wanted if engine not in ended)
            raise ClusterError(
                f"{named(gone, 'has')} ended: {self._how_to_restart(gone)}"
                f"{f', and %%px --targets {others} runs on the others' if others else ''}."
            )
        if self._left:
            busy = self.busy
            self._left = [engine for engine in self._left if engine in busy]
        if left := [engine for engine in wanted if engine in self._left]:
            raise ClusterError(f"{self.still_running(left)}.")
        return [EngineNumber(engine) for engine in wanted]

    def still_running(self, engines: Sequence[Engine]) -> str:
        """Return what to do about engines that have not answered an interrupt, without a full stop."""
        return (
            f"{named(engines, 'runs')} on what was interrupted, in code that does not ask for interrupts: "
            f"{self._how_to_restart(engines)}"
        )

    @property
    def can_restart(self) -> bool:
        """Whether `restart` can start engines anew: they were started by gpu_magic."""
        return self._starter.can_restart

    @public
    def restart(self, numbers: Iterable[int] | None = None) -> list[Engine]:
        """End engines, whatever they do, and start them anew with their GPUs; return them.

        Parameters
        ----------
        numbers
            Those of the engines; None: those that have ended.

        Raises
        ------
        ClusterError
            There is no such engine, it was started by somebody else, or does not start.

        """
        engines = self.ended if numbers is None else self.find(numbers)
        self._check_controller()
        if not engines:
            return []
        numbers = [engine.number for engine in engines]
        self._starter.end_engines(engines)
        deadline = time.monotonic() + _GONE
        while set(numbers) & set(self.client.ids):
            if time.monotonic() > deadline:
                raise ClusterError("The controller does not answer: %gpu_cluster stop, and start anew.")
            time.sleep(_AGAIN)
        for number in numbers:
            self._starter.start(number)
        self.begin(numbers)
        return self.find(numbers)

    @property
    @public
    def busy(self) -> list[Engine]:
        """The engines that run something, or have it in their queues, whoever has sent it."""
        self._check_controller()
        numbers = self.activity.busy()
        return [engine for engine in self.alive if engine.number in numbers]

    @public
    def ask(self, function: Callable[..., T], *given: object) -> Answers[T]:
        """Call a function in each engine that runs nothing; the others can't answer, and are silent.

        Parameters
        ----------
        function
            One of a module that can be imported in the engines.
        given
            What it is called with.

        """
        busy = self.activity.busy()
        idle = [engine.number for engine in self.alive if engine.number not in busy]
        answers = call(self.client, function, dict.fromkeys(idle, given), _READ)
        answers.silent.extend(busy & self.engines.keys())
        return answers

    @public
    def interrupt(self, jobs: Any, numbers: Iterable[int] | None = None) -> list[Engine]:
        """Interrupt engines that run something; return those that go on after 5 s.

        Code in C that does not ask for signals goes on: a collective that waits for other ranks, for example.

        Parameters
        ----------
        jobs
            What is not to be begun any more: ipyparallel's AsyncResult, or several.
        numbers
            Those of the engines; None: all.

        """
        meant = set(self.engines if numbers is None else numbers)
        deadline = time.monotonic() + _INTERRUPTED
        if busy := [engine for engine in self.busy if engine.number in meant]:
            running = [engine.number for engine in busy]
            self.client.abort(jobs, targets=running, block=False)
            self.client.send_signal(signal.SIGINT, targets=running, block=False)
        while busy and time.monotonic() < deadline:
            time.sleep(_AGAIN)
            busy = [engine for engine in self.busy if engine.number in meant]
        self._left = busy
        return busy

    @public
    def stop(self) -> None:
        """End all engines, and return when nothing of them is left; others' engines are let go of."""
        self.is_stopped = True
        self.activity.stop()
        if self.owns_engines:
            self.client.close()
        self._starter.end()

    def __str__(self) -> str:
        engines = list(self.engines.values())
        return f"{counted(len(engines), 'engine')}: {', '.join(map(str, engines))}"

    def __repr__(self) -> str:
        return f"<Cluster {self}>"

    def begin(self, numbers: Iterable[int] | None = None) -> None:
        """Wait until engines have started, and make them ready: by their numbers, or all.

        Raises
        ------
        ClusterError
            One of them has ended, or does not answer.

        """
        deadline = time.monotonic() + _ANSWER
        replies = {}
        for number in self.engines if numbers is None else numbers:
            while number not in self.client.ids:
                self._check_start(number, deadline)
            log, claimed = self._starter.logs.get(number, ""), self.engines[number].claimed
            replies[number] = self.client[number].apply_async(begin, log, claimed)
        for number, reply in replies.items():
            while not reply.done():
                self._check_start(number, deadline)
            answer = reply.get()
            self.engines[number] = replace(self.engines[number], host=answer.host, process=answer.process)

    def _check_controller(self) -> None:
        """Raise ClusterError where the controller has ended: whoever asks it waits for ever."""
        if self._starter.has_no_controller:
            raise ClusterError("The controller of the engines has ended: %gpu_cluster stop, and start anew.")

    def _check_start(self, number: int, deadline: float) -> None:
        self._starter.check(number)
        if time.monotonic() > deadline:
            raise ClusterError(f"Engine {number} has not answered within {_ANSWER:.0f} s.")
        time.sleep(_AGAIN)

    def _how_to_restart(self, engines: Sequence[Engine]) -> str:
        """Return what starts engines anew, as a clause."""
        return self._starter.how_to_restart([engine.number for engine in engines])

    def _note_end(self, number: int, how: str, last: Sequence[str]) -> None:
        """Say that a process has ended: which, how, and what it has written last."""
        if number == CONTROLLER:
            text = f"The controller of the engines: {how}; %gpu_cluster stop, and start anew."
        else:
            engine = self.engines[number]
            text = f"{capitalized(engine.label)}: {how}; {self._how_to_restart([engine])}."
        self.on_end("\n".join([text, *last]))


def _write(text: str) -> None:
    sys.stderr.write(f"{text}\n")
