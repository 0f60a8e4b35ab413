"""What Tab offers after the magics: numbers, words, UUIDs, options and variables, but no other names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from IPython.core.profileapp import list_profiles_in
from IPython.paths import get_ipython_dir

import gpu_magic
from gpu_magic.cluster.cluster import running_cluster
from gpu_magic.devices.model import UNKNOWN, Gpu
from gpu_magic.errors import GpuMagicError
from gpu_magic.frameworks import KNOWN
from gpu_magic.gpus.request import is_request
from gpu_magic.option_table import OPTIONS, TYPICAL, Kind
from gpu_magic.processes.tasks import tasks
from gpu_magic.shell.arguments import CODE, LAUNCHERS, WORDS
from gpu_magic.text import STRING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence


__all__ = ["Offers", "complete"]

_TAKE_VARIABLES = (*CODE, "%gpu_free")


class Offers(NamedTuple):
    """Completions that replace IPython's own, because most of Python's names mean nothing in these lines.

    Parameters
    ----------
    fragment
        The end of the line up to the cursor, which each completion replaces.
    texts
        The completions, in the order in which they are shown.
    kind
        The kind that the front end shows: "gpu", "option", "value".

    """

    fragment: str
    texts: list[str]
    kind: str


def complete(shell: Any, magic: str, words: list[str]) -> Offers | None:
    """Complete a magic's line. Return None to leave it to IPython's own matchers.

    Parameters
    ----------
    shell
        The shell in which the line is typed.
    magic
        As typed: `%gpus`.
    words
        The text after the magic up to the cursor, split at each space. The last word is to be completed.

    """
    *before, word = words
    is_cell = magic not in OPTIONS
    magic = magic if magic in OPTIONS else magic.removeprefix("%")  # a cell magic named like a line magic
    previous, options = before[-1] if before else "", OPTIONS[magic]
    if magic in CODE and _is_open(" ".join(words)):
        return None  # IPython's own matchers know more about brackets and strings
    option, equals, value = word.partition("=")
    if equals and option in options:
        return _offer(value, _values(magic, option), "value")
    if word.startswith("-") or magic == "%gpu_doctor" or (magic == "%gpu_time" and is_cell):
        return _offer(word, options, "option")
    if previous in options and options[previous].kind is not Kind.FLAG:
        return _value_of(shell, magic, previous, word)
    if magic == "%gpu_ps":
        offers = _own_processes() if before == ["end"] else OPTIONS[magic] if before else WORDS[magic]
        return _offer(word, offers, "process")
    if magic == "%gpu_tasks":
        *named, piece = ",".join([*before, word]).split(",")
        offers = [*([] if named else WORDS[magic]), *(task.name for task in tasks)]
        return _offer(piece, _without(named, offers), "task")
    if magic in ("%gpu_launch", "%gpu_time"):  # IPython's own matchers know more about files and code
        offer = _offer(word, LAUNCHERS if magic == "%gpu_launch" else WORDS[magic], "value")
        return offer if offer.texts and not before else None
    if magic in _TAKE_VARIABLES:
        is_name = word.isidentifier() or not word  # IPython's own matchers complete attributes and items
        return _offer(word, _variables(shell, word, words), "variable") if is_name else None
    return _device(magic, before, word)


def _is_open(code: str) -> bool:
    """Return whether code ends within a string or brackets."""
    rest = re.sub(STRING, "", code)
    return any(quote in rest for quote in "'\"") or sum(map(rest.count, "([{")) > sum(map(rest.count, ")]}"))


def _value_of(shell: Any, magic: str, option: str, word: str) -> Offers:
    """Complete the value of the option before it."""
    *named, piece = word.split(",")
    if option == "--loss":
        return _offer(piece, _variables(shell, piece, named), "value")
    offers = _gpus(piece, is_first=False) if named and option == "--gpus" else _values(magic, option)
    return _offer(piece, _without(named, offers), "value")


def _device(magic: str, before: Sequence[str], word: str) -> Offers:
    """Complete names of GPUs, engines, or the devices that a cell runs on."""
    *named, piece = word.split(",")
    if magic == "%gpu_cluster" and before and before[0] in WORDS[magic]:
        return _offer(piece, _without(named, _engines() if before[0] == "restart" else ()), "engine")
    if magic == "%gpu_cluster":
        offers = [*_gpus(piece, is_first=not named), *([] if before or named else WORDS[magic])]
    elif magic == "%gpus" and not word and before and before[-1][-1:] != "," and any(map(is_request, before)):
        return _offer(word, OPTIONS[magic], "option")
    else:
        offers = _gpus(piece, is_first=not named) if magic == "%gpus" else _devices(is_first=not named)
    return _offer(piece, _without(named, offers), "gpu")


def _own_processes() -> list[str]:
    """Return the PIDs and the names of the user's own processes that can be ended."""
    try:
        own = gpu_magic.my_processes()
    except GpuMagicError:
        return []
    ended = [one for one in own if not one.how_to_end]
    return [*(str(one.pid) for one in ended), *dict.fromkeys(one.name for one in ended)]


