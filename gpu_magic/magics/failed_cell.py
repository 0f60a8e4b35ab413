"""Says below an out-of-memory error what holds the memory, what gives some back, how to predict it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from gpu_magic.display.shortage import shortage_lines
from gpu_magic.errors import GpuMagicError, causes
from gpu_magic.fit.failed_step import fit_line
from gpu_magic.moving.history import History
from gpu_magic.usage.shortage import find_shortage

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["explain_failure", "may_be_shortage"]

# Words of the errors of all frameworks for it.
_WORDS = ("memory", "oom", "exhausted", "alloc_failed")


def may_be_shortage(error: BaseException) -> bool:
    """Return whether an error, or one that led to it, may be an out-of-memory error, by its words."""
    for found in causes(error):
        text = type(found).__name__
        with contextlib.suppress(Exception):  # whose text can't be written
            text += f" {str(found)[:2000]}"
        if any(word in text.lower() for word in _WORDS):
            return True
    return False


def explain_failure(shell: InteractiveShell, error: BaseException) -> None:
    """Print what holds the memory, where a GPU had none left."""
    if not may_be_shortage(error):
        return
    with contextlib.suppress(GpuMagicError):  # a simulation that is described wrongly: %gpus says so
        shortage = find_shortage(error, History(shell))
        if shortage is not None:
            print("\n".join(shortage_lines(shortage, fit_line(error, shell.user_global_ns))))
