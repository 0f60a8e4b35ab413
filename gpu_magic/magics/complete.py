"""What Tab offers after `%gpus`: numbers, words, UUIDs, options."""

from __future__ import annotations

from typing import Any

from gpu_magic import session

__all__ = ["complete_gpus"]

_WORDS = ("all", "auto", "none", "reset")
_OPTIONS = ("--by", "--order", "--dry-run", "--force", "--strict")
_VALUES = {"--by": ("index", "uuid"), "--order": ("pci", "fastest")}


def complete_gpus(_shell: Any, event: Any) -> list[str]:
    """Return completions for the word under the cursor.

    Parameters
    ----------
    _shell
        The IPython shell.
    event
        With `line` up to the cursor and `symbol`, the piece of it that IPython replaces.

    """
    line, symbol = str(event.line), str(event.symbol)
    words = line.split(" ")
    if len(words) > 2 and words[-2] in _VALUES:  # noqa: PLR2004 - %gpus --by u
        return _beginning(symbol, _VALUES[words[-2]])
    if words[-1].startswith("-"):
        return _beginning(symbol, _OPTIONS)
    before, comma, piece = words[-1].rpartition(",")
    # IPython replaces from its own word start, which may or may not lie behind the last comma.
    head = symbol.removesuffix(piece) if symbol.endswith(piece) else ""
    named = set(before.split(","))
    devices = session.gpus().devices
    numbers = [str(device.index) for device in devices if hasattr(device, "index")]
    offers = [
        *(number for number in numbers if number not in named),
        *(() if comma else _WORDS),
        *(str(device.uuid) for device in devices),
    ]
    return [head + offer for offer in offers if offer.lower().startswith(piece.lower())]


def _beginning(start: str, offers: tuple[str, ...]) -> list[str]:
    return [offer for offer in offers if offer.startswith(start)]
