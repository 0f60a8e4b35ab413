"""Changes `sys.meta_path` while other threads import, and change it too."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["changed_finders"]

_lock = threading.RLock()


@contextlib.contextmanager
def changed_finders() -> Iterator[list[Any]]:
    """Give a copy of `sys.meta_path` to change, which then replaces it.

    It is a copy, because another thread may be iterating over the list and would skip a finder.
    """
    with _lock:
        finders: list[Any] = list(sys.meta_path)
        yield finders
        sys.meta_path = finders
