"""The exceptions and warnings of gpu_magic."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections import deque
from typing import TYPE_CHECKING

from gpu_magic.text import one_line, printable, with_full_stop

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

__all__ = [
    "BindingError",
    "CallFailed",
    "ChoiceError",
    "ClusterError",
    "CommandFailed",
    "CudaInitializedError",
    "CudaInitializedWarning",
    "FitError",
    "GpuMagicError",
    "KernelRestarting",
    "LaunchError",
    "NotFreeError",
    "PlacementError",
    "PlacementWarning",
    "ProcessError",
    "SimulationError",
    "as_flag",
    "causes",
    "show_as",
    "warn_once",
    "wrong_argument",
]

_MOST_CAUSES = 20
_warned: set[Hashable] = set()


class GpuMagicError(Exception):
    """Any error of gpu_magic."""


class _OneLineError(GpuMagicError, ValueError):
    """An error with a message of one line: what is wrong, and what to type."""

    def __init__(self, message: str) -> None:
        # A message can quote variables and names, which can have any characters and any length.
        super().__init__(one_line(message))


class ChoiceError(_OneLineError):
    """These GPUs cannot be chosen. Nothing has changed.

    Parameters
    ----------
    what
        What is wrong.
    ways
        What to type instead, after `%gpus`: `0:0`. The message names all of them.
    shows
        What the table of GPUs shows about it: `why`. Empty if it shows nothing.

    """

    def __init__(self, what: str, *, ways: Iterable[str] = (), shows: str = "") -> None:
        self.what, self.ways, self.shows = what, tuple(ways), shows
        super().__init__(self.with_table("%gpus"))

    def with_table(self, command: str, before: str = "") -> str:
        """Return the message for users who show the table by this command, and type `before` before GPUs."""
        parts = [self.what]
        if self.shows:
            parts.append(f"{command} shows {self.shows}.")
        if self.ways:
            ways = " or ".join(f"{before}{way}" for way in self.ways)
            parts = [with_full_stop(parts[0]), *parts[1:], f"Try {ways}"]
        return one_line(" ".join(parts))

    def keep_ways(self, check: Callable[[str], object]) -> None:
        """Keep the ways for which `check` raises no error. If none is left, keep `auto` if it works."""

        def works(way: str) -> bool:
            try:
                check(way)
            except GpuMagicError:
                return False
            return True

        if self.ways:
            self.ways = tuple(filter(works, self.ways)) or tuple(filter(works, ["auto"]))
            self.args = (self.with_table("%gpus"),)


class BindingError(_OneLineError, ImportError):
    """The package nvidia-ml-py is missing or cannot be imported. Nothing has changed.

    The first use of a function such as `gpu_magic.gpus` raises this error.
    """


class NotFreeError(ChoiceError):
    """Other processes use or claim these GPUs, or their use is unknown. Nothing has changed.

    Parameters
    ----------
    what
        One line.
    holders
        The GPUs and their users: `GPU 0 (in use by maria), GPU 1 (claimed by chen)`.
    instead
        What works now, to type after `%gpus`: `auto:1`. Empty if nothing is known to work.

    """

    def __init__(self, what: str, holders: str, *, instead: str = "", or_wait: bool = False) -> None:
        self.holders, self._or_wait = printable(holders), or_wait
        super().__init__(what, ways=[instead] * bool(instead))

    def with_table(self, command: str, before: str = "") -> str:
        """Return the message. The table does not tell more."""
        text = super().with_table(command, before)
        advice = ", or add --wait 30m" if self.ways else " To wait, add --wait 30m"
        return f"{text}{advice if self._or_wait else ''}"

    def or_wait(self) -> NotFreeError:
        """Return the error with the advice to wait."""
        return NotFreeError(self.what, self.holders, instead="".join(self.ways), or_wait=True)


class PlacementError(_OneLineError):
    """Code cannot run on this device, or variables cannot move to it. No variable has moved.

    The code may have run in part if it imported the framework that cannot run there.
    """


class FitError(_OneLineError):
    """A step cannot be predicted, because data decides what it does, or because it raises an error."""


class LaunchError(_OneLineError):
    """A command cannot be launched, or a task cannot start. Nothing has started.

    Parameters
    ----------
    what
        What is wrong.
    commands
        Commands that can be launched instead, each as words. The message names all of them.

    """

    def __init__(self, what: str, commands: Iterable[Sequence[str]] = ()) -> None:
        self._what, self._commands = what, tuple(commands)
        super().__init__(self.behind([]))

    def behind(self, launch: Sequence[str]) -> str:
        """Return the message for users who type commands behind the words `launch`."""
        ways = " or ".join(shlex.join([*launch, *one]) for one in self._commands)
        return one_line(f"{self._what} Try {ways}" if ways else self._what)

    def in_front(self, words: Sequence[str]) -> LaunchError:
        """Return the error for the same commands, with words in front of them."""
        return LaunchError(self._what, [[*words, *one] for one in self._commands])


class ClusterError(_OneLineError):
    """Engines cannot start, or cannot be used in this way."""


class LineError(_OneLineError):
    """The line of a magic or of `gpu-magic` cannot be parsed. Nothing has changed."""


class ProcessError(_OneLineError):
    """A process cannot be ended, or the owners of processes are unknown. No signal was sent."""


class SimulationError(_OneLineError):
    """A simulated machine or one of its options is invalid, or `start_cuda` cannot start CUDA."""


class CudaInitializedError(GpuMagicError, RuntimeError):
    """CUDA has started, so another choice comes too late. Nothing has changed."""


class KernelRestarting(GpuMagicError):  # noqa: N818 - not an error: the user asked for the restart
    """The kernel is about to restart, so the rest of the cell does not run."""

    def _render_traceback_(self) -> list[str]:  # IPython's protocol: no frames, because nothing is wrong
        return [str(self)]


class CommandFailed(GpuMagicError, RuntimeError):  # noqa: N818 - like subprocess.CalledProcessError
    """A launched command or a cell in the background has failed. The message has the reason.

    The reason is the output of the ranks, or the traceback of the cell as text.
    """

    def _render_traceback_(self) -> list[str]:  # IPython's protocol: without gpu_magic's own frames
        return [str(self)]


class CallFailed(GpuMagicError, RuntimeError):  # noqa: N818 - like CommandFailed
    """A call of `map` has failed in its engine. The message has the error and its traceback.

    Parameters
    ----------
    message
        The item, the engine and its GPU, and the traceback.
    position
        The position of the item. None: unknown.
    engine
        The number of the engine.
    kind
        The name of the error's type, `"ValueError"`. Empty if the engine has ended, or if the result cannot
        be sent.

    """

    def __init__(self, message: str, position: int | None, engine: int, kind: str) -> None:
        super().__init__(message, position, engine, kind)
        self.position, self.engine, self.kind = position, engine, kind

    def __str__(self) -> str:
        return str(self.args[0])

    def _render_traceback_(self) -> list[str]:  # IPython's protocol: the message has the engine's frames
        return "\n".join([str(self), *getattr(self, "__notes__", ())]).splitlines()


class MeasurementError(GpuMagicError, RuntimeError):
    """The block has not ended, so it has no record yet, and its `gpu_time` cannot measure another block."""


class CudaInitializedWarning(UserWarning):
    """CUDA has started, so another choice comes too late. Nothing has changed."""


class PlacementWarning(UserWarning):
    """A part of a cell ran on another device than the cell asked for."""


def show_as(interrupt: BaseException, *lines: str) -> None:
    """Have IPython show an interrupt as these lines, without gpu_magic's own frames."""
    interrupt._render_traceback_ = lambda: list(lines)  # type: ignore[attr-defined] # IPython's protocol


