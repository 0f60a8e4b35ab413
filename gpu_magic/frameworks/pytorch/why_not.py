"""Says why a step can't be followed on tensors without data, and in which line of the user's code."""

from __future__ import annotations

import linecache
import traceback
from typing import TYPE_CHECKING

from gpu_magic.frameworks.prediction import NotFollowed
from gpu_magic.frameworks.shadow.code import is_users_file
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["why_not_followed"]

_LONGEST = 200  # characters of a message, and of a line
_REASONS = {
    "DataDependentOutputException": "it needs what a tensor holds",
    "DynamicOutputShapeException": "the shape of what {op} returns depends on data",
    "UnsupportedOperatorException": "{op} is not known without data",
}


def why_not_followed(error: BaseException) -> str:
    """Return a sentence: what can't be followed, or what the step raises, and where."""
    where = _where(error.__traceback__)
    reason = _REASONS.get(type(error).__name__)
    if isinstance(error, NotFollowed):
        return f"The step can't be followed without being run: {error}{where}"
    if reason is not None:
        op = str(getattr(error, "func", "")).removeprefix("aten.").partition(".")[0]
        return f"The step can't be followed without being run: {reason.format(op=f'{op}()')}{where}"
    message = shortened(" ".join(str(error).split()), _LONGEST).rstrip(".")
    return f"The step raises {type(error).__name__}{f': {message}' if message else ''}{where}"


def _where(frames: TracebackType | None) -> str:
    """Return the last line of the user's in a traceback: `, in line 3 of train_step: if loss.item() > 1:`."""
    found = [frame for frame in traceback.walk_tb(frames) if is_users_file(frame[0].f_code.co_filename)]
    if not found:
        return "."
    frame, number = found[-1]
    line = linecache.getline(frame.f_code.co_filename, number, frame.f_globals).strip()
    name = frame.f_code.co_name
    of = f" of {name}" if name.isidentifier() else ""
    return f", in line {number}{of}{f': {shortened(line, _LONGEST)}' if line else '.'}"
