"""Parses what a user asks for, `1,3`  `0-2,5`  `GPU-8f3a`  `auto:2`  `none`, into a `Request`."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpu_magic.errors import ChoiceError
from gpu_magic.selection.plain import in_ascii, without_brackets
from gpu_magic.selection.wording import OF_HELP, SYNONYMS, count_meant, joined

if TYPE_CHECKING:
    from gpu_magic.devices.model import Vendor

__all__ = [
    "WORDS",
    "Auto",
    "Everything",
    "Named",
    "Nothing",
    "Request",
    "Reset",
    "is_request",
    "parse",
    "read_uuid",
]


@dataclass(frozen=True, slots=True)
class Named:
    """`1,3` or `GPU-8f3a`: these devices in this order.

    Parameters
    ----------
    identifiers
        An int is nvidia-smi's number of a GPU. A str is the beginning of a UUID, a MIG instance, `2:1` for
        instance 1 of GPU 2, or rocm-smi's number of a GPU, `amd:1`.

    """

    identifiers: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Auto:
    """`auto:2`: this many GPUs, free ones first, then those with the most free memory.

    `amd:auto:2` is of AMD's.
    """

    count: int = 1
    vendor: Vendor | None = None


@dataclass(frozen=True, slots=True)
class Everything:
    """`all`: every GPU that this kernel may use; `amd:all`: of AMD's."""

    vendor: Vendor | None = None


@dataclass(frozen=True, slots=True)
class Nothing:
    """`none`: no GPU. CUDA_VISIBLE_DEVICES is set, and empty."""


@dataclass(frozen=True, slots=True)
class Reset:
    """`reset`: what the kernel was started with, which can be no value at all."""


Request = Named | Auto | Everything | Nothing | Reset

WORDS: dict[str, Request] = {"all": Everything(), "none": Nothing(), "auto": Auto(), "reset": Reset()}

_ALL_BUT = re.compile(
    r"(?:all|every)(?:\s+gpus?)?\s+(?:but|except|without|minus)\s+([0-9]{1,3})?.*", re.IGNORECASE
)
# What GPUs are called, `A100`, `2x RTX 4090`, `NVIDIA L4`, `MI300X`, perhaps with how many.
_MODEL = re.compile(
    r"(?:([1-9][0-9]?)\s*x?\s*)?"
    r"((?:(?:nvidia|amd|geforce|tesla|quadro|instinct|radeon|rtx|gtx|titan)[ -][a-z0-9 -]+)"
    r"|(?:a2|l2|l4|p4|p6|t4|[abhlptv][1-9][0-9]{1,3}s?|(?:mi|gh|gb|rtx|gtx)[1-9][0-9]{1,3}[a-z]{0,3})"
    r"(?:[ -][0-9]{1,3}gb)?)",
    re.IGNORECASE,
)
_EXPECTED = (
    "numbers (1,3), a range (0-2), a MIG instance (2:1), a UUID prefix (GPU-8f3a), auto, auto:2, all, none "
    "or reset"
)
_UUID = re.compile(r"(GPU-|MIG-|MIG-GPU-)([0-9a-f-]*(?:/[0-9]{1,4}/[0-9]{1,4})?)", re.IGNORECASE)
# No machine has this many GPUs. A larger range is a typing error, and would only take memory.
_HIGHEST = 4095
_LONGEST = 8192  # characters


def parse(text: str) -> Request:
    """Return the request that a text makes.

    Parameters
    ----------
    text
        As typed after `%gpus`; spaces around commas do not matter.

    Raises
    ------
    ChoiceError
        The text is not a request. The message says what is wrong, and what would work.

    """
    asked = without_brackets(text)
    if not asked:
        raise ChoiceError(f"No GPU is named; expected {_EXPECTED}.")
    if len(asked) > _LONGEST:
        raise ChoiceError(f"{asked[:40]!r}… is too long for a list of GPUs.")
    vendor, word = _divided(asked)
    if request := WORDS.get(word.lower()):
        return replace(request, vendor=vendor) if isinstance(request, Auto | Everything) else request
    if match := re.fullmatch(r"auto:(.*)", word, re.IGNORECASE | re.DOTALL):
        return _auto(match[1], vendor)
    _refuse_wording(asked)
    asked = re.sub(r"\bsmi:(?=\d)", "", asked, flags=re.IGNORECASE)  # what %%on_gpu calls nvidia-smi's number
    if re.search(r"[;|&+]|\d\s+\d|\d\.\d", asked):
        raise ChoiceError(f"{asked!r}: GPUs are separated by commas; try {_with_commas(asked)}.")
    identifiers: list[int | str] = []
    named: set[int | str] = set()
    for entry in asked.split(","):
        found = _identifiers(entry.strip(), asked)
        repeated = next((identifier for identifier in found if identifier in named), None)
        if repeated is not None:
            better = ",".join(map(str, dict.fromkeys([*identifiers, *found])))
            raise ChoiceError(
                f"{asked!r} names {repeated} twice, and CUDA reads that as no GPU at all; try {better}."
            )
        identifiers += found
        named.update(found)
    return Named(tuple(identifiers))


