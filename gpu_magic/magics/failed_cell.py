"""Says below an out-of-memory error what holds the memory, and what would give some back."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import gpu_magic
from gpu_magic.display.shortage import shortage_lines
from gpu_magic.errors import GpuMagicError
from gpu_magic.fitting.failed_step import causes, find_failed_step
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
        history = History(shell)
        shortage = find_shortage(error, history)
        if shortage is not None:
            print("\n".join(shortage_lines(shortage, _of_half_the_batch(error, history))))


def _of_half_the_batch(error: BaseException, history: History) -> str:
    """Return what `%gpu_fit` says of half the batch; empty where it can't say anything."""
    step = find_failed_step(error, history.variables())
    if step is None or step.batch_size < 2:  # noqa: PLR2004 - one is no batch
        return ""
    half = step.batch_size // 2
    try:
        found = gpu_magic.fit(*step.values, eval=step.is_eval, batch_size=half)
    except (GpuMagicError, KeyboardInterrupt):  # who interrupts it knows enough
        return ""
    return f"half the batch ({half}) takes {found.verdict}"
