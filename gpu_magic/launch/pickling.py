"""Pickles what goes to another process, by cloudpickle: what notebooks define, and nothing on a GPU."""

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

_MOST = 64 << 20  # bytes of variables in a file; what is larger, programs save and load in their own ways


class NotPickled(Exception):  # noqa: N818 - who asks makes an error of it
    """A value can't go to another process; the message is a line that says why."""


class Pickled(NamedTuple):
    """A value as bytes."""

    text: bytes  # what `pickle.loads` reads in a process that has cloudpickle
    files: frozenset[str]  # those of the functions that are in it as code


def pickled(name: str, value: object, most: int | None = None) -> Pickled:
    """Return a value as bytes; `name` is what it is called in messages. The value's own code can run.

    It raises NotPickled if the value can't be pickled, or takes more than `most` bytes, or something of it is
    on a GPU, which the other process may not have: it would be put on another one there, and start CUDA.
    """
    file = _File(name, most)
    pickler = _Pickler(file, name, value)
    try:
        pickler.dump(value)
    except NotPickled:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the value's own code raises
        raise NotPickled(f"{name} cannot be handed over: {type(error).__name__}: {error}") from None
    return Pickled(file.getvalue(), frozenset(pickler.files))


def dump(variables: Mapping[str, Any], file: Path) -> None:
    """Write variables to a file, together: what they share, they share again.

    It raises LaunchError if one of them can't be pickled, is too large, or is on a GPU.
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
        part.replace(file)  # whoever finds it finds all of it
    except OSError as error:
        raise LaunchError(f"{names} cannot be written: {error}.") from None


def load(file: Path) -> dict[str, Any]:
    """Return the variables in a file that `dump` has written."""
    variables: dict[str, Any] = loads(file.read_bytes())
    return variables


class _File(BytesIO):
    """Bytes that are refused once they are too many: a copy of all of them might not fit into memory."""

    def __init__(self, name: str, most: int | None) -> None:
        super().__init__()
        self._name, self._most = name, most

    def check(self, nbytes: int) -> None:
        """Raise NotPickled if so many bytes more are too many."""
        if self._most is not None and self.tell() + nbytes > self._most:
            most = size_text(self._most)
            raise NotPickled(f"{self._name}: at most {most} can be handed over; save it to a file instead.")

    def write(self, piece: Any) -> int:
        self.check(len(piece))
        return super().write(piece)


class _AsWritten:
    """What is read as something else: it is written as it is told to be."""

    def __init__(self, written: tuple[Any, ...]) -> None:
        self._written = written

    def __reduce__(self) -> tuple[Any, ...]:
        return self._written


class _Pickler(Pickler):  # type: ignore[misc] # cloudpickle has no types
    """cloudpickle's, which looks where arrays are, also those in a function's closure and globals."""

    def __init__(self, file: _File, name: str, value: object) -> None:
        super().__init__(file)
        self._file, self._name, self._value = file, name, value
        self._frameworks = imported()
        self.files: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        """Return how to pickle an object, unless it is on a GPU: called for all but Python's plain types."""
        if isinstance(obj, CodeType):
            self.files.add(obj.co_filename)
            # cloudpickle 3.1.3 leaves the file's name out, and tracebacks there find lines by it.
            without = _AsWritten(self.dispatch_table[CodeType](obj))
            return partial(CodeType.replace, co_filename=obj.co_filename), (without,)
        for framework in self._frameworks:
            if not framework.is_array(type(obj)):
                continue
            try:
                holdings = framework.holdings(obj)
            except Exception:  # noqa: BLE001 - arrays of all kinds are asked, also of other packages
                holdings = ()
            for device, nbytes, _ in holdings:
                if not (isinstance(device, LogicalDevice) and device.kind == "cpu"):
                    has = "uses what is" if callable(self._value) else "is"
                    on = f"{self._name} {has} on {device}"
                    raise NotPickled(f"{on}, but can only be handed over on the CPU. Move it there first.")
                self._file.check(nbytes)  # frameworks copy an array before they write it
        return super().reducer_override(obj)
