"""Text that can be shown anywhere. Names and masks come from the machine and from others, and are hostile."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["listed", "printable", "shortened"]


def printable(text: str) -> str:
    """Return text that can stand in one line of a terminal: no control or direction characters."""
    return "".join(c if c.isprintable() else "�" for c in text)


def shortened(text: str, longest: int) -> str:
    """Return printable text of at most so many characters."""
    shown = printable(text[: longest + 1])
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def listed(names: Iterable[str], none: str = "") -> str:
    """Return `a, b and c`; `none` where there are none."""
    *first, last = list(names) or [none]
    return f"{', '.join(first)} and {last}" if first else last
