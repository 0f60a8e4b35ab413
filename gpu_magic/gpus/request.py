"""Parses a user's request, `1,3`  `0-2,5`  `GPU-8f3a`  `auto:2`  `none`, into a `Request`."""

from __future__ import annotations

import contextlib
import operator
import re
from collections import Counter
from enum import Enum
from numbers import Integral
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.model import Gpu, MigInstance
from gpu_magic.errors import ChoiceError
from gpu_magic.frameworks.target import read_uuid, without_brackets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "WORDS",
    "Auto",
    "Named",
    "Request",
    "Word",
    "is_request",
    "normalize_request",
    "normalize_wait",
    "parse",
]


class Named(NamedTuple):
    """`1,3` or `GPU-8f3a`: these devices in this order."""

    # An int is nvidia-smi's or rocm-smi's number. A str is the start of a UUID, or `2:1` for MIG instance 1
    # of GPU 2.
    identifiers: tuple[int | str, ...]


class Auto(NamedTuple):
    """`auto:2`: 2 GPUs, free ones first, then those with the most free memory."""

    count: int = 1  # type: ignore[assignment] # it hides a tuple's method


class Word(Enum):
    """A request of one word."""

    ALL = "all"  # every GPU that this kernel may use
    NONE = "none"  # no GPU: CUDA_VISIBLE_DEVICES is set to an empty value, for AMD HIP_VISIBLE_DEVICES to -1
    RESET = "reset"  # the values that the kernel started with: a variable can also be unset


Request = Named | Auto | Word

WORDS: dict[str, Request] = {"all": Word.ALL, "none": Word.NONE, "auto": Auto(), "reset": Word.RESET}

_EXPECTED = "numbers, a MIG instance, a UUID prefix, auto, auto:N, auto --model NAME, all, none or reset"
# No machine has this many GPUs. A larger range is a typing error and would only waste memory.
_HIGHEST = 4095
_LONGEST = 8192  # characters
_LONGEST_WAY = 40  # characters of a list that an error suggests
# A range that is typed without a hyphen, or with spaces around it: `0..3`, `0 to 3`.
_RANGE = re.compile(r"(?<![\w.])([0-9]{1,4})\s*(?:\.{2,3}|to|-)\s*([0-9]{1,4})(?![\w.])", re.IGNORECASE)


def parse(text: str, check: Callable[[Request], object] | None = None) -> Request:
    """Parse a request that is typed after `%gpus`, or raise ChoiceError with what would work.

    `check` raises an error of gpu_magic for a request that would be refused here. Without it, the error can
    name GPUs that are not there.
    """
    try:
        return _parse(text)
    except ChoiceError as error:
        if check is not None and (ways := error.ways):
            error.keep_ways(lambda way: check(_parse(way)))
            if not error.ways or error.ways[0] != ways[0]:
                meant = _parse(ways[0])
                if isinstance(meant, Named):  # auto:2 is only an example
                    check(meant)  # that these cannot be chosen tells more than how to write them
        raise


def _parse(text: str) -> Request:
    asked = without_brackets(text)
    if not asked:
        raise ChoiceError(f"No GPU is named. Expected {_EXPECTED}.")
    if len(asked) > _LONGEST:
        raise ChoiceError(f"{asked[:40]!r}… is too long for a list of GPUs.")
    word = asked.lower()
    word, colon, count = word.partition(":")
    if word == "auto" and colon:
        if not (number := re.fullmatch("0*([1-9][0-9]{0,3})", count)):
            raise ChoiceError(f"{asked!r:.60} is not auto with a number of GPUs.", ways=["auto:2"])
        return Auto(int(number[1]))
    if word in WORDS and not colon:
        return WORDS[word]
    if re.search(r"[;|&+]|\d\s+\d|\d\.\d", asked):
        ranged = _RANGE.sub(r"\1-\2", asked)
        names = dict.fromkeys(filter(None, re.split(r"[\s;|&+.,]+", ranged)))
        raise ChoiceError(f"{asked!r}: separate GPUs by commas.", ways=_meant(",".join(names)))
    entries = [entry.strip("'\" ") for entry in asked.split(",")]
    if "" in entries:
        there = ",".join(filter(None, entries))
        raise ChoiceError("A comma has no GPU beside it.", ways=_meant(there or "auto"))
    identifiers = _all_identifiers(entries)
    counts = Counter(identifiers)
    if twice := [one for one, count in counts.items() if count > 1]:
        better = ",".join(map(str, counts))
        what = f"{asked!r} names {twice[0]} twice, which CUDA reads as no GPU."
        raise ChoiceError(what, ways=[better])
    return Named(tuple(identifiers))


def _meant(text: str) -> list[str]:
    """Return a text if it can be parsed, else what its error suggests."""
    try:
        _parse(text)
    except ChoiceError as error:
        return list(error.ways)
    return [text]


