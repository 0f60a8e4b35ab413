"""How options are written in what is said of them: `--growth` where one types, `growth` in Python."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = ["either", "in_python", "nearest_option", "option", "spelled"]

# Whether what runs was called from Python by the user: see `public`.
in_python: ContextVar[bool] = ContextVar("in_python", default=False)
# What ends, takes or moves something is suggested for almost its own name alone.
_HARMFUL = ("--all", "--force", "--kill", "--yes")
# Those that are typed by another name.
_TYPED = {"count": "-n", "batch_size": "--batch"}


def option(name: str, *value: object) -> str:
    """Return an option, as whoever reads it can write it.

    Parameters
    ----------
    name
        As in Python: `min_free`.
    value
        Its value, if it is to be shown: True for one that is typed without a value.

    """
    if in_python.get():
        return f"{name}={value[0]!r:.60}" if value else name
    typed = _TYPED.get(name) or f"--{name.replace('_', '-')}"
    return f"{typed} {value[0]}" if value and value[0] is not True else typed


def either(typed: str, called: str) -> str:
    """Return what one types, or calls in Python, as whoever reads it can write it."""
    return called if in_python.get() else typed


@contextmanager
def spelled(*, is_in_python: bool) -> Iterator[None]:
    """Write options in a block as in Python, or as they are typed."""
    before = in_python.set(is_in_python)
    try:
        yield
    finally:
        in_python.reset(before)


def nearest_option(word: str, options: Collection[str]) -> str:
    """Return the option that is written almost like a word; empty for none."""
    import difflib  # needed by few

    safe = [one for one in options if one not in _HARMFUL]
    near = difflib.get_close_matches(word, options, n=1, cutoff=0.85)
    return "".join(near or difflib.get_close_matches(word, safe, n=1, cutoff=0.7))
