"""`%gpus 3 --ask`, `%gpus --give-up` and `%gpus --keep`: users ask each other for GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

import gpu_magic

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OPTIONS", "ask_or_answer"]

# Those of %gpus that are about asking.
OPTIONS = ("ask", "give_up", "keep")


def ask_or_answer(asked: Mapping[str, Any], request: str, others: Mapping[str, Any]) -> None:
    """Ask others for GPUs, or answer those who ask.

    Parameters
    ----------
    asked
        The values of these options.
    request
        The GPUs; empty for none.
    others
        The values of the other options of %gpus.

    Raises
    ------
    UsageError
        They don't go together.
    ChoiceError
        It can't be done; nothing was changed.

    """
    name, *more = [f"--{name.replace('_', '-')}" for name in OPTIONS if asked[name] not in (None, False)]
    more += [f"--{name.replace('_', '-')}" for name, value in others.items() if value]
    if more:
        raise UsageError(f"{name} does not go with {more[0]}.")
    if name == "--ask":
        print(gpu_magic.ask(request, asked["ask"]))
    elif name == "--give-up":
        print(gpu_magic.give_up(request or None))
    elif request:
        raise UsageError(f"--keep answers all who ask, and does not go with {request}.")
    else:
        print(gpu_magic.keep())
