"""Variables that go to a script and come back from it, in files that cloudpickle writes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import LaunchError
from gpu_magic.placement.holdings import memory_by_device
from gpu_magic.selection.target import LogicalDevice
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
    cloudpickle = import_module("cloudpickle")
    for name, value in variables.items():
        _check_place(name, value)
    try:
        text = cloudpickle.dumps(dict(variables))
    except Exception as error:  # noqa: BLE001 - whatever the values' own code raises
        name = next((name for name, value in variables.items() if _fails(value)), ", ".join(variables))
        raise LaunchError(f"{name} can't be handed over: {type(error).__name__}: {error}") from None
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


def _check_place(name: str, value: object) -> None:
    for device, (nbytes, _) in memory_by_device([value]).items():
        if nbytes > _MOST:
            raise _too_large(name, nbytes)
        if nbytes and not (isinstance(device, LogicalDevice) and device.kind == "cpu"):
            raise LaunchError(
                f"{name} is on {device}, and is handed over on the CPU alone: move it there first."
            )


def _too_large(names: str, nbytes: int) -> LaunchError:
    return LaunchError(
        f"{names}: {size_text(nbytes)} are too much to be handed over, at most {size_text(_MOST)} are; "
        "save it to a file instead."
    )


def _fails(value: object) -> bool:
    try:
        import_module("cloudpickle").dumps(value)
    except Exception:  # noqa: BLE001 - whatever the value's own code raises
        return True
    return False
