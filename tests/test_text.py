"""Words of messages that depend on what they stand beside, and tables."""

from __future__ import annotations

import pytest

from gpu_magic.text import bytes_text, html_block, html_table, size_text, text_table, with_article


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


def test_a_table_has_a_heading_and_aligned_columns() -> None:
    lines = text_table(("GPU", "used by"), [("10", "tom\n"), ("2", "")], right={0})
    assert lines == ["GPU  used by", " 10  tom�", "  2"]
    assert text_table(("", ""), [("a", "b")]) == ["a  b"]


def test_a_table_in_a_page_is_escaped() -> None:
    table = html_table(("GPU", "used by"), [("0", "<b>tom")], right={0})
    assert "<td class='gm-right'>0</td><td>&lt;b&gt;tom</td>" in table
    assert "<thead>" not in html_table(("", ""), [("a", "b")])


def test_the_style_that_each_output_carries_is_short() -> None:
    """A notebook keeps it once for each output: for 200 measured cells, 100 kB."""
    assert len(html_block("", "")) <= 500
