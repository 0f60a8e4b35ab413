from __future__ import annotations

import pytest

from gpu_magic.text import read_size, size_meant


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("60", "60GB"),
        ("1.5", "1.5GB"),
        (60, "60GB"),
        ("60000", "60000MiB"),
        ("60 gigs", "60GB"),
        ("lots", "8GB"),
        ("60%", "8GB"),
        ("60 %", "8GB"),
        ("-1", "8GB"),
        ("9" * 400, "8GB"),
        ("0", "8GB"),
    ],
)
def test_the_size_that_was_meant_is_one(typed: str | int, meant: str) -> None:
    assert size_meant(typed, "8GB") == meant
    assert read_size(meant)
