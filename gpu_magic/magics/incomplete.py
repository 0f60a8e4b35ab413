"""Says how a line is typed whose options lack their hyphens, or lack what they go with."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gpu_magic.magics.meant import EXAMPLES, option_in
from gpu_magic.selection.request import is_request
from gpu_magic.selection.target import is_target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["goes_with", "with_hyphens"]

# What the options go with, where they can't be alone.
_EXAMPLES = {"%gpus": ("GPUs", "1,3"), "%%on_gpu": ("a device", "0")}
# Where a word that is an option but for its hyphens can be nothing else, as a variable is.
_NAME_NOTHING = ("%gpus", "%%on_gpu", "%gpu_free", "%gpu_cluster", "%gpu_tasks")

# Those of %gpus that say which GPUs `auto` takes.
_OF_AUTO = ("min_free", "model", "wait", "only_free")
# Those of %gpus that need no GPUs.
_ALONE = ("cluster", "mine", "end", "kill", "yes")


def with_hyphens(
    magic: str,
    request: Sequence[str],
    words: Sequence[str],
    options: Mapping[str, str | tuple[str, ...]],
    is_read: Callable[[str], bool],
) -> str:
    """Return what is said of words that are options without hyphens, `auto:2 only-free`; empty for none.

    Parameters
    ----------
    magic
        As typed: `%gpus`.
    request
        The words that name what is asked for.
    words
        All words of the line.
    options
        Those that the magic has, and what each takes.
    is_read
        Returns whether a line can be read.

    """
    if magic not in _NAME_NOTHING:
        return ""
    asked = request[1:] if magic == "%gpu_tasks" else request  # a task can have any name
    found = {word: option for word in asked if (option := option_in(word, options))}
    if "--end" not in words:
        found.pop("yes", None)  # a flag's value: `--growth yes`
    if not found:
        return ""
    better = [found.get(word, word) for word in words]
    if better[-1] in found.values() and options[better[-1]] in ("word", "text"):
        better.append(EXAMPLES[better[-1]])
    if not is_read(" ".join(better)):  # they go with something that is not there
        given = {option[2:].replace("-", "_"): True for option in found.values()}
        better.insert(0, _example(magic, given))
    word, option = next(iter(found.items()))
    return f"{word} is written {option}; try {magic} {' '.join(better)}"


def goes_with(magic: str, words: Sequence[str], values: Mapping[str, Any]) -> str:
    """Return what is said of options that can't be alone; empty where they can.

    What they go with can stand behind a value: `--model A100 auto`.
    """
    if not words or magic not in _EXAMPLES or any(map(values.get, _ALONE)):
        return ""
    *before, last = words
    if len(before) > 1 and not before[-1].startswith("-") and _is_named(magic, last):
        return f"{last} stands before the options; try {magic} {last} {' '.join(before)}"
    shown = " ".join(words)
    return f"{shown} goes with {_EXAMPLES[magic][0]}; try {magic} {_example(magic, values)} {shown}"


def _example(magic: str, values: Mapping[str, Any]) -> str:
    """Return what options could go with."""
    is_of_auto = magic == "%gpus" and any(map(values.get, _OF_AUTO))
    return "auto" if is_of_auto else _EXAMPLES.get(magic, ("", ""))[1]


def _is_named(magic: str, word: str) -> bool:
    """Return whether a word names GPUs or a device, and is not a part of a model's name: `RTX 4090`."""
    return is_request(word) and not re.fullmatch(r"[0-9]{3,}", word) if magic == "%gpus" else is_target(word)
