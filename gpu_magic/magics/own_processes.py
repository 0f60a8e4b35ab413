"""`%gpus --mine` and `%gpus --end`: one's own processes on GPUs, and the end of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import StdinNotImplementedError, UsageError
from IPython.display import display

import gpu_magic
from gpu_magic.magics.arguments import refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OPTIONS", "show_or_end"]

# Those of %gpus that are about processes.
OPTIONS = ("mine", "end", "kill", "yes")


def show_or_end(asked: Mapping[str, Any], others: Mapping[str, Any]) -> None:
    """Show one's own processes, or end one.

    Parameters
    ----------
    asked
        The values of these options.
    others
        Those of the other options of %gpus, and the request.

    Raises
    ------
    UsageError
        They don't go together.
    ProcessError
        It can't be done; nothing was sent to any process.

    """
    which = asked["end"]
    if which is None and (asked["kill"] or asked["yes"]):
        example = others["request"] or "4711"
        option = "--kill" if asked["kill"] else "--yes"
        raise refusal(
            f"{option} goes with --end and a number of %gpus --mine: %gpus --end {example} {option}."
        )
    if given := [name for name, value in others.items() if value]:
        other = others["request"] or f"--{given[0].replace('_', '-')}"
        raise refusal(
            f"--{'mine' if which is None else 'end'} chooses no GPUs, and does not go with {other}."
        )
    if which is not None:
        print(gpu_magic.end_process(which, kill=asked["kill"], confirm=None if asked["yes"] else _ask))
    else:
        display(gpu_magic.my_processes())


def _ask(question: str) -> bool:
    try:
        answer = input(f"{question} [y/N] ")
    except (StdinNotImplementedError, EOFError):
        raise UsageError(
            f"{question} Nobody can be asked here: add --yes to end it. Nothing was sent to it."
        ) from None
    return answer.strip().lower() in ("y", "yes")
