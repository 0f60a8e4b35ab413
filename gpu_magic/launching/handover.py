"""Variables that go to a script and come back from it, in files that cloudpickle writes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import LaunchError
from gpu_magic.objects.memory import memory_by_device
from gpu_magic.text import size_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["check_installed", "dump", "load"]

_MOST = 64 << 20  # bytes; what is larger, programs save and load in their own ways


def check_installed() -> None:
    """Raise LaunchError where cloudpickle is missing."""
    try:
        import_module("cloudpickle")
    except ImportError:
        raise LaunchError(
            "Variables are handed over by cloudpickle, which is not installed here: pip install cloudpickle."
        ) from None


def dump(variables: Mapping[str, Any], file: Path) -> None:
    """Write variables to a file, together: what they share, they share again.

    Raises
    ------
    LaunchError
        One of them lies on a GPU, which the other process may not have, can't be pickled, or is too large.

    """
    from gpu_magic.launching.pickling import NotPickled  # loads cloudpickle

    for name, value in variables.items():
        _check_size(name, value)
    try:
        text = _pickled(variables)
    except NotPickled as error:
        raise LaunchError(str(error)) from None
    if len(text) > _MOST:
        raise _too_large(", ".join(variables), len(text))
    part = file.with_name(f"{file.name}.part")
    try:
        part.write_bytes(text)
        part.replace(file)  # whoever finds it finds all of it
    except OSError as error:
        raise LaunchError(f"{', '.join(variables)} can't be written: {error}.") from None


def load(file: Path) -> dict[str, Any]:
    """Return the variables in a file that `dump` has written."""
    variables: dict[str, Any] = import_module("cloudpickle").loads(file.read_bytes())
    return variables


def _check_size(name: str, value: object) -> None:
    for nbytes, _ in memory_by_device([value]).values():
        if nbytes > _MOST:
            raise _too_large(name, nbytes)


def _pickled(variables: Mapping[str, Any]) -> bytes:
    """Return variables as bytes, together; an error names the one that it is about."""
    from gpu_magic.launching.pickling import NotPickled, pickled

    try:
        return pickled(", ".join(variables), dict(variables)).text
    except NotPickled:
        for name, value in variables.items():
            pickled(name, value)
        raise


def _too_large(names: str, nbytes: int) -> LaunchError:
    return LaunchError(
        f"{names}: {size_text(nbytes)} are too much to be handed over, at most {size_text(_MOST)} are; "
        "save it to a file instead."
    )
