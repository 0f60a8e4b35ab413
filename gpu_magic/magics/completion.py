"""What Tab offers after our magics: numbers, words, UUIDs and options, and nothing else of Python's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher
from IPython.core.getipython import get_ipython

from gpu_magic.errors import GpuMagicError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from IPython.core.completer import SimpleMatcherResult

    from gpu_magic.magics.arguments import Options

__all__ = ["complete_magics"]

_WORDS = ("all", "auto", "none", "reset")
_MOVING = ("%to_gpu", "%to_cpu", "%gpu_free")
_COMMANDS = ("%gpus", "%%on_gpu", *_MOVING)


@context_matcher()
def complete_magics(context: CompletionContext) -> SimpleMatcherResult:
    """Complete a line of ours; leave every other line to IPython's own matchers."""
    command, *words = context.text_until_cursor.lstrip().split(" ")
    if not words or command not in _COMMANDS:  # most lines: nothing is imported for those
        return {"completions": []}
    from gpu_magic.magics.arguments import OPTIONS

    options = OPTIONS[command]
    option, equals, value = words[-1].partition("=")
    if equals and option in options:
        return _offer(value, _values(option, options), "value")
    if words[-1].startswith("-"):
        return _offer(words[-1], options, "option")
    named, comma, piece = words[-1].rpartition(",")
    if len(words) > 1 and options.get(words[-2], ()) != ():
        offers = [value for value in _values(words[-2], options) if value not in named.split(",")]
        return _offer(piece, offers, "value")
    if command in _MOVING:
        is_name = words[-1].isidentifier()  # attributes and items are left to IPython's own matchers
        return _offer(words[-1], _variables(words), "variable") if is_name else {"completions": []}
    if command == "%gpus":
        return _offer(piece, _gpus(named.split(","), piece, is_first=not comma), "gpu")
    return _offer(piece, _places(named.split(","), is_first=not comma), "gpu")


def _values(option: str, options: Options) -> tuple[str, ...]:
    if option == "--device":
        return tuple(_places([], is_first=True))
    if option == "--only":
        from gpu_magic.frameworks import known

        return known()
    values = options[option]
    return values if isinstance(values, tuple) else ()


def _variables(named: list[str]) -> list[str]:
    """Return the user's variables; IPython's own matchers do the rest: attributes, items."""
    shell: Any = get_ipython()
    return [name for name in shell.user_ns if name not in shell.user_ns_hidden and name not in named]


def _places(named: list[str], *, is_first: bool) -> list[str]:
    """Return what a cell can run on: what this kernel calls its GPUs, and the other ways to name them."""
    import gpu_magic
    from gpu_magic.devices.unknown import UNKNOWN

    try:
        inventory = gpu_magic.gpus()
    except GpuMagicError:
        return []
    names = inventory.kernel.names
    here = {} if names is UNKNOWN else dict(names)
    offers = [name.partition(":")[2] for name in here.values()] + list(here.values())
    offers += [f"smi:{gpu.index}" for gpu in inventory if str(gpu.uuid) in here] + list(here)
    return [offer for offer in [*offers, *(["cpu"] if is_first else [])] if offer not in named]


def _gpus(named: list[str], piece: str, *, is_first: bool) -> list[str]:
    """Return all that can stand in a list of GPUs."""
    import gpu_magic
    from gpu_magic.devices.model import Gpu

    try:
        devices = gpu_magic.gpus().devices
    except GpuMagicError:  # a machine to simulate that is not understood: %gpus says so
        return []
    whole = [device for device in devices if isinstance(device, Gpu) and not device.is_split]
    numbers = [gpu.index for gpu in whole]
    offers = [str(number) for number in numbers if str(number) not in named]
    if is_first:
        counts = [f"auto:{count}" for count in range(1, len(numbers) + 1)] if ":" in piece else []
        offers += [*_WORDS, *counts, *(part.uuid for part in devices if not isinstance(part, Gpu))]
    first, dash, _ = piece.partition("-")
    if dash and first.isdecimal():
        offers += [f"{first}-{last}" for last in numbers if last > int(first)]
    return [*offers, *(str(gpu.uuid) for gpu in whole)]


def _offer(start: str, offers: Iterable[str], kind: str) -> SimpleMatcherResult:
    """Offer what begins so, instead of Python's names, which mean nothing in this line."""
    fitting = [
        SimpleCompletion(offer, type=kind) for offer in offers if offer.lower().startswith(start.lower())
    ]
    return {"completions": fitting, "matched_fragment": start, "ordered": True, "suppress": True}
