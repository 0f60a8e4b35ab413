"""Reads the line behind `%gpus`: its options. What is wanted is read by `selection.request`."""

from __future__ import annotations

import difflib
import re
from functools import cache
from typing import TYPE_CHECKING

from IPython.core.error import UsageError
from IPython.core.magic_arguments import MagicArgumentParser

if TYPE_CHECKING:
    from argparse import Namespace

__all__ = ["read"]

_GUARD = "\x00"
_OPTIONS = ("--by", "--order", "--dry-run", "--force", "--strict")


def read(line: str) -> Namespace:
    """Read a line into `wanted` (one text, empty for none), `by`, `order`, `dry_run`, `force`, `strict`.

    Raises
    ------
    UsageError
        One line that names the options there are.

    """
    typed = re.sub(r"(^|\s)#.*", "", line).strip()  # a comment behind a magic is part of its line, to IPython
    words = [word.strip("'\"") for word in typed.split()]
    # argparse takes -1 for an option; the request's own reader has a better answer to it.
    guarded = [f"{_GUARD}{word}" if re.match(r"-\d", word) else word for word in words if word]
    unknown = next((word for word in words if word.startswith("--") and not _known(word)), None)
    if unknown:
        close = difflib.get_close_matches(unknown, _OPTIONS, n=1, cutoff=0.7)
        hint = f"did you mean {close[0]}?" if close else f"the options are {', '.join(_OPTIONS)}."
        raise UsageError(f"There is no {unknown}; {hint} %gpus? explains them.")
    try:
        options: Namespace = _parser().parse_args(guarded)
    except UsageError as error:
        raise UsageError(f"{error}. %gpus? explains the options.".replace(_GUARD, "")) from None
    options.wanted = " ".join(options.wanted).replace(_GUARD, "")
    if guarded and not options.wanted:
        raise UsageError(f"{typed} goes with GPUs; try %gpus 1,3 {typed}")
    return options


def _known(word: str) -> bool:
    """Tell whether a word is an option, or the beginning of one, as argparse takes it."""
    return any(option.startswith(word.partition("=")[0]) for option in _OPTIONS)


@cache
def _parser() -> MagicArgumentParser:
    parser = MagicArgumentParser("%gpus", add_help=False)
    parser.add_argument("wanted", nargs="*")
    parser.add_argument("--by", choices=["index", "uuid"])
    parser.add_argument("--order", choices=["pci", "fastest"], default="pci")
    for flag in ("--dry-run", "--force", "--strict"):
        parser.add_argument(flag, action="store_true")
    return parser
