"""The search for the largest batch that fits: any memory that grows with the batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpu_magic.errors import FitError
from gpu_magic.fitting.largest_batch import LargestBatch, find_largest

LONG = (1e9, 0.0)


@given(
    st.integers(0, 10**9),
    st.integers(1, 10**7),
    st.integers(1, 1000),
    st.integers(1, 10**5),
    st.tuples(st.integers(0, 10**11), st.sampled_from([1, 512, 1 << 20])),
)
def test_it_fits_and_one_more_does_not(
    base: int, slope: int, size: int, guess: int, available_and_block: tuple[int, int]
) -> None:
    """Memory that grows in blocks, and so not quite evenly."""
    available, block = available_and_block

    def peak(batch: int) -> int:
        return base + -(-batch * slope // block) * block

    found = find_largest(peak, {size: peak(size)}, guess, available, LONG)
    if found is None:
        assert peak(1 << 24) <= available
        return
    assert found.size == 0 or peak(found.size) <= available or not found.is_exact
    if found.is_exact:
        assert peak(found.size + 1) > available


@given(st.integers(10**6, 10**9), st.integers(10**4, 10**6), st.integers(1, 1000), st.integers(0, 10**11))
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


def test_without_time_it_is_a_guess() -> None:
    def never(batch: int) -> int:
        raise AssertionError(batch)

    assert find_largest(never, {8: 800}, 120, 10_000, (1.0, 2.0)) == LargestBatch(120, is_exact=False)


def test_a_batch_that_can_not_be_made_does_not_fit() -> None:
    def peak(batch: int) -> int:
        if batch > 100:
            raise FitError("too many elements")
        return batch

    found = find_largest(peak, {8: 8}, 1 << 20, 1 << 40, LONG)
    assert found is not None
    assert found.size <= 100
