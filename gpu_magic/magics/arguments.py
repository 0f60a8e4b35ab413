"""Reads the options in a magic's line. What is wanted is read by `selection`."""

from __future__ import annotations

import difflib
import re
from argparse import Namespace
from functools import cache

from IPython.core.error import UsageError
from IPython.core.magic_arguments import MagicArgumentParser

__all__ = ["OPTIONS", "Options", "read"]

_GUARD = "\x00"

_ARRAYS = ("torch", "jax", "cupy")

# For each magic its options, and their values: some words, any one word (1), any text (None), or none at all
# for a flag.
Options = dict[str, tuple[str, ...] | int | None]
OPTIONS: dict[str, Options] = {
    "%gpus": {
        "--by": ("index", "uuid"),
        "--order": ("pci", "fastest"),
        "--growth": (),
        "--memory-limit": None,
        "--in-process": (),
        "--dry-run": (),
        "--force": (),
        "--restart": (),
        "--strict": (),
    },
    "%%on_gpu": {"--only": None, "--or-cpu": (), "--mirror": (), "--verbose": ()},
    "%to_gpu": {"--device": 1, "--numpy": _ARRAYS, "--all": (), "--dry-run": ()},
    "%to_cpu": {"--all": (), "--dry-run": ()},
    "%gpu_free": {"--dry-run": ()},
    "%gpu_panel": {},
}
_DEFAULTS = {"--order": "pci"}
# Their lines name variables, as Python code does.
_CODE = ("%to_gpu", "%to_cpu")
# What the options go with, where they can't stand alone.
_EXAMPLES = {"%gpus": ("GPUs", "%gpus 1,3"), "%%on_gpu": ("a device", "%%on_gpu 0")}


def read(magic: str, line: str) -> Namespace:
    """Read a line into `wanted` (one text, empty for none), and its options by their names.

    Raises
    ------
    UsageError
        One line that names the options there are.

    """
    typed = re.sub(r"(^|\s)#.*", "", line).strip()  # a comment behind a magic is part of its line, to IPython
    is_code = magic in _CODE  # quotes belong to it
    words = typed.split() if is_code else [word.strip("'\"") for word in typed.split()]
    # `--option=value` as two words, so that free text with a space in it is read as one.
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    # argparse takes -1 for an option; the request's own reader has a better answer to it.
    guarded = [f"{_GUARD}{word}" if re.match(r"-\d", word) else word for word in words if word]
    if not any(word.startswith("-") for word in words):  # argparse takes as long as running a short cell
        return Namespace(**_defaults(magic), wanted=" ".join(words))
    known = OPTIONS[magic]
    unknown = next((word for word in words if word.startswith("--") and not _is_among(known, word)), None)
    help_ = f"{magic}? explains"
    if unknown:
        close = difflib.get_close_matches(unknown, known, n=1, cutoff=0.7)
        if not known:
            raise UsageError(f"There is no {unknown}: {magic} takes no options.")
        hint = f"did you mean {close[0]}?" if close else f"the options are {', '.join(known)}."
        raise UsageError(f"There is no {unknown}; {hint} {help_} them.")
    try:
        options: Namespace = _parser(magic).parse_intermixed_args(guarded)
    except UsageError as error:
        raise UsageError(f"{error}. {help_} the options.".replace(_GUARD, "")) from None
    for name, value in vars(options).items():
        if isinstance(value, list | str):
            text = value if isinstance(value, str) else " ".join(value)
            setattr(options, name, text.replace(_GUARD, ""))
    if guarded and not options.wanted and magic in _EXAMPLES:
        what, example = _EXAMPLES[magic]
        raise UsageError(f"{typed} goes with {what}; try {example} {typed}")
    return options


def _is_among(known: Options, word: str) -> bool:
    """Tell whether a word is an option, or the beginning of one, as argparse takes it."""
    return any(option.startswith(word.partition("=")[0]) for option in known)


@cache
def _defaults(magic: str) -> dict[str, object]:
    """Return each option's name and value where it is not given."""
    options = OPTIONS[magic].items()
    return {
        name[2:].replace("-", "_"): _DEFAULTS.get(name, None if values != () else False)
        for name, values in options
    }


@cache
def _parser(magic: str) -> MagicArgumentParser:
    parser = MagicArgumentParser(magic, add_help=False)
    parser.add_argument("wanted", nargs="*")
    for option, values in OPTIONS[magic].items():
        if values == ():
            short = ["-v"] if option == "--verbose" else []
            parser.add_argument(*short, option, action="store_true")
        else:
            # Free text may have a space in it: `--only torch, jax`, `--memory-limit 8 GB`.
            many = {"nargs": "+"} if values is None else {} if values == 1 else {"choices": values}
            parser.add_argument(option, default=_DEFAULTS.get(option), **many)
    return parser
