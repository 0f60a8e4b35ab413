"""Says where an interrupt can be raised while a step is followed. It imports PyTorch."""

from __future__ import annotations

import contextlib
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from gpu_magic.frameworks.shadow.code import is_users_file

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["can_raise", "is_in_backward"]

_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parent.parent.parent)
# Where what is raised leaves a block half-way, and where it is lost.
_LOSING = (contextlib.__file__, weakref.__file__)


def can_raise(frame: FrameType | None, count: int) -> bool:
    """Return whether an interrupt can be raised in a frame: in the user's code, and what that calls.

    PyTorch's code is left in peace: C++ that calls Python ends the process where that raises and nothing is
    there to take it, and a mode that was entered in part is not left again. Whoever asks a second time is
    heard there, too, but for the backward, which C++ calls.

    Parameters
    ----------
    frame
        The innermost one.
    count
        How many interrupts have arrived.

    """
    if frame is None:
        return False
    name = frame.f_code.co_filename
    if count > 1 and not is_in_backward() and not name.startswith((_OURS, *_LOSING)):
        return True
    inner: FrameType | None = frame
    while inner is not None:
        name = inner.f_code.co_filename
        if is_users_file(name):
            return True
        if name.startswith((_TORCH, _OURS, *_LOSING)):
            return False
        inner = inner.f_back
    return False


def is_in_backward() -> bool:
    """Return whether PyTorch's C++ makes a backward in this thread."""
    return bool(torch._C._current_graph_task_id() != -1)  # noqa: SLF001
