"""The free memory that a GPU must have for a step: the bound that `%gpus auto --fits model` keeps to."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.fitting.fit import predict
from gpu_magic.fitting.steps import FitOptions, has_batch
from gpu_magic.fitting.verdict import CONTEXT
from gpu_magic.placement.holdings import memory_by_device
from gpu_magic.spelling import either, option
from gpu_magic.text import GIB, MIB, bytes_text, size_text

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Bound", "bound_of", "bound_of_peak"]


class Bound(NamedTuple):
    """A bound on free memory.

    Parameters
    ----------
    min_free
        As `--min-free` takes it: `10.1GiB`.
    why
        Where it comes from, as a sentence.

    """

    min_free: str
    why: str


def bound_of(values: Sequence[Any]) -> Bound:
    """Return the bound for a step; for a model without a batch, what it takes itself.

    Parameters
    ----------
    values
        As for `fitting.steps.step_of`.

    Raises
    ------
    FitError
        They make no step, or it can't be followed.

    """
    options = FitOptions()
    if has_batch(values, options):
        return bound_of_peak(predict(values, options, None).memory.peak)
    size = sum(memory.nbytes for memory in memory_by_device(values).values())
    free = _typed(size + CONTEXT)
    what = f"{size_text(size)}, and CUDA itself {bytes_text(CONTEXT)}: {option('min_free', free)}"
    more = either("--fits model optimizer batch", "fits=(model, optimizer, batch)")
    why = f"Without a batch it is what is there now, {what}. A step takes more: {more}."
    return Bound(free, why)


def bound_of_peak(peak: int) -> Bound:
    """Return the bound for a step with a peak of so many bytes."""
    free = _typed(peak + CONTEXT)
    takes = f"The step takes {size_text(peak)} at its peak, and CUDA itself {bytes_text(CONTEXT)}"
    return Bound(free, f"{takes}: {option('min_free', free)}.")


def _typed(size: int) -> str:
    """Return a size in bytes as one would type it, rounded up."""
    return f"{math.ceil(size / GIB * 10) / 10:g}GiB" if size >= GIB else f"{math.ceil(size / MIB)}MiB"
