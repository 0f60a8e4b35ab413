"""What Tab offers after `%gpus`: numbers, words, UUIDs, options, and nothing that is not for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher

from gpu_magic.errors import GpuMagicError
from gpu_magic.session import current

if TYPE_CHECKING:
    from collections.abc import Iterable

    from IPython.core.completer import SimpleMatcherResult

__all__ = ["complete_gpus"]

_WORDS = ("all", "auto", "none", "reset")
_OPTIONS = ("--by", "--order", "--dry-run", "--force", "--strict")
_VALUES = {"--by": ("index", "uuid"), "--order": ("pci", "fastest")}


@context_matcher()
def complete_gpus(context: CompletionContext) -> SimpleMatcherResult:
    """Complete a `%gpus` line; leave every other line to IPython's own matchers."""
    command, *words = context.text_until_cursor.lstrip().split(" ")
    if command != "%gpus" or not words:
        return {"completions": []}
    option, equals, value = words[-1].partition("=")
    if equals and option in _VALUES:
        return _offer(value, _VALUES[option], "value")
    if len(words) > 1 and words[-2] in _VALUES:
        return _offer(words[-1], _VALUES[words[-2]], "value")
    if words[-1].startswith("-"):
        return _offer(words[-1], _OPTIONS, "option")
    named, comma, piece = words[-1].rpartition(",")
    return _offer(piece, _gpus(named.split(","), piece, is_first=not comma), "gpu")


def _gpus(named: list[str], piece: str, *, is_first: bool) -> list[str]:
    """Return all that can stand in a list of GPUs."""
    from gpu_magic.devices.model import Gpu

    try:
        devices = current().gpus().devices
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
