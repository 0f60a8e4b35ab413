"""What Tab offers after our magics: numbers, words, UUIDs and options, and nothing else of Python's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from IPython.core.profileapp import list_profiles_in
from IPython.paths import get_ipython_dir

import gpu_magic
from gpu_magic.cluster.cluster import running_cluster
from gpu_magic.devices.model import UNKNOWN, Gpu
from gpu_magic.errors import GpuMagicError
from gpu_magic.frameworks import known
from gpu_magic.gpus.request import is_request
from gpu_magic.process.tasks import tasks
from gpu_magic.shell.arguments import CODE, EXAMPLES, FLAG, LAUNCHERS, OPTIONS, WORDS
from gpu_magic.text import STRING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from gpu_magic.devices.model import Device

__all__ = ["Offers", "complete"]

_TAKE_VARIABLES = (*CODE, "%gpu_free")


class Offers(NamedTuple):
    """What is offered instead of Python's names, which mean nothing in a line of ours.

    Parameters
    ----------
    fragment
        What each of them takes the place of: the end of the line, up to the cursor.
    texts
        In the order in which they are shown.
    kind
        What they are, for the front end: "gpu", "option", "value".

    """

    fragment: str
    texts: list[str]
    kind: str


def complete(shell: Any, magic: str, words: list[str]) -> Offers | None:
    """Complete a magic's line; None: leave it to IPython's own matchers.

    Parameters
    ----------
    shell
        The shell that it is typed into.
    magic
        As typed: `%gpus`.
    words
        What follows it, up to the cursor, divided at each space; the last word is the one to complete.

    """
    *before, word = words
    is_cell = magic not in OPTIONS
    magic = magic if magic in OPTIONS else magic.removeprefix("%")  # a cell magic of a line magic's name
    previous, options = before[-1] if before else "", OPTIONS[magic]
    if magic in CODE and _is_open(" ".join(words)):
        return None  # of what is within brackets and strings, IPython's own matchers know more
    option, equals, value = word.partition("=")
    if equals and option in options:
        return _offer(value, _values(magic, option), "value")
    if word.startswith("-") or magic == "%gpu_doctor" or (magic == "%gpu_time" and is_cell):
        return _offer(word, options, "option")
    if options.get(previous, FLAG) != FLAG:
        return _value_of(shell, magic, previous, word)
    if magic == "%gpu_ps":
        offers = _own_processes() if before == ["end"] else OPTIONS[magic] if before else WORDS[magic]
        return _offer(word, offers, "process")
    if magic == "%gpu_tasks":
        *named, piece = ",".join([*before, word]).split(",")
        offers = [*([] if named else WORDS[magic]), *(task.name for task in tasks)]
        return _offer(piece, _without(named, offers), "task")
    if magic in ("%gpu_launch", "%gpu_time"):  # of files and of code, IPython's own matchers know more
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
    """Complete the value of an option, which stands before it."""
    *named, piece = word.split(",")
    if option in ("--in", "--loss"):
        return _offer(piece, _variables(shell, piece, named), "value")
    offers = _gpus(piece, is_first=False) if named and option == "--gpus" else _values(magic, option)
    return _offer(piece, _without(named, offers), "value")


def _device(magic: str, before: Sequence[str], word: str) -> Offers:
    """Complete what names GPUs, engines, or what a cell runs on."""
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
    """Return the numbers of one's own processes that can be ended, and their names."""
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
        return known()
    if option == "--profile":
        return [str(name) for name in list_profiles_in(get_ipython_dir())]
    if option == "--model":
        return _models()
    kind = OPTIONS[magic][option]
    return kind if isinstance(kind, tuple) else EXAMPLES.get(option, ())


def _models() -> list[str]:
    try:
        devices = gpu_magic.gpus().devices
    except GpuMagicError:
        return []
    return list(dict.fromkeys(device.name for device in devices if device.name is not UNKNOWN))


def _variables(shell: Any, start: str, named: Container[str]) -> list[str]:
    """Return the user's variables; those that begin with an underscore only where one is typed."""
    known = [name for name in shell.user_ns if name not in shell.user_ns_hidden and name not in named]
    return known if start.startswith("_") else [name for name in known if not name.startswith("_")]


def _devices(*, is_first: bool) -> list[str]:
    """Return what a cell can run on: what this kernel calls its GPUs, and the other ways to name them."""
    try:
        gpus = gpu_magic.gpus()
    except GpuMagicError:
        return []
    names = {} if gpus.kernel.names is UNKNOWN else gpus.kernel.names
    ordinals = [name.partition(":")[2] for name in names.values()]
    physical = [_physical(device) for device in gpus.devices if str(device.uuid) in names]
    return [*ordinals, *names.values(), *physical, *names, *(["cpu"] if is_first else [])]


def _physical(device: Device) -> str:
    is_amd = isinstance(device, Gpu) and device.prefix
    return device.number_text if is_amd else f"smi:{device.number_text}"


def _gpus(piece: str, *, is_first: bool) -> list[str]:
    """Return what can be in a list of GPUs, where a piece of it is typed."""
    try:
        devices = gpu_magic.gpus().devices
    except GpuMagicError:  # a machine to simulate that is not understood: %gpus says so
        return []
    whole = [device for device in devices if isinstance(device, Gpu) and not device.is_split]
    numbers = [gpu.index for gpu in whole if not gpu.prefix]
    offers = [gpu.number_text for gpu in whole]
    if is_first:
        counts = [f"auto:{count}" for count in range(1, len(numbers) + 1)] if ":" in piece else []
        instances = [device for device in devices if not isinstance(device, Gpu)]
        offers += [*sorted(WORDS["%gpus"]), *counts, *dict.fromkeys(one.number_text for one in instances)]
        offers += [one.uuid for one in instances]
    first, dash, _ = piece.partition("-")
    if dash and re.fullmatch(r"[0-9]{1,4}", first):
        offers += [f"{first}-{last}" for last in numbers if last > int(first)]
    return [*offers, *(str(gpu.uuid) for gpu in whole)]


def _without(named: Container[str], offers: Iterable[str]) -> list[str]:
    return [offer for offer in offers if offer not in named]


def _offer(start: str, offers: Iterable[str], kind: str) -> Offers:
    """Offer what begins so."""
    start_lower = start.lower()
    return Offers(start, [offer for offer in offers if offer.lower().startswith(start_lower)], kind)
