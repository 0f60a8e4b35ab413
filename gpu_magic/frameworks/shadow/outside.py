"""Stand-ins for what leads outside of this process, as a socket does: a followed step may hold them."""

from __future__ import annotations

from typing import Any, NoReturn

from gpu_magic.frameworks.shadow.refusals import refuse
from gpu_magic.text import with_article

__all__ = ["outside"]

# By module and name: most people have not imported these modules.
_TYPES = {
    ("mmap", "mmap"),
    ("socket", "socket"),
    ("sqlite3", "Connection"),
    ("sqlite3", "Cursor"),
    ("subprocess", "Popen"),
}


def outside(cls: type) -> Any:
    """Return what stands in for an object of a class that leads outside of this process; None for others."""
    if any((base.__module__, base.__name__) in _TYPES for base in cls.__mro__):
        return _Outside(cls, with_article(cls.__name__))
    return None


class _Outside:
    """An object that can be held and passed on; using it is refused.

    Parameters
    ----------
    kind
        The class that it says it is of.
    what
        What it is.

    """

    def __init__(self, kind: type, what: str) -> None:
        object.__setattr__(self, "_held", (kind, what))

    def __getattribute__(self, name: str) -> Any:
        kind, what = object.__getattribute__(self, "_held")
        return kind if name == "__class__" else refuse(f"it uses {what}")

    def _refuse(self, *values: object) -> NoReturn:
        del values
        refuse(f"it uses {object.__getattribute__(self, '_held')[1]}")

    __call__ = __enter__ = __exit__ = __iter__ = __next__ = __len__ = _refuse
    __getitem__ = __setitem__ = __setattr__ = __bool__ = _refuse