def _refuse_wording(asked: str) -> None:
    """Raise for what is another way to say a request; the message says how it is typed.

    Raises
    ------
    ChoiceError
        It is one.

    """
    if (plain := in_ascii(asked)) != asked and is_request(plain):
        raise ChoiceError(f"{asked!r} needs plain digits, commas and hyphens; try {plain}.")
    if match := re.fullmatch(r"auto[\s=(:;,./-]*([1-9][0-9]{0,3})\)?", asked, re.IGNORECASE):
        raise ChoiceError(f"{asked!r}: a colon goes before the number of GPUs; try auto:{match[1]}.")
    if count := count_meant(asked):
        raise ChoiceError(f"{asked!r} is not a GPU; try {count}.")
    if (better := joined(asked)) != asked and is_request(better):
        raise ChoiceError(f"{asked!r} is not a list of GPUs; try {better}.")
    if match := _ALL_BUT.fullmatch(asked):
        raise ChoiceError(
            f"{asked!r}: none can be left out of all; name those to use, as in {_around(match[1])}."
        )
    if match := _MODEL.fullmatch(asked):
        number = f":{match[1]}" if match[1] else ""
        raise ChoiceError(
            f"{asked!r} is not a GPU's number or UUID; by model, try auto{number} --model {match[2]}."
        )


def _divided(asked: str) -> tuple[Vendor | None, str]:
    """Return the vendor whose GPUs a word is about, `amd:auto:2`, and the word; None where none is named."""
    match = re.fullmatch(r"amd:((?:auto|all)\b.*)", asked, re.IGNORECASE | re.DOTALL)
    return ("amd", match[1]) if match else (None, asked)


def _with_commas(asked: str) -> str:
    """Return the list that was probably meant, where it is valid; else an example."""
    better = ",".join(dict.fromkeys(re.findall(r"[\w:/-]+", asked)))
    return better if is_request(better) else "1,3"


def _around(number: str) -> str:
    """Return an example of a list without a number, of GPUs that are there where that one is: `0-2` for 3."""
    if not number or int(number) == 0:
        return "1"
    return f"0-{int(number) - 1}" if int(number) > 1 else "0"


def is_request(text: str) -> bool:
    """Return whether `parse` takes a text."""
    try:
        parse(text)
    except ChoiceError:
        return False
    return True


def _auto(count: str, vendor: Vendor | None) -> Auto:
    if re.fullmatch(r"[0-9]{1,4}", count) and int(count):
        return Auto(int(count), vendor)
    auto = f"{vendor}:auto" if vendor else "auto"
    if match := re.match(r"\s*([1-9][0-9]{0,3})\b", count):
        raise ChoiceError(f"'{auto}:{count}' has more than a number after the colon; try {auto}:{match[1]}.")
    raise ChoiceError(
        f"'{auto}:{count}' needs a number, 1 or more, after the colon; {auto}:2 picks two: free ones first, "
        "then those with the most free memory."
    )


