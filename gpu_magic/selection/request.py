"""What a user asks for: `1,3`  `0-2,5`  `GPU-8f3a`  `auto:2`  `none`, read into a `Request`."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from gpu_magic.errors import ChoiceError

__all__ = ["WORDS", "Auto", "Everything", "Named", "Nothing", "Request", "Reset", "parse"]


@dataclass(frozen=True, slots=True)
class Named:
    """These GPUs in this order: an int is nvidia-smi's number, a str the beginning of a UUID."""

    wanted: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Auto:
    """The least busy ones, this many."""

    count: int = 1


@dataclass(frozen=True, slots=True)
class Everything:
    """All GPUs that this kernel may use."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """No GPU: the empty mask."""


@dataclass(frozen=True, slots=True)
class Reset:
    """What the kernel was started with, unset included."""


Request = Named | Auto | Everything | Nothing | Reset

WORDS: dict[str, Request] = {"all": Everything(), "none": Nothing(), "auto": Auto(), "reset": Reset()}

_EXPECTED = "numbers (1,3), a range (0-2), a UUID prefix (GPU-8f3a), auto, auto:2, all, none or reset"
# No machine has this many; a longer range is a slip, and would take memory for nothing.
_HIGHEST = 4095
_LONGEST = 8192


def parse(text: str) -> Request:
    """Read a request.

    Parameters
    ----------
    text
        As typed after `%gpus`; spaces around commas do not matter.

    Raises
    ------
    ChoiceError
        One line: what is wrong, and the nearest thing that would work.

    """
    asked = re.sub(r"[\[\]()'\"]", "", text).strip()  # a list or a tuple, as `{n}` writes it
    if not asked:
        raise ChoiceError(f"No GPU is named; expected {_EXPECTED}.")
    if len(asked) > _LONGEST:
        raise ChoiceError(f"{asked[:40]!r}… is too long for a list of GPUs.")
    if word := WORDS.get(asked.lower()):
        return word
    if match := re.fullmatch(r"auto:(.*)", asked, re.IGNORECASE):
        return _auto(match[1])
    if "{" in asked:
        raise ChoiceError(f"{text.strip()!r} is not a variable or an expression that has a value here.")
    if "Gpuindex=" in asked:
        raise ChoiceError(
            "gpu_magic.choose(...) takes GPU objects; %gpus takes numbers, such as {gpu.index}."
        )
    asked = re.sub(r"\bsmi:(?=\d)", "", asked, flags=re.IGNORECASE)  # what %%on_gpu calls nvidia-smi's number
    if re.search(r"[;|&+]|\d\s+\d", asked):
        raise ChoiceError(f"{asked!r}: GPUs are separated by commas; try {_with_commas(asked)}.")
    wanted: list[int | str] = []
    for part in asked.split(","):
        found = _part(part.strip(), asked)
        again = next(
            (one for number, one in enumerate(found) if one in wanted or one in found[:number]), None
        )
        if again is not None:
            better = ",".join(str(one) for one in dict.fromkeys([*wanted, *found]))
            raise ChoiceError(
                f"{asked!r} names {again} twice, and CUDA reads that as no GPU at all; try {better}."
            )
        wanted += found
    return Named(tuple(wanted))


def _with_commas(asked: str) -> str:
    """Return the list that was probably meant, where it is one."""
    better = ",".join(dict.fromkeys(re.findall(r"[\w-]+", asked)))
    try:
        parse(better)
    except ChoiceError:
        return "1,3"
    return better


def _auto(count: str) -> Auto:
    if not re.fullmatch(r"[0-9]{1,4}", count) or int(count) == 0:
        raise ChoiceError(
            f"'auto:{count}' needs a number from 1 on behind the colon; auto:2 picks the two least busy ones."
        )
    return Auto(int(count))


def _part(part: str, asked: str) -> list[int | str]:
    """Read what stands between two commas."""
    if not part:
        rest = ",".join(one.strip() for one in asked.split(",") if one.strip())
        raise ChoiceError(f"{asked!r} has a comma with nothing beside it; try {rest or '1,3'}.")
    if re.fullmatch(r"[0-9]+", part):
        return [_index(part)]
    if match := re.fullmatch(r"([0-9]+)-([0-9]+)", part):
        first, last = _index(match[1]), _index(match[2])
        if first > last:
            raise ChoiceError(
                f"{part!r} runs backwards; try {last}-{first}, or one by one to keep the order."
            )
        return list(range(first, last + 1))
    if match := re.fullmatch(r"(GPU|MIG)-([0-9a-f-]*)", part, re.IGNORECASE):
        # The driver writes "GPU-" in capitals and the rest in small letters; people paste both.
        return [f"{match[1].upper()}-{match[2].lower()}"]
    raise ChoiceError(_what_was_meant(part))


def _what_was_meant(part: str) -> str:
    """Say what is wrong with a piece that is no GPU, and the nearest thing that would work."""
    if re.fullmatch(r"-[0-9]+", part):
        return f"{part!r}: GPUs are numbered from 0; to hide all of them, try none."
    if re.fullmatch(r"(?:cuda|/?gpu):([0-9]+)", part, re.IGNORECASE):
        return f"{part!r} is what frameworks say; GPUs have nvidia-smi's numbers here: %gpus shows both."
    if part.lower() in WORDS or part.lower().startswith("auto:"):
        return f"{part!r} stands alone, not in a list; try {part.lower()}."
    if match := re.fullmatch(r"gpu[ -]?([0-9]{1,4})", part, re.IGNORECASE):
        return f"{part!r} is no GPU's name; try {match[1]}."
    if match := re.fullmatch(r"([0-9]{1,4})(?:\.\.+|:)([0-9]{1,4})", part):
        return f"{part!r} is no range; try {match[1]}-{match[2]}."
    if close := difflib.get_close_matches(part.lower(), WORDS, n=1):
        return f"{part!r} is no GPU; did you mean {close[0]}?"
    return f"{part!r} is no GPU; expected {_EXPECTED}."


def _index(digits: str) -> int:
    if len(digits) > len(str(_HIGHEST)) or int(digits) > _HIGHEST:
        raise ChoiceError(f"{digits!r} is no GPU; no machine has that many.")
    return int(digits)
