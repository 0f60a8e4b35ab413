"""Pickles functions and values for other processes with cloudpickle, but nothing on a GPU."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from types import CodeType
from typing import Any, NamedTuple

from gpu_magic.errors import LaunchError
from gpu_magic.frameworks import imported
from gpu_magic.frameworks.target import LogicalDevice

try:
    from cloudpickle import Pickler
except ImportError:
    raise LaunchError(
        "Handing over variables needs cloudpickle, which is not installed: pip install cloudpickle"
    ) from None

__all__ = ["NotPickled", "Pickled", "pickled"]


class NotPickled(Exception):  # noqa: N818 - callers raise another error from it
    """A value cannot be pickled for another process. The message says why in one line."""


class Pickled(NamedTuple):
    """A pickled value."""

    text: bytes  # for `pickle.loads` in a process that has cloudpickle
    files: frozenset[str]  # the source files of functions that are pickled as code


def pickled(name: str, value: object) -> Pickled:
    """Pickle a value. Messages name it `name`. The value's own code can run.

    It raises NotPickled if the value cannot be pickled, or is partly on a GPU. The other process may not have
    that GPU. It would use another GPU for the value, and start CUDA.
    """
    file = BytesIO()
    pickler = _Pickler(file, name, value)
    try:
        pickler.dump(value)
    except NotPickled:
        raise
    except Exception as error:  # noqa: BLE001 - the value's own code can raise anything
        raise NotPickled(f"{name} cannot be handed over: {type(error).__name__}: {error}") from None
    return Pickled(file.getvalue(), frozenset(pickler.files))


class _AsWritten:
    """An object whose reduced form is given, so that it is unpickled as another object."""

    def __init__(self, written: tuple[Any, ...]) -> None:
        self._written = written

    def __reduce__(self) -> tuple[Any, ...]:
        return self._written


class _Pickler(Pickler):  # type: ignore[misc] # cloudpickle has no types
    """A cloudpickle pickler that checks the device of arrays, also in a function's closure and globals."""

    def __init__(self, file: BytesIO, name: str, value: object) -> None:
        super().__init__(file)
        self._name, self._value = name, value
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
            for device, *_ in holdings:
                if not (isinstance(device, LogicalDevice) and device.kind == "cpu"):
                    has = "uses what is" if callable(self._value) else "is"
                    on = f"{self._name} {has} on {device}"
                    raise NotPickled(f"{on}, but can only be handed over on the CPU. Move it there first.")
        return super().reducer_override(obj)
