"""Functions for users: what they raise shows the line that called them, and no frames of gpu_magic's."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar

from gpu_magic.errors import GpuMagicError

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["public"]

_OURS = {"gpu_magic", *sys.stdlib_module_names}  # those that we hand work to, as to a thread
# Messages name options as they are typed: `try auto --min-free 60GB`. A line to type stays as it is.
_OPTION = re.compile(
    r"""
    (?:%+\w+|docker\ run)\ [^;.]*  # a line to type
    | (?:(?:^|(?<=\btry\ )|(?<=\bor\ ))(auto\S*|\d\S*)\ )?  # what is chosen
      (?<![\w-]) -(?:-([a-z]+(?:-[a-z]+)*)|(n)) (?![\w-]|\ stands\ |\ is\ not\ )  # the option
      (?:\ (auto\b[:\d]*|[\w.:,]*\d[\w:]*|\S+(?=\ (?:is\ not?|leaves)\ |:\ no\ )))?  # its value
      (\ (?=--))?  # another option
    """,
    re.VERBOSE,
)
_RENAMED = {"n": "count", "batch": "batch_size"}
_options: dict[str, object] = {}  # the keyword-only parameters of what is decorated, and their defaults
_Function = TypeVar("_Function", bound=Callable[..., Any])


def public(function: _Function) -> _Function:
    """Decorate a function or a method that users call, or await.

    Its errors say in one line what is wrong with what the user wrote, and name options as in Python. The
    frames beneath that are left out, and the logger `gpu_magic.api` has them at DEBUG. A function that looks
    at its caller's frame finds it two frames up: one is the decorator's.
    """
    _options.update(function.__kwdefaults__ or {})

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            for name, value in kwargs.items():
                if isinstance(_options.get(name), bool) and not isinstance(value, bool):
                    said = f"{name}={value!r:.40} is neither True nor False."
                    raise TypeError(said)  # noqa: TRY301 - another function would be a frame more
            return function(*args, **kwargs)
        except BaseException as error:
            _show_in_python(error)
            raise  # without a name: so Python adds no frame for this line

    @wraps(function)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            return await function(*args, **kwargs)
        except BaseException as error:
            _show_in_python(error)
            raise

    return awaited if iscoroutinefunction(function) else called  # type: ignore[return-value]


def _show_in_python(error: BaseException) -> None:
    """Have an error begin at the user's own code, if we have called some, and name options as that does.

    One that is nobody's input keeps all frames.
    """
    trace = error.__traceback__
    if isinstance(error, TypeError) and trace and not trace.tb_next:  # these arguments are not taken
        error.__traceback__ = None
    if not isinstance(error, GpuMagicError) and not hasattr(error, "_render_traceback_"):  # see `show_as`
        return
    logging.getLogger("gpu_magic.api").debug("%s: %s", type(error).__name__, error, exc_info=error)
    while trace and _package(trace.tb_frame) in _OURS:
        trace = trace.tb_next
    error.__traceback__ = trace
    caller: FrameType | None = sys._getframe(2)  # noqa: SLF001 - 1 is the decorator's
    while caller and _package(caller) in sys.stdlib_module_names:
        caller = caller.f_back
    # A magic's errors stay as typed, and so does what a command or a call has written.
    if isinstance(error, ValueError) and not (caller and _package(caller) == "gpu_magic"):
        error.args = (_OPTION.sub(_in_python, str(error)), *error.args[1:])


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _in_python(found: re.Match[str]) -> str:
    """Return an option as in Python: `min_free='60GB'` for `--min-free 60GB`."""
    wanted, long, short, value, goes_on = found.groups()
    name = (long or short or "").replace("-", "_")
    name = _RENAMED.get(name, name)
    if name not in _options:
        return found[0]
    if value and _options[name] is not False:
        name += f"={value if value.isdecimal() else repr(value)}"
    elif _options[name] is False:
        name += "=True" + f" {value}" * bool(value)
    return f"{wanted!r}, " * bool(wanted) + name + ", " * bool(goes_on)
