"""Finds the largest batch whose step fits: memory is close to linear in the batch, so few predictions do."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.errors import FitError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LargestBatch", "find_largest"]

_MOST = 1 << 24  # a batch; what allows more hardly depends on it
_PREDICTIONS = 12


class LargestBatch(NamedTuple):
    """The largest batch that fits.

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
    """Return the largest batch that fits; None where there is no bound, or it takes too long to find one.

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
    following = max(1, min(guess, _MOST))
    while len(known) <= _PREDICTIONS:
        if following in known or time.monotonic() - began + longest > seconds:
            break
        at = time.monotonic()
        try:
            known[following] = peak(following)
        except FitError:  # more elements than a tensor can have
            known[following] = sys.maxsize
        longest = max(longest, time.monotonic() - at)
        following = _next(known, available)
    low = max((one for one, nbytes in known.items() if nbytes <= available), default=0)
    above = [one for one, nbytes in known.items() if nbytes > available]
    if low >= _MOST:
        return None
    if low + 1 in above:
        return LargestBatch(low, is_exact=True)
    if len(known) > 1:
        is_known = not above or any(known[one] < sys.maxsize for one in above)
        guess = max(low, _next(known, available)) if is_known else low
    return LargestBatch(guess, is_exact=False)


def _next(known: dict[int, int], available: int) -> int:
    """Return the size to look at next: where the line through two known ones meets what is available."""
    low = max((one for one, nbytes in known.items() if nbytes <= available), default=0)
    high = min((one for one, nbytes in known.items() if nbytes > available), default=_MOST + 1)
    if high - low <= 1:
        return low or high
    nearest = sorted(sorted(known, key=lambda one: abs(known[one] - available))[:2])
    nearest = [one for one in nearest if known[one] < sys.maxsize]
    if len(nearest) < 2 or known[nearest[1]] <= known[nearest[0]]:  # noqa: PLR2004 - a line has two points
        return min(_MOST, (low + high) // 2 if high <= _MOST else low * 2)
    slope = (known[nearest[1]] - known[nearest[0]]) / (nearest[1] - nearest[0])
    meets = nearest[0] + int((available - known[nearest[0]]) // slope)
    if meets in known:  # it is the answer, as far as the line holds: what does not fit is next
        meets += 1 if known[meets] <= available else -1
    return max(low + 1, min(meets, high - 1, _MOST))
