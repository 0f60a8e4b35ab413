"""What Tab offers after our magics: numbers, words, UUIDs and options, and nothing else of Python's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from IPython.core.profileapp import list_profiles_in
from IPython.paths import get_ipython_dir

import gpu_magic
from gpu_magic.devices.model import Gpu
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.engines.current import running_cluster
from gpu_magic.errors import GpuMagicError
from gpu_magic.frameworks import known
from gpu_magic.magics.arguments import FLAG, OPTIONS
from gpu_magic.process.tasks import tasks

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from gpu_magic.devices.model import Device

__all__ = ["Offers", "complete"]

_WORDS = ("all", "auto", "none", "reset")
_CLUSTER = ("attach", "restart", "stop")
_TAKE_VARIABLES = ("%to_gpu", "%to_cpu", "%where", "%gpu_free", "%gpu_fit")


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
    magic = magic if magic in OPTIONS else magic.removeprefix("%")  # a cell magic of a line magic's name
    previous, options = before[-1] if before else "", OPTIONS[magic]
    option, equals, value = word.partition("=")
    if equals and option in options:
        return _offer(value, _values(magic, option), "value")
    if word.startswith("-"):
        return _offer(word, options, "option")
    *named, piece = word.split(",")
    if options.get(previous, FLAG) != FLAG:
        takes_variables = previous in ("--in", "--fits", "--loss")
        values = _variables(shell, named) if takes_variables else _without(named, _values(magic, previous))
        return _offer(piece, values, "value")
    if magic == "%gpu_tasks":
        return _offer(word, [task.name for task in tasks], "task")
    if magic == "%gpu_doctor":
        return _offer(word, options, "option")
    if magic == "%gpu_launch":
        return None  # IPython's own matcher completes files
    if magic in _TAKE_VARIABLES:
        is_name = word.isidentifier()  # IPython's own matchers complete attributes and items
        return _offer(word, _variables(shell, words), "variable") if is_name else None
    if magic == "%gpu_cluster" and before and before[0] in _CLUSTER:
        return _offer(piece, _without(named, _engines() if before[0] == "restart" else ()), "engine")
    if magic == "%gpu_cluster":
        offers = [*_gpus(piece, is_first=not named), *([] if before or named else _CLUSTER)]
    else:
        offers = _gpus(piece, is_first=not named) if magic == "%gpus" else _devices(is_first=not named)
    return _offer(piece, _without(named, offers), "gpu")


def _own_processes() -> list[str]:
    """Return the numbers of one's own processes that can be ended, and their names."""
    try:
        own = gpu_magic.my_processes()
    except GpuMagicError:
        return []
    ended = own.can_be_ended
    return [*(str(one.pid) for one in ended), *dict.fromkeys(map(own.name, ended))]


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
    if option == "--end":
        return _own_processes()
    kind = OPTIONS[magic][option]
    return kind if isinstance(kind, tuple) else ()


def _variables(shell: Any, named: Container[str]) -> list[str]:
    return [name for name in shell.user_ns if name not in shell.user_ns_hidden and name not in named]


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
        offers += [*_WORDS, *counts, *dict.fromkeys(one.number_text for one in instances)]
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
