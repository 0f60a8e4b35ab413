"""Pickles variables and functions of notebooks for other processes with cloudpickle, but nothing on a GPU."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.errors import LaunchError
from gpu_magic.frameworks import imported
from gpu_magic.frameworks.target import LogicalDevice
from gpu_magic.text import size_text

try:
    from cloudpickle import Pickler, loads
except ImportError:
    raise LaunchError(
        "Handing over variables needs cloudpickle, which is not installed: pip install cloudpickle"
    ) from None

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["NotPickled", "Pickled", "dump", "load", "pickled"]

_MOST = 64 << 20  # bytes of variables in a file; programs should save larger variables themselves


class NotPickled(Exception):  # noqa: N818 - callers raise another error from it
    """A value cannot be pickled for another process. The message says why in one line."""


class Pickled(NamedTuple):
    """A pickled value."""

    text: bytes  # for `pickle.loads` in a process that has cloudpickle
    files: frozenset[str]  # the source files of functions that are pickled as code


def pickled(name: str, value: object, most: int | None = None) -> Pickled:
    """Pickle a value. Messages name it `name`. The value's own code can run.

    It raises NotPickled if the value cannot be pickled, has more than `most` bytes, or is partly on a GPU.
    The other process may not have that GPU. It would use another GPU for the value, and start CUDA.
    """
    file = _File(name, most)
    pickler = _Pickler(file, name, value)
    try:
        pickler.dump(value)
    except NotPickled:
        raise
    except Exception as error:  # noqa: BLE001 - the value's own code can raise anything
        raise NotPickled(f"{name} cannot be handed over: {type(error).__name__}: {error}") from None
    return Pickled(file.getvalue(), frozenset(pickler.files))


def dump(variables: Mapping[str, Any], file: Path) -> None:
    """Write variables to a file together, so that objects that the variables share stay shared.

    It raises LaunchError if a variable cannot be pickled, is too large, or is on a GPU.
    """
    names, value = ", ".join(variables), dict(variables)
    try:
        text = pickled(names, value, _MOST).text
    except NotPickled as error:
        try:
            for name, one in variables.items():
                pickled(name, one, _MOST)
        except NotPickled as of_one:
            raise LaunchError(str(of_one)) from None
        raise LaunchError(str(error)) from None
    part = file.with_name(f"{file.name}.part")
    try:
        part.write_bytes(text)
        part.replace(file)  # no reader finds a partial file
    except OSError as error:
        raise LaunchError(f"{names} cannot be written: {error}.") from None


def load(file: Path) -> dict[str, Any]:
    """Return the variables in a file that `dump` has written."""
    variables: dict[str, Any] = loads(file.read_bytes())
    return variables


class _File(BytesIO):
    """A buffer that refuses too many bytes, because a copy of a large value may not fit into memory."""

    def __init__(self, name: str, most: int | None) -> None:
        super().__init__()
        self._name, self._most = name, most

    def check(self, nbytes: int) -> None:
        """Raise NotPickled if `nbytes` more bytes are too many."""
        if self._most is not None and self.tell() + nbytes > self._most:
            most = size_text(self._most)
            raise NotPickled(f"{self._name}: at most {most} can be handed over; save it to a file instead.")

    def write(self, piece: Any) -> int:
        self.check(len(piece))
        return super().write(piece)


class _AsWritten:
    """An object whose reduced form is given, so that it is unpickled as another object."""

    def __init__(self, written: tuple[Any, ...]) -> None:
        self._written = written

    def __reduce__(self) -> tuple[Any, ...]:
        return self._written


class _Pickler(Pickler):  # type: ignore[misc] # cloudpickle has no types
    """A cloudpickle pickler that checks the device of arrays, also in a function's closure and globals."""

    def __init__(self, file: _File, name: str, value: object) -> None:
        super().__init__(file)
        self._file, self._name, self._value = file, name, value
        self._frameworks = imported()
        self.files: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        """Return how to pickle an object, unless it is on a GPU. Not called for Python's plain types."""
        if isinstance(obj, CodeType):
            self.files.add(obj.co_filename)
            # cloudpickle 3.1.3 omits the file name, which tracebacks in the other process need to find lines.
            without = _AsWritten(self.dispatch_table[CodeType](obj))
            return partial(CodeType.replace, co_filename=obj.co_filename), (without,)
        for framework in self._frameworks:
            if not framework.is_array(type(obj)):
                continue
            try:
                holdings = framework.holdings(obj)
            except Exception:  # noqa: BLE001 - arrays of other packages can raise anything
                holdings = ()
            for device, nbytes, _ in holdings:
                if not (isinstance(device, LogicalDevice) and device.kind == "cpu"):
                    has = "uses what is" if callable(self._value) else "is"
                    on = f"{self._name} {has} on {device}"
                    raise NotPickled(f"{on}, but can only be handed over on the CPU. Move it there first.")
                self._file.check(nbytes)  # frameworks copy an array before they write it
        return super().reducer_override(obj)
