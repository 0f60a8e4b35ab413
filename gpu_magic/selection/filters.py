"""The bounds that `auto` keeps to: `--min-free 20GB`, `--model A100`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.errors import ChoiceError
from gpu_magic.selection.reasons import used_by
from gpu_magic.selection.size import read_size, size_as_typed, size_meant
from gpu_magic.spelling import option
from gpu_magic.text import MIB, bytes_text

if TYPE_CHECKING:
    from gpu_magic.devices.model import Device
    from gpu_magic.selection.options import Options

__all__ = ["check_filters", "is_model", "why_not"]


def check_filters(options: Options) -> None:
    """Check that the bounds can be read.

    Raises
    ------
    ChoiceError
        One can't.

    """
    size = None if options.min_free is None else read_size(options.min_free)
    if options.min_free is not None and (size is None or 0 < size < MIB):
        what = "not a size" if size is None else "less than a MiB"
        better = option("min_free", size_meant(options.min_free, "20GB"))
        raise ChoiceError(f"{option('min_free', options.min_free)} is {what}; try {better}.")
    if options.model is not None and not isinstance(options.model, str):
        raise ChoiceError(f"{option('model', options.model)} is not a name; try {option('model', 'A100')}.")


def why_not(device: Device, options: Options) -> str:
    """Return which bound a device does not keep to: `12.0 GiB free, and not 20 GB`; empty for none."""
    status = device.status
    if options.model is not None and not is_model(device, options.model):
        return "its model is not known" if device.name is UNKNOWN else "another model"
    if options.only_free and device.is_busy is not False:
        return used_by(device) if device.is_busy is True else "not known to be free"
    if options.min_free is not None:
        if status.memory_free is UNKNOWN:
            return "its free memory is not known"
        if status.memory_free < (read_size(options.min_free) or 0):
            return f"{bytes_text(status.memory_free)} free, and not {size_as_typed(options.min_free)}"
    return ""


def is_model(device: Device, model: str) -> bool:
    """Return whether a device's name has all words of a model's, in any case: `a100`, `A100 80GB`, `RTX4090`.

    A word is not found within another one: a T400 is no T4.
    """
    if device.name is UNKNOWN:
        return False
    there = _words(device.name)
    joined = {
        "".join(there[first:last]) for last in range(len(there) + 1) for first in range(last)
    }  # "rtx4090", too
    return all(word in joined for word in _words(model))


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.lower())
