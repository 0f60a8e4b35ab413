"""Says below an error for want of memory what holds the memory, and what would give some back."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from gpu_magic.display.shortage import shortage_lines
from gpu_magic.errors import GpuMagicError
from gpu_magic.moving.history import History
from gpu_magic.usage.shortage import find_shortage

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["explain_failure", "may_be_shortage"]

# Words of the errors of all frameworks for it.
_WORDS = ("memory", "oom", "exhausted")


def may_be_shortage(error: BaseException) -> bool:
    """Return whether an error, or one that led to it, may be one for want of memory, by its words."""
    found: Any = error
    for _ in range(20):
        if found is None:
            return False
        text = f"{type(found).__name__} {str(found)[:2000]}".lower()
        if any(word in text for word in _WORDS):
            return True
        found = found.__cause__ or found.__context__
    return False


def explain_failure(shell: InteractiveShell, error: BaseException) -> None:
    """Print what holds the memory, where a GPU had none left."""
    if not may_be_shortage(error):
        return
    with contextlib.suppress(GpuMagicError):  # a simulation that is described wrongly: %gpus says so
        shortage = find_shortage(error, History(shell))
        if shortage is not None:
            print("\n".join(shortage_lines(shortage)))
