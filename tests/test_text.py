"""Words of messages that depend on what they stand beside."""

from __future__ import annotations

import pytest

from gpu_magic.text import with_article


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Linear", "a"), ("AdamW", "an"), ("UserDict", "a"), ("LSTM", "an"), ("L1Loss", "an"), ("GRU", "a")],
)
def test_the_article_is_that_of_the_name_as_it_is_spoken(name: str, expected: str) -> None:
    assert with_article(name) == f"{expected} {name}"
    assert with_article(name, "A") == f"{expected.title()} {name}"