def _identifiers(entry: str, asked: str) -> list[int | str]:
    """Return what one entry of a list names: a number, a range of numbers, or the beginning of a UUID."""
    if not entry:
        rest = ",".join(other.strip() for other in asked.split(",") if other.strip())
        better = rest if is_request(rest) else "1,3"
        raise ChoiceError(f"{asked!r} has a comma with nothing beside it; try {better}.")
    if match := re.fullmatch(r"amd:([0-9].*)", entry, re.IGNORECASE | re.DOTALL):
        if instance := re.fullmatch(r"([0-9]+):[0-9]+", match[1]):
            raise ChoiceError(f"{entry!r}: MIG splits NVIDIA's GPUs, and not AMD's; try amd:{instance[1]}.")
        return [f"amd:{number}" for number in _identifiers(match[1], asked)]
    if re.fullmatch(r"[0-9]+", entry):
        return [_index(entry)]
    if match := re.fullmatch(r"([0-9]+)-([0-9]+)", entry):
        first, last = _index(match[1]), _index(match[2])
        if first > last:
            raise ChoiceError(
                f"{entry!r} runs backwards; try {last}-{first}, or one by one to keep the order."
            )
        return list(range(first, last + 1))
    if match := re.fullmatch(r"([0-9]+):([0-9]+)", entry):
        return [f"{_index(match[1])}:{_index(match[2])}"]
    if uuid := read_uuid(entry):
        return [uuid]
    raise ChoiceError(_what_was_meant(entry))


def read_uuid(entry: str) -> str:
    """Return a UUID, or its beginning, as the driver writes it; empty for anything else.

    It writes `GPU-` and `MIG-` in capitals and the rest in small letters, and people paste both. Before R470
    it wrote `MIG-GPU-8f3a…/1/0` for a MIG instance.
    """
    match = _UUID.fullmatch(entry)
    return f"{match[1].upper()}{match[2].lower()}" if match else ""


def _what_was_meant(entry: str) -> str:
    """Return what is wrong with an entry that names no GPU, and what would work."""
    if re.fullmatch(r"-[0-9]+", entry):
        return f"{entry!r}: GPUs are numbered from 0; to hide all of them, try none."
    if re.fullmatch(r"(?:cuda|/?gpu):([0-9]+)", entry, re.IGNORECASE):
        return f"{entry!r} is a framework's name; GPUs have nvidia-smi's numbers here: %gpus shows both."
    if entry.lower() in WORDS or entry.lower().startswith("auto:"):
        alone = entry.lower() if is_request(entry) else "auto:2"
        return f"{entry!r} can't be part of a list; try {alone}."
    return _number_meant(entry) or _word_meant(entry)


def _number_meant(entry: str) -> str:
    """Return what is said of another way to write a number or a range; empty for anything else."""
    if match := re.fullmatch(r"([0-9]{1,3}):([0-9]{1,3}):[0-9:]*", entry):
        instance = f"{match[1]}:{match[2]} for its MIG instance {match[2]}"
        return f"{entry!r} has a colon too many; try {match[1]}, or {instance}."
    if match := re.fullmatch(r"gpus?[ (-]?([0-9]{1,3})\)?", entry, re.IGNORECASE):
        return f"{entry!r} is not a GPU; try {match[1]}."
    if entry in ("o", "O"):
        return f"{entry!r} is a letter; try 0."
    if match := re.fullmatch(r"([0-9]{1,3})-", entry):
        return f"{entry!r} is a range without an end; try {int(match[1])}, or all."
    if match := re.fullmatch(r"([0-9]{1,4})\.\.+([0-9]{1,4})", entry):
        first, last = sorted((_index(match[1]), _index(match[2])))
        return f"{entry!r} is not a range; try {first}-{last}."
    if (word := entry.split(maxsplit=1)[0]) != entry and is_request(word):
        return f"{entry!r} is not a GPU; try {word}."
    return ""


def _word_meant(entry: str) -> str:
    """Return what is said of a word that names no GPU."""
    if entry.lower() in OF_HELP:
        return f"{entry!r} is not a GPU; {OF_HELP[entry.lower()]}"
    if meant := SYNONYMS.get(entry.lower()):
        return f"{entry!r} is not a GPU; try {meant}."
    if close := difflib.get_close_matches(entry.lower(), WORDS, n=1, cutoff=0.7):
        return f"{entry!r} is not a GPU; did you mean {close[0]}?"
    return f"{entry!r} is not a GPU; expected {_EXPECTED}."


def _index(digits: str) -> int:
    if len(digits) > len(str(_HIGHEST)) or int(digits) > _HIGHEST:
        raise ChoiceError(f"{digits!r} is not a GPU; no machine has that many.")
    return int(digits)
