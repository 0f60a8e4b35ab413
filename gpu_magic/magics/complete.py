"""What Tab offers after `%gpus`: numbers, words, UUIDs, options, and nothing that is not for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher

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
    line = context.text_until_cursor
    command, *words = line.lstrip().split(" ")
    if command != "%gpus" or not words:
        return {"completions": []}
    if len(words) > 1 and words[-2] in _VALUES:
        return _offer(words[-1], _VALUES[words[-2]], "value")
    if words[-1].startswith("-"):
        return _offer(words[-1], _OPTIONS, "option")
    from gpu_magic.devices.model import Gpu

    named, comma, piece = words[-1].rpartition(",")
    devices = current().gpus().devices
    numbers = [str(device.index) for device in devices if isinstance(device, Gpu)]
    offers = [
        *(number for number in numbers if number not in named.split(",")),
        *(() if comma else _WORDS),
        *(str(device.uuid) for device in devices),
    ]
    return _offer(piece, offers, "gpu")


def _offer(start: str, offers: Iterable[str], kind: str) -> SimpleMatcherResult:
    """Offer what begins so. Python's names, which IPython would add, mean nothing in this line."""
    fitting = [
        SimpleCompletion(offer, type=kind) for offer in offers if offer.lower().startswith(start.lower())
    ]
    return {"completions": fitting, "matched_fragment": start, "ordered": True, "suppress": True}
