"""Functions for users: what they raise shows the line that called them, and no frames of gpu_magic's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from types import FrameType, TracebackType
from typing import Any, TypeVar

from gpu_magic.errors import GpuMagicError
from gpu_magic.log import logger
from gpu_magic.spelling import in_python

__all__ = ["public", "public_coroutine"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_OURS = __name__.partition(".")[0]
_log = logger("api")


def public(function: _Function) -> _Function:
    """Decorate a function or a method that users call.

    Where the user has called it, and no magic, options are written as in Python: see `spelling`.
    Its errors say in one line what is wrong with what the user wrote: the frames beneath that are left out,
    and the logger `gpu_magic.api` has them at DEBUG. The user's own code that it has called stays in the
    traceback. A function that looks at its caller's frame finds it two frames up: one is the decorator's.
    """

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        handled = sys.exception()
        spelling = None if _package(sys._getframe(1)) == _OURS else in_python.set(True)  # noqa: SLF001
        try:
            return function(*args, **kwargs)
        except (GpuMagicError, TypeError) as error:
            _leave_out_frames(error, handled)
            raise  # without a name: so Python adds no frame for this line
        finally:
            if spelling is not None:
                in_python.reset(spelling)

    return called  # type: ignore[return-value]


def public_coroutine(function: _Function) -> _Function:
    """Decorate a coroutine function that users await; see `public`."""

    @wraps(function)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        handled = sys.exception()
        try:
            return await function(*args, **kwargs)
        except GpuMagicError as error:
            _leave_out_frames(error, handled)
            raise

    return awaited  # type: ignore[return-value]


def _leave_out_frames(error: BaseException, handled: BaseException | None) -> None:
    """Take the frames of gpu_magic's out of an error's traceback, and of that of its cause.

    Its context is what the caller was handling, and no error that gpu_magic has dealt with itself.
    """
    trace = error.__traceback__
    if not isinstance(error, GpuMagicError):
        if trace is not None and trace.tb_next is None:  # the function does not take these arguments
            error.__traceback__ = None
        return
    _log.debug("%s for the user: %s", type(error).__name__, error, exc_info=error)
    # What Python's own modules do beneath us, as to hand work to a thread, is left out as well.
    error.__traceback__ = _without(trace, {_OURS, *sys.stdlib_module_names})
    if not error.__suppress_context__:
        error.__context__ = handled
    if error.__cause__ is not None:
        error.__cause__.__traceback__ = _without(error.__cause__.__traceback__, {_OURS})


def _without(trace: TracebackType | None, packages: set[str]) -> TracebackType | None:
    """Return a traceback without the frames of some packages."""
    steps = []
    while trace is not None:
        if _package(trace.tb_frame) not in packages:
            steps.append(trace)
        trace = trace.tb_next
    kept = None
    for step in reversed(steps):
        kept = TracebackType(kept, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return kept


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]
