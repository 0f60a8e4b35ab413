"""Calls a function in several engines at once, and waits for their answers: an interrupt ends the waiting."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gpu_magic import errors
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Answers", "as_line", "call"]

T = TypeVar("T")

_AGAIN = 0.02  # seconds between two looks
_LONGEST = 200  # characters of an error


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """What engines have answered, by their numbers.

    Parameters
    ----------
    results
        What the function has returned.
    errors
        What it has raised, a line; also where the engine has ended meanwhile.
    silent
        Those that have not answered in time. They still run the function, once they come to it.

    """

    results: dict[int, T] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    silent: list[int] = field(default_factory=list)


def call(
    client: Any, function: Callable[..., T], arguments: Mapping[int, tuple[Any, ...]], seconds: float
) -> Answers[T]:
    """Call a function in engines; return when all have answered, or some have not in time.

    Parameters
    ----------
    client
        ipyparallel's.
    function
        One of a module that can be imported in the engines.
    arguments
        The engines by their numbers, and what the function is called with in each.
    seconds
        How long they may take, all together.

    """
    deadline = time.monotonic() + seconds
    answers: Answers[T] = Answers()
    replies = {}
    for number, given in arguments.items():
        try:
            replies[number] = client[number].apply_async(function, *given)
        except IndexError:
            answers.errors[number] = "it has ended"
    for number, reply in replies.items():
        while not reply.done() and time.monotonic() < deadline:
            time.sleep(_AGAIN)
        if not reply.done():
            answers.silent.append(number)
            continue
        try:
            answers.results[number] = reply.get()
        except Exception as error:  # noqa: BLE001 - whatever was raised in the engine
            answers.errors[number] = as_line(error)
    return answers


def as_line(error: Exception) -> str:
    """Return an error as a line without a full stop; ipyparallel says which it was in the engine."""
    kind = getattr(error, "ename", None) or type(error).__name__
    text = str(getattr(error, "evalue", None) or error).strip().partition("\n")[0].rstrip(".")
    return shortened(text if kind in errors.__all__ else f"{kind}: {text}", _LONGEST)
