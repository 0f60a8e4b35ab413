"""Reads the line behind `%gpus`: its options. What is wanted is read by `selection.request`."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from IPython.core.error import UsageError
from IPython.core.magic_arguments import MagicArgumentParser
from IPython.utils.process import arg_split

if TYPE_CHECKING:
    from argparse import Namespace

__all__ = ["read"]

_OPTIONS = "--by index|uuid, --order pci|fastest, --dry-run, --force, --strict"


def read(line: str) -> Namespace:
    """Read a line into `wanted` (one text, empty for none), `by`, `order`, `dry_run`, `force`, `strict`.

    Raises
    ------
    UsageError
        One line that names the options there are.

    """
    typed = re.sub(r"(^|\s)#.*", "", line)  # a comment behind a magic is part of its line, to IPython
    words = [word.strip("'\"") for word in arg_split(typed)]
    # argparse takes -1 for an option; the request's own reader has a better answer to it.
    numbers = [word for word in words if re.match(r"-\d", word)]
    try:
        options: Namespace = _parser().parse_args([word for word in words if word not in numbers])
    except UsageError as error:
        raise UsageError(f"{error}; the options are {_OPTIONS}. %gpus? explains them.") from None
    options.wanted = " ".join([*options.wanted, *numbers])
    if typed.strip() and not options.wanted:
        raise UsageError(f"{typed.strip()} goes with GPUs; try %gpus 1,3 {typed.strip()}")
    return options


@cache
def _parser() -> MagicArgumentParser:
    parser = MagicArgumentParser("%gpus", add_help=False)
    parser.add_argument("wanted", nargs="*")
    parser.add_argument("--by", choices=["index", "uuid"])
    parser.add_argument("--order", choices=["pci", "fastest"], default="pci")
    for flag in ("--dry-run", "--force", "--strict"):
        parser.add_argument(flag, action="store_true")
    return parser
