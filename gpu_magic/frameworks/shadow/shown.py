"""What a followed function shows or writes with: stand-ins that swallow it."""

from __future__ import annotations

import io
import logging
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from gpu_magic.frameworks.prediction import NotFollowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["BUILTINS", "silent"]

# Modules that are seen with stand-ins for what of them shows anything.
_MODULES = ("sys", "logging", "tqdm", "IPython")
_OF_LOGGING = (
    "basicConfig",
    "critical",
    "debug",
    "error",
    "exception",
    "fatal",
    "info",
    "log",
    "warn",
    "warning",
)
_OF_IPYTHON = ("clear_output", "display", "publish_display_data", "update_display")
_OF_TQDM = ("tgrange", "tnrange", "trange")


def silent(obj: Any, copy: Callable[[Any], Any]) -> Any:
    """Return what stands in for an object that shows or writes something; None for any other object.

    Parameters
    ----------
    obj
        A function, a class, a module, or an object that is not plain.
    copy
        Returns the copy of what a progress bar goes over.

    """
    if isinstance(obj, BuiltinFunctionType):
        return BUILTINS["print"] if obj is print else None
    if isinstance(obj, FunctionType):
        return _function(obj)
    if isinstance(obj, ModuleType):
        is_seen = type(obj) is ModuleType and obj.__name__.partition(".")[0] in _MODULES
        return _Module(obj, copy) if is_seen else None
    bar = _bar_type()
    if isinstance(obj, type):
        return _Bar if bar is not None and issubclass(obj, bar) else None
    if bar is not None and isinstance(obj, bar):
        return _Bar(copy(obj.iterable), total=obj.total)
    if type(obj) in (io.StringIO, io.BytesIO):
        return _in_memory(obj)
    if isinstance(obj, io.IOBase) or _is_of(obj, "tempfile", "_TemporaryFileWrapper"):
        return _File(getattr(obj, "name", ""))
    if isinstance(obj, logging.Logger | logging.LoggerAdapter) or _is_of(obj, "_csv", "writer", "Writer"):
        return _Quiet()
    return _Quiet() if _is_of(obj, "IPython.core.display_functions", "DisplayHandle") else None


def _function(function: FunctionType) -> Any:
    package, name = str(function.__module__).partition(".")[0], function.__name__
    if package == "logging" and name == "getLogger":
        return _quiet
    if package == "tqdm" and name in _OF_TQDM:
        return _bar_of_range
    names = {"logging": _OF_LOGGING, "IPython": _OF_IPYTHON}.get(package, ())
    return _quiet if name in names else None


def _is_of(obj: object, module: str, *names: str) -> bool:
    return type(obj).__module__ == module and type(obj).__name__ in names


def _bar_type() -> Any:
    """Return the class of progress bars, `tqdm`, where it is imported."""
    return getattr(sys.modules.get("tqdm.std"), "tqdm", None)


def _in_memory(file: Any) -> Any:
    if file.closed:
        return None
    new = type(file)()
    new.write(file.getvalue())
    new.seek(file.tell())
    return new


class _Quiet:
    """Has methods of any name, which do nothing: a logger, what `display` returns."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing


class _File:
    """An open file that swallows what is written, and is not read, as that would move its position."""

    encoding, closed = "utf-8", False

    def __init__(self, name: object) -> None:
        self.name = name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def write(self, text: Any) -> int:
        return len(text)

    def writelines(self, lines: Any) -> None:
        del lines

    def flush(self) -> None:
        return

    def close(self) -> None:
        return

    def isatty(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def __iter__(self) -> Iterator[str]:
        self._refuse()

    def __next__(self) -> str:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise NotFollowed(
            f"it reads the open file {self.name!s:.60}, or moves in it: read it before, and use what it holds"
        )


class _Bar:
    """A progress bar that shows nothing."""

    def __init__(self, iterable: Any = None, *values: object, total: Any = None, **options: object) -> None:
        del values, options
        self.iterable, self.total, self.n = iterable, total, 0

    def __iter__(self) -> Iterator[Any]:
        return iter(self.iterable)

    def __len__(self) -> int:
        return int(self.total) if self.iterable is None else len(self.iterable)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def update(self, n: Any = 1) -> None:
        self.n += n

    @staticmethod
    def write(*values: object, **options: object) -> None:
        """Show nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing


class _Module(ModuleType):
    """A module as it is, except for what of it shows anything."""

    def __init__(self, module: ModuleType, copy: Callable[[Any], Any]) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(_module=module, _copy=copy)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.__dict__["_module"], name)
        found = silent(value, self.__dict__["_copy"])
        return value if found is None else found


def _bar_of_range(*values: int, **options: object) -> _Bar:
    del options
    return _Bar(range(*values))


def _nothing(*values: object, **options: object) -> None:
    """Print nothing: what a step says of numbers that it does not have is of no use."""
    del values, options


def _quiet(*values: object, **options: object) -> _Quiet:
    del values, options
    return _Quiet()


# Those of Python's, and one of IPython's, that are replaced wherever a function of the user's finds them.
BUILTINS: dict[str, Callable[..., Any]] = {"print": _nothing, "display": _quiet}