def _all_identifiers(entries: Sequence[str]) -> list[int | str]:
    """Return what the entries of a list name. An error suggests a list of all entries."""
    identifiers: list[int | str] = []
    wrong: dict[int, ChoiceError] = {}
    for place, entry in enumerate(entries):
        try:
            identifiers += _identifiers(entry)
        except ChoiceError as error:
            if not error.ways or not isinstance(_parse(error.ways[0]), Named):
                raise
            wrong[place] = error
    if not wrong:
        return identifiers
    # An error can suggest two ways: the first and the last ones together are two lists.
    lists = ([*entries], [*entries])
    for place, one in wrong.items():
        lists[0][place], lists[1][place] = one.ways[0], one.ways[-1]
    ways = dict.fromkeys(way for mended in lists for way in _meant(",".join(mended)))
    raise ChoiceError(next(iter(wrong.values())).what, ways=ways)


def is_request(text: str) -> bool:
    """Return whether `parse` accepts a text."""
    try:
        parse(text)
    except ChoiceError:
        return False
    return True


def _identifiers(entry: str) -> list[int | str]:
    """Return what one entry of a list names: a number, a range of numbers, or the start of a UUID."""
    low = entry.lower()
    low = low.removeprefix("smi:")  # %%on_gpu's prefix for nvidia-smi's numbers
    if match := re.fullmatch(r"0*([0-9]+)(?:([-:])0*([0-9]+))?", low):
        first, last = (min(int(digits[:8]), _HIGHEST + 1) for digits in (match[1], match[3] or "0"))
        if max(first, last) > _HIGHEST:
            raise ChoiceError(f"{entry!r} is not a GPU. No machine has that many.")
        if match[2] == ":":
            return [f"{first}:{last}"]
        if match[2] and first > last:
            down = ",".join(map(str, range(first, last - 1, -1)))
            ways = [f"{last}-{first}", *([down] if len(down) <= _LONGEST_WAY else [])]
            raise ChoiceError(f"{entry!r} runs backwards.", ways=ways)
        return list(range(first, last + 1)) if match[2] else [first]
    if uuid := read_uuid(entry):
        return [uuid]
    if re.fullmatch(r"(?:cuda|/?gpu):[0-9]+", low):
        raise ChoiceError(f"{entry!r} is a framework's name. Use nvidia-smi's numbers.", shows="both")
    raise _no_gpu(entry)


def _no_gpu(entry: str) -> ChoiceError:
    """Return the error for an entry that names no GPU."""
    low = entry.lower()
    if low.startswith("amd:"):
        return ChoiceError(
            f"{entry!r} is not a GPU. AMD's GPUs have plain numbers too. A process uses GPUs of one vendor: "
            "AMD's if it starts with GPU_MAGIC_VENDOR=amd."
        )
    if re.fullmatch(r"-[0-9]+", entry):
        return ChoiceError(f"{entry!r}: GPUs are numbered from 0. To hide all GPUs: none")
    if number := re.fullmatch(r"(?:gpu|cuda|device)[ _]?([0-9]{1,4})", low):
        return ChoiceError(f"{entry!r}: type the number alone.", ways=[number[1]])
    if ends := _RANGE.fullmatch(low):
        return ChoiceError(f"{entry!r}: a range has a hyphen.", ways=_meant(f"{ends[1]}-{ends[2]}"))
    if (word := low.partition(":")[0]) in WORDS:
        return ChoiceError(
            f"{entry!r} cannot be part of a list.", ways=["auto:2" if word == "auto" else word]
        )
    if number := re.match(r"auto\W{0,2}([1-9][0-9]{0,3})\b", low):
        what = f"{entry!r}: a colon goes before the number of GPUs."
        return ChoiceError(what, ways=[f"auto:{number[1]}"])
    import difflib  # rarely needed

    close = difflib.get_close_matches(word, WORDS, n=1, cutoff=0.7)
    if not close:
        return ChoiceError(f"{entry!r} is not a GPU. Expected {_EXPECTED}.")
    count = low[len(word) :] if close == ["auto"] else ""
    return ChoiceError(f"{entry!r} is not a GPU.", ways=_meant(f"{close[0]}{count}"))


def normalize_request(request: object) -> str:
    """Format an object as typed after `%gpus`. Raise ChoiceError if it cannot name GPUs in order."""
    if isinstance(request, str):
        return request
    if isinstance(request, Gpu):
        return request.number_text
    if isinstance(request, MigInstance):
        return request.uuid
    if isinstance(request, bool | set | frozenset | bytes):  # they mean neither a number nor an order
        raise ChoiceError(f"{request!r} does not name GPUs in order. Expected a number, a text or a list.")
    with contextlib.suppress(TypeError):
        return str(operator.index(request))  # type: ignore[arg-type] # any integer, also NumPy's
    try:
        entries = iter(request)  # type: ignore[call-overload]
    except TypeError:  # also for a tensor with one number, which has `__iter__`
        raise ChoiceError(f"{request!r} does not name a GPU. Expected a number, a text or a list.") from None
    return ",".join(map(normalize_request, entries))


def normalize_wait(wanted: object) -> str:
    """Format the GPUs to wait for as typed after `%gpus`. A number is how many GPUs."""
    if isinstance(wanted, Integral) and not isinstance(wanted, bool):
        return f"auto:{wanted}"
    try:
        return normalize_request(wanted)
    except ChoiceError:
        raise ChoiceError(
            f"{wanted!r:.60} names no GPUs to wait for. Try wait_for(1), which waits for any GPU"
        ) from None
