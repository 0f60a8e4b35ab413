"""The name of a user, given the number."""

from __future__ import annotations

from functools import cache

from gpu_magic.text import shortened

__all__ = ["owner_name"]

_LONGEST = 40


@cache
def owner_name(uid: int) -> str:
    """Return a user's name as it is shown: printable, and not too long; `uid 1234` where there is none."""
    import pwd  # not on Windows

    try:
        return shortened(pwd.getpwuid(uid).pw_name, _LONGEST)
    except KeyError:
        return f"uid {uid}"
