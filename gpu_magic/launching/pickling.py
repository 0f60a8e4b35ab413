"""Pickles what goes to another process, by cloudpickle: what notebooks define, and nothing on a GPU."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from cloudpickle import Pickler

from gpu_magic.frameworks import imported
from gpu_magic.frameworks.target import LogicalDevice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.frameworks.base import Framework, Holding

__all__ = ["NotPickled", "Pickled", "pickled"]


class NotPickled(Exception):  # noqa: N818 - who asks makes an error of it
    """A value can't go to another process; the message is a line that says why."""


class Pickled(NamedTuple):
    """A value as bytes.

    Parameters
    ----------
    text
        What `pickle.loads` reads in a process that has cloudpickle.
    files
        The files of the functions that are in it as code.

    """

    text: bytes
    files: frozenset[str]


def pickled(name: str, value: object) -> Pickled:
    """Return a value as bytes.

    Parameters
    ----------
    name
        What it is called in a message.
    value
        The value. Its own code can run.

    Raises
    ------
    NotPickled
        It can't be pickled, or something of it is on a GPU, which the other process may not have: it would
        be put on another one there, and start CUDA.

    """
    file = BytesIO()
    pickler = _Pickler(file, name, value)
    try:
        pickler.dump(value)
    except NotPickled:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the value's own code raises
        raise NotPickled(f"{name} can't be handed over: {type(error).__name__}: {error}") from None
    return Pickled(file.getvalue(), frozenset(pickler.files))


class _AsWritten:
    """What is read as something else: it is written as it is told to be."""

    def __init__(self, written: tuple[Any, ...]) -> None:
        self._written = written

    def __reduce__(self) -> tuple[Any, ...]:
        return self._written


class _Pickler(Pickler):  # type: ignore[misc] # cloudpickle has no types
    """cloudpickle's, which looks where arrays are.

    It looks at all that is pickled, also at what a function has in its closure and in its globals.
    """

    def __init__(self, file: BytesIO, name: str, value: object) -> None:
        super().__init__(file)
        self._name, self._value = name, value
        self._frameworks = imported()
        self.files: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        """Return how to pickle an object, unless it is on a GPU: called for all but Python's plain types."""
        if isinstance(obj, CodeType):
            self.files.add(obj.co_filename)
            # cloudpickle 3.1.3 leaves the file's name out, and tracebacks there find lines by it.
            without = _AsWritten(self.dispatch_table[CodeType](obj))
            return partial(CodeType.replace, co_filename=obj.co_filename), (without,)
        kind = type(obj)
        for framework in self._frameworks:
            if framework.is_array(kind):
                for holding in _holdings(framework, obj):
                    self._check(holding.device)
        return super().reducer_override(obj)

    def _check(self, device: LogicalDevice | str) -> None:
        if isinstance(device, LogicalDevice) and device.kind == "cpu":
            return
        has = "uses what is" if callable(self._value) else "is"
        raise NotPickled(
            f"{self._name} {has} on {device}, and is handed over on the CPU alone: move it there first."
        )


def _holdings(framework: Framework, array: object) -> Sequence[Holding]:
    try:
        return framework.holdings(array)
    except Exception:  # noqa: BLE001 - arrays of all kinds are asked, also of other packages
        return ()
