"""`%gpus 3 --ask`, `%gpus --give-up` and `%gpus --keep`: users ask each other for GPUs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import gpu_magic
from gpu_magic.magics.arguments import refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OPTIONS", "ask_or_answer", "take_text"]

# Those of %gpus that are about asking.
OPTIONS = ("ask", "give_up", "keep")

_ASK = re.compile(r"(?P<line>.*\s--ask)\s+(?P<text>(?!--)\S.*)", re.DOTALL)
_QUOTED = re.compile(r"(['\"])(.*)\1", re.DOTALL)


def take_text(line: str) -> tuple[str, str]:
    """Return a line without the text that follows `--ask`, and that text as it was typed."""
    match = _ASK.fullmatch(f" {line.strip()}")
    if match is None:
        return line, ""
    text = match["text"]
    quoted = _QUOTED.fullmatch(text)
    return match["line"], quoted[2] if quoted else text


def ask_or_answer(asked: Mapping[str, bool], request: str, text: str, others: Mapping[str, Any]) -> None:
    """Ask others for GPUs, or answer those who ask.

    Parameters
    ----------
    asked
        Which of these options are given.
    request
        The GPUs; empty for none.
    text
        What follows `--ask`.
    others
        The values of the other options of %gpus.

    Raises
    ------
    UsageError
        They don't go together.
    ChoiceError
        It can't be done; nothing was changed.

    """
    name, *more = [f"--{name.replace('_', '-')}" for name in OPTIONS if asked[name]]
    more += [f"--{name.replace('_', '-')}" for name, value in others.items() if value]
    if more:
        raise refusal(f"{name} does not go with {more[0]}.")
    if name == "--ask":
        print(gpu_magic.ask(request, text))
    elif name == "--give-up":
        print(gpu_magic.give_up(request or None))
    elif request:
        raise refusal(f"--keep answers all who ask, and does not go with {request}.")
    else:
        print(gpu_magic.keep())
