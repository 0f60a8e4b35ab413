"""Words of messages that depend on what they stand beside."""

from __future__ import annotations

import pytest

from gpu_magic.text import bytes_text, size_text, with_article


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Linear", "a"), ("AdamW", "an"), ("UserDict", "a"), ("LSTM", "an"), ("L1Loss", "an"), ("GRU", "a")],
)
def test_the_article_is_that_of_the_name_as_it_is_spoken(name: str, expected: str) -> None:
    assert with_article(name) == f"{expected} {name}"
    assert with_article(name, "A") == f"{expected.title()} {name}"


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "0 MiB"),
        (512 << 20, "0.5 GiB"),
        (80 << 30, "80.0 GiB"),
        (1023 << 30, "1023.0 GiB"),
        ((1 << 40) - 1, "1.0 TiB"),
        (1536 << 30, "1.5 TiB"),
        (16 << 40, "16.0 TiB"),
    ],
)
def test_memory_has_a_unit_that_people_read(size: int, expected: str) -> None:
    assert bytes_text(size) == expected


def test_the_same_is_said_of_what_was_measured() -> None:
    assert [size_text(size << 30) for size in (1, 1023, 1024)] == ["1.0 GiB", "1023.0 GiB", "1.0 TiB"]
