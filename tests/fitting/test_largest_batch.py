"""The search for the largest batch that fits: any memory that grows with the batch."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpu_magic.errors import FitError
from gpu_magic.fitting.largest_batch import LargestBatch, find_largest

if TYPE_CHECKING:
    from collections.abc import Callable

LONG = (1e9, 0.0)
MOST = 1 << 24
sizes = st.integers(0, 24).flatmap(lambda bits: st.integers(max(1, (1 << bits) // 2), 1 << bits))
slopes = st.one_of(st.just(0), st.integers(1, 10**6))


def by_bisection(peak: Callable[[int], int], available: int) -> int:
    """Return the largest batch that fits, with as many predictions as that takes."""
    low, high = 0, MOST + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if peak(middle) <= available else (low, middle)
    return low


@st.composite
def memories(draw: st.DrawFn) -> Callable[[int], int]:
    """Return memory that grows by pieces, each with a slope of its own, with plateaus, jumps and blocks."""
    ends = [0, *sorted(draw(st.lists(sizes, max_size=6, unique=True))), MOST]
    rises = [draw(slopes) for _ in ends]
    jumps = [draw(st.sampled_from([0, 0, 10**6, 10**9])) for _ in ends]
    base, block = draw(st.integers(0, 10**10)), draw(st.sampled_from([1, 512, 1 << 21]))

    def peak(batch: int) -> int:
        total = base
        for (begin, end), rise, jump in zip(pairwise(ends), rises, jumps, strict=False):
            if batch > begin:
                total += jump + rise * (min(batch, end) - begin)
        return -(-total // block) * block

    return peak


@given(memories(), sizes, sizes, sizes, st.integers(-1, 10**6))
def test_it_is_what_bisection_finds(
    peak: Callable[[int], int], size: int, guess: int, largest: int, more: int
) -> None:
    """It is exact for any memory that does not fall, in at most 32 predictions."""
    available, asked = peak(largest) + more, []

    def counted(batch: int) -> int:
        asked.append(batch)
        return peak(batch)

    found = find_largest(counted, {size: peak(size)}, guess, available, LONG)
    expected = by_bisection(peak, available)
    assert found == LargestBatch(expected, is_exact=expected < MOST)
    assert len(set(asked)) == len(asked) <= 32
    assert all(1 <= batch <= MOST for batch in asked)


@given(memories(), sizes, sizes, sizes, st.integers(1, 32))
def test_without_time_to_end_it_was_predicted_to_fit(
    peak: Callable[[int], int], size: int, guess: int, largest: int, predictions: int
) -> None:
    available, known = peak(largest), {size: peak(size)}

    def slower(batch: int) -> int:
        if len(known) == predictions:  # of a batch that can't be made nothing is known
            raise FitError("too many elements")
        return peak(batch)

    found = find_largest(slower, known, guess, available, LONG)
    if found is None:
        assert all(nbytes > available for nbytes in known.values())
    elif found.size:
        assert known[found.size] <= available
    if found is not None and found.is_exact:
        assert found.size == by_bisection(peak, available)


@pytest.mark.parametrize(
    ("plateau", "slopes", "largest"),
    [(8_000_401_920, (80_000, 160_000), 500_106), (2_685_000_000, (32_768, 131_072), 632_766)],
)
def test_a_peak_of_the_optimizer_hides_how_the_forward_grows(
    plateau: int, slopes: tuple[int, int], largest: int
) -> None:
    """A model with a large optimizer: up to some thousands the batch hardly shows, or not at all."""
    count = 0

    def peak(batch: int) -> int:
        nonlocal count
        count += 1
        return max(plateau, plateau // 2 + batch * slopes[0], plateau // 2 + batch * slopes[1])

    available = peak(largest) + slopes[1] // 2
    found = find_largest(peak, {64: peak(64)}, 3126, available, LONG)
    assert found == LargestBatch(largest, is_exact=True)
    assert count <= 14


@given(st.integers(10**6, 10**9), st.integers(10**4, 10**6), st.integers(1, 1000), st.integers(0, 10**11))
@example(10**6, 10**4, 1, 0)
def test_what_grows_evenly_is_found_exactly(base: int, slope: int, size: int, room: int) -> None:
    available = base + room
    count = 0

    def peak(batch: int) -> int:
        nonlocal count
        count += 1
        return base + batch * slope

    found = find_largest(peak, {size: base + size * slope}, 2 * size, available, LONG)
    assert found == LargestBatch(room // slope, is_exact=True)
    assert count <= 4


def never(batch: int) -> int:
    raise AssertionError(batch)


def test_without_time_it_is_what_is_known_to_fit() -> None:
    found = find_largest(never, {8: 800}, 120, 10_000, (1.0, 2.0))
    assert found == LargestBatch(8, is_exact=False)


def test_without_time_nothing_is_known_below_what_does_not_fit() -> None:
    assert find_largest(never, {8: 800}, 4, 700, (1.0, 2.0)) is None


def test_where_the_batch_hardly_matters_it_is_at_least_what_is_looked_for() -> None:
    found = find_largest(lambda batch: batch, {8: 8}, 1 << 30, 1 << 40, LONG)
    assert found == LargestBatch(1 << 24, is_exact=False)


def test_a_batch_that_can_not_be_made_does_not_fit() -> None:
    def peak(batch: int) -> int:
        if batch > 100:
            raise FitError("too many elements")
        return batch

    assert find_largest(peak, {8: 8}, 1 << 20, 1 << 40, LONG) == LargestBatch(100, is_exact=False)


def test_of_a_step_that_takes_one_size_alone_no_smaller_one_is_denied() -> None:
    def peak(batch: int) -> int:
        raise FitError(f"{batch} is not 64")

    assert find_largest(peak, {64: 100}, 32, 50, LONG) is None
