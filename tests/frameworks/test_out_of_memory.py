"""How much memory was asked for, in the words of each framework's error."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpu_magic.frameworks.base import wanted_in
from tests.inputs import LONG

# As PyTorch 2.13, XLA and CuPy 13 write them.
TEXTS = {
    "CUDA out of memory. Tried to allocate 20.50 GiB. GPU 0 has a total capacity of 79.15 GiB of which 15.25 GiB "
    "is free.": 20.5 * (1 << 30),
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.": 1 << 33,
    "Out of memory allocating 1,024 bytes (allocated so far: 0 bytes).": 1024,
    "OOM when allocating tensor with shape[100000,100000] and type float on /device:GPU:0": None,
}


@pytest.mark.parametrize("text", TEXTS)
def test_what_was_asked_for_is_read(text: str) -> None:
    assert wanted_in(text) == TEXTS[text]


@given(
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["allocate ", "allocating ", "Tried to allocate ", ""]),
        st.from_regex(r"\A[0-9.,]{0,30}\Z"),
        st.sampled_from([" bytes", "KiB", " GiB", "TiB", ""]),
    )
)
@example("allocate ,TiB")
@example(f"allocating {'9' * 400} bytes")
@example(f"allocating {'9' * LONG} bytes")
def test_any_text_asks_for_a_number_of_bytes_or_for_none(text: str) -> None:
    wanted = wanted_in(text)
    assert wanted is None or (type(wanted) is int and wanted >= 0)