def _engines() -> list[str]:
    running = running_cluster()
    return [str(number) for number in running.engines] if running else []


def _values(magic: str, option: str) -> Iterable[str]:
    if option == "--gpus":
        return _gpus("", is_first=True)
    if option == "--device":
        return _devices(is_first=True)
    if option == "--only":
        return KNOWN
    if option == "--profile":
        return [str(name) for name in list_profiles_in(get_ipython_dir())]
    if option == "--model":
        return _models()
    _, kind, _, example, *_ = OPTIONS[magic][option]
    if isinstance(kind, tuple):
        return kind
    return TYPICAL.get(kind, (example,) if kind is Kind.NUMBER else ())


def _models() -> list[str]:
    try:
        devices = gpu_magic.gpus().devices
    except GpuMagicError:
        return []
    return list(dict.fromkeys(device.name for device in devices if device.name is not UNKNOWN))


def _variables(shell: Any, start: str, named: Container[str]) -> list[str]:
    """Return the user's variables; those with a leading underscore only if an underscore is typed."""
    known = [name for name in shell.user_ns if name not in shell.user_ns_hidden and name not in named]
    return known if start.startswith("_") else [name for name in known if not name.startswith("_")]


def _devices(*, is_first: bool) -> list[str]:
    """Return the devices that a cell can run on: the names that this kernel has for its GPUs, and others."""
    try:
        gpus = gpu_magic.gpus()
    except GpuMagicError:
        return []
    visible = () if gpus.visible is UNKNOWN else gpus.visible
    ordinals = [str(ordinal) for ordinal in range(len(visible))]
    names = [f"cuda:{ordinal}" for ordinal in ordinals]
    seen = [device for device in gpus.devices if isinstance(gpus.ordinal(device), int)]
    physical = [f"smi:{device.number_text}" for device in seen]
    uuids = [one if isinstance(one, str) else one.uuid for one in visible]
    known = [uuid for uuid in uuids if uuid is not UNKNOWN]
    return [*ordinals, *names, *physical, *known, *(["cpu"] if is_first else [])]


def _gpus(piece: str, *, is_first: bool) -> list[str]:
    """Return the completions for a piece of a list of GPUs."""
    try:
        devices = gpu_magic.gpus().devices
    except GpuMagicError:  # the description of the simulated machine is invalid: %gpus shows the error
        return []
    whole = [device for device in devices if isinstance(device, Gpu) and not device.is_split]
    offers = [gpu.number_text for gpu in whole]
    if is_first:
        counts = [f"auto:{count}" for count in range(1, len(whole) + 1)] if ":" in piece else []
        instances = [device for device in devices if not isinstance(device, Gpu)]
        offers += [*sorted(WORDS["%gpus"]), *counts, *dict.fromkeys(one.number_text for one in instances)]
        offers += [one.uuid for one in instances]
    first, dash, _ = piece.partition("-")
    if dash and re.fullmatch(r"[0-9]{1,4}", first):
        offers += [f"{first}-{last}" for last in (gpu.index for gpu in whole) if last > int(first)]
    return [*offers, *(str(gpu.uuid) for gpu in whole if gpu.uuid is not UNKNOWN)]


def _without(named: Container[str], offers: Iterable[str]) -> list[str]:
    return [offer for offer in offers if offer not in named]


def _offer(start: str, offers: Iterable[str], kind: str) -> Offers:
    """Return the offers that begin with the typed text."""
    start_lower = start.lower()
    return Offers(start, [offer for offer in offers if offer.lower().startswith(start_lower)], kind)