def as_flag(name: str, value: object) -> bool:
    """Return a flag as Python's own. Raise TypeError for what is neither True nor False, such as a text."""
    if not isinstance(value, (bool, getattr(sys.modules.get("numpy"), "bool_", bool))):
        raise wrong_argument(f"{name}={value!r:.40} is neither True nor False.")
    return bool(value)


def wrong_argument(message: str) -> TypeError:
    """Return an error that IPython shows without the frames of gpu_magic."""
    error = TypeError(message)
    show_as(error, f"TypeError: {message}")
    return error


def warn_once(about: Hashable, text: str, kind: type[Warning] = UserWarning) -> None:
    """Show a warning, once in this process for each `about`."""
    if about not in _warned:
        _warned.add(about)
        warnings.warn_explicit(one_line(text), kind, "gpu_magic", 1, module="gpu_magic")


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, the errors of its groups, and their causes (`raise … from`). At most 20.

    An error that was only being handled (`__context__`) is not a cause.
    """
    seen: set[int] = set()
    waiting = deque([error])
    while waiting and len(seen) < _MOST_CAUSES:
        found = waiting.popleft()
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        if found.__cause__ is not None:
            waiting.append(found.__cause__)
        if isinstance(found, BaseExceptionGroup):
            waiting.extend(found.exceptions)
