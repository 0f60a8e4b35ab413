"""Decorates public functions: their errors show the caller's line, and no frames of gpu_magic."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from gpu_magic.errors import GpuMagicError, as_flag

__all__ = ["public"]

_OURS = {"gpu_magic", *sys.stdlib_module_names}  # also the standard library, which runs our threads
_Function = TypeVar("_Function", bound=Callable[..., Any])


def public(function: _Function) -> _Function:
    """Decorate a function or a method that users call, or await.

    Errors of gpu_magic are shown without its frames. The logger `gpu_magic.api` gets these errors at DEBUG,
    with all frames. A function finds its caller's frame two frames up, above the decorator's frame.
    """
    flags = {name for name, default in (function.__kwdefaults__ or {}).items() if isinstance(default, bool)}

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            for name in flags & kwargs.keys():
                kwargs[name] = as_flag(name, kwargs[name])
            return function(*args, **kwargs)
        except BaseException as error:
            _leave_out_frames(error)
            raise  # without a name, so that Python adds no frame for this line

    @wraps(function)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            return await function(*args, **kwargs)
        except BaseException as error:
            _leave_out_frames(error)
            raise

    return awaited if iscoroutinefunction(function) else called  # type: ignore[return-value]


def _leave_out_frames(error: BaseException) -> None:
    """Remove the frames of gpu_magic down to the user's code. A bug in gpu_magic keeps all frames."""
    trace = error.__traceback__
    if isinstance(error, TypeError) and trace and not trace.tb_next:  # wrong arguments
        error.__traceback__ = None
    if isinstance(error, GpuMagicError) or hasattr(error, "_render_traceback_"):  # see `show_as`
        logging.getLogger("gpu_magic.api").debug("%s: %s", type(error).__name__, error, exc_info=error)
        while trace and trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
            trace = trace.tb_next
        error.__traceback__ = trace
