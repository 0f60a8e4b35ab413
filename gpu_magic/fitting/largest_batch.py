"""Finds the largest batch whose step fits: memory is about linear in it, by pieces, so few predictions do."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.errors import FitError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LargestBatch", "find_largest"]

_MOST = 1 << 24  # a batch; what allows more hardly depends on it
_PREDICTIONS = 32  # bisecting alone takes 25 of them


class LargestBatch(NamedTuple):
    """The largest batch that was predicted to fit.

    Parameters
    ----------
    size
        Along dimension 0; 0 where no batch fits.
    is_exact
        Whether one more was predicted, and does not fit.

    """

    size: int
    is_exact: bool


def find_largest(
    peak: Callable[[int], int], known: dict[int, int], guess: int, available: int, budget: tuple[float, float]
) -> LargestBatch | None:
    """Return the largest batch that was predicted to fit; None where none was, and a smaller one may.

    With time enough it is exact, for any memory that never falls as the batch grows, unless larger batches
    can't be predicted. No more is looked for than 2**24.

    Parameters
    ----------
    peak
        Predicts the bytes of a batch of a size.
    known
        A size, and the bytes that were predicted for it; what is predicted is added.
    guess
        A size that may be about the largest.
    available
        How many bytes there are.
    budget
        How many seconds it may take, and how many one prediction takes: none is begun that would take longer.

    """
    (seconds, longest), began = budget, time.monotonic()
    low, high = _bracket(known, available)
    following = min(max(low + 1, guess), high - 1)
    widths: list[float] = []  # of what was open after each prediction
    for left in reversed(range(_PREDICTIONS)):
        if high - low <= 1 or time.monotonic() - began + longest > seconds:
            break
        at = time.monotonic()
        try:
            known[following] = peak(following)
        except FitError:  # more elements than a tensor can have
            known[following] = sys.maxsize
        longest = max(longest, time.monotonic() - at)
        low, high = _bracket(known, available)
        widths.append(math.log(high / max(low, 0.5)))
        meets = _meets(known, low, high, available)
        if left <= (high - low - 1).bit_length():  # as many as bisecting takes
            following = (low + high) // 2
        elif meets is None or (len(widths) > 2 and widths[-1] > widths[-3] / 4):  # noqa: PLR2004 - two lines
            following = math.isqrt(max(low * high, high // 2))  # which halves the width
        else:
            following = meets
        following = max(low + 1, min(following, high - 1))
    is_exact = high - low <= 1 and known.get(high, sys.maxsize) < sys.maxsize
    return LargestBatch(low, is_exact) if low or is_exact else None


def _bracket(known: dict[int, int], available: int) -> tuple[int, int]:
    """Return the largest size that is known to fit, 0 for none, and the smallest that is known not to."""
    low = max((one for one, nbytes in known.items() if nbytes <= available), default=0)
    high = min((one for one, nbytes in known.items() if nbytes > available), default=_MOST + 1)
    return low, high


def _meets(known: dict[int, int], low: int, high: int, available: int) -> int | None:
    """Return where the line through two known sizes meets what is available; None where none does.

    It goes through those on both sides of that, else through the nearest on one side.
    """
    fit = sorted(one for one, nbytes in known.items() if nbytes <= available)
    do_not = sorted(one for one, nbytes in known.items() if available < nbytes < sys.maxsize)
    if fit and high in do_not:
        ends = low, high
    elif len(fit) > 1:  # not two so near each other that blocks of memory decide
        ends = max((one for one in fit if one <= low // 2), default=fit[0]), low
    elif len(do_not) > 1:
        ends = do_not[0], do_not[1]
    else:
        return None
    rise = known[ends[1]] - known[ends[0]]
    return ends[0] + (available - known[ends[0]]) * (ends[1] - ends[0]) // rise if rise > 0 else None
