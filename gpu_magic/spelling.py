"""How options are written in what is said of them: `--growth` where one types, `growth` in Python."""

from __future__ import annotations

from contextvars import ContextVar

__all__ = ["in_python", "option"]

# Whether what runs was called from Python by the user: see `public`.
in_python: ContextVar[bool] = ContextVar("in_python", default=False)
_SHORT = {"count": "-n"}


def option(name: str, *value: object) -> str:
    """Return an option, as whoever reads it can write it.

    Parameters
    ----------
    name
        As in Python: `min_free`.
    value
        Its value, if it is to be shown.

    """
    if in_python.get():
        return f"{name}={value[0]!r:.60}" if value else name
    typed = _SHORT.get(name) or f"--{name.replace('_', '-')}"
    return f"{typed} {value[0]}" if value else typed
