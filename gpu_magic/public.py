"""Functions for users: what they raise shows the line that called them, and no frames of gpu_magic's."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from gpu_magic.errors import GpuMagicError

__all__ = ["public"]

_OURS = {"gpu_magic", *sys.stdlib_module_names}  # those that we hand work to, as to a thread
_Function = TypeVar("_Function", bound=Callable[..., Any])


def public(function: _Function) -> _Function:
    """Decorate a function or a method that users call, or await.

    Its errors say in one line what is wrong with what the user wrote: the frames beneath that are left out,
    and the logger `gpu_magic.api` has them at DEBUG. A function that looks at its caller's frame finds it two
    frames up: one is the decorator's.
    """

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            return function(*args, **kwargs)
        except GpuMagicError as error:
            _leave_out_frames(error)
            raise  # without a name: so Python adds no frame for this line
        except TypeError as error:
            if error.__traceback__ and not error.__traceback__.tb_next:  # it does not take these arguments
                error.__traceback__ = None
            raise

    @wraps(function)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            return await function(*args, **kwargs)
        except GpuMagicError as error:
            _leave_out_frames(error)
            raise

    return awaited if iscoroutinefunction(function) else called  # type: ignore[return-value]


def _leave_out_frames(error: GpuMagicError) -> None:
    """Have an error's traceback begin at the user's own code, if we have called some."""
    logging.getLogger("gpu_magic.api").debug("%s: %s", type(error).__name__, error, exc_info=error)
    trace = error.__traceback__
    while trace and trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        trace = trace.tb_next
    error.__traceback__ = trace
