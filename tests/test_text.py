"""Words of messages that depend on what they stand beside, and tables."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpu_magic.errors import GpuMagicError
from gpu_magic.gpus.options import read_seconds
from gpu_magic.text import (
    bytes_text,
    escaped,
    html_block,
    html_table,
    page_text,
    read_size,
    size_as_typed,
    size_text,
    text_table,
    with_article,
    wrapped,
)
from tests.inputs import LONG, ODD, check_line, check_refusal


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


def test_a_table_is_aligned_by_what_its_letters_take_in_a_terminal() -> None:
    """A Chinese letter takes two cells, as an emoji does, and a mark above a letter none."""
    people = ("王小明", "山田太郎", "zo\u0308e", "🦊", "maria")
    lines = text_table(("GPU", "who", "age"), [("1", name, "3 h") for name in people], right={0})
    cells = (6, 8, 3, 2, 5)
    assert lines == ["GPU  who       age"] + [
        f"  1  {name}{' ' * (8 - taken)}  3 h" for name, taken in zip(people, cells, strict=True)
    ]
    (line,) = text_table(("", ""), [("王小明", "x")], right={0, 1})
    assert line == "王小明  x"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("maria: train.py, 59.6 GiB, for 3 h, idle 2 h", "maria: train.py, 59.6~GiB, for~3~h, idle~2~h"),
        ("GPU 2, since 21 Nov 14:02, 95 % at 70 °C", "GPU 2, since~21 Nov 14:02, 95~% at 70~°C"),
        ("choose 2 gpus, 3 hours, wait for it", "choose 2 gpus, 3 hours, wait for it"),
        ("عبدالرحمن_محمد: 3 דף.ipynb, 5 GiB", "<عبدالرحمن_محمد>: 3 <דף>.ipynb, 5~GiB"),
        ("قائمة جديدة (2)", "<قائمة جديدة> (2)"),
        ("王小明: 训练, for 1 h", "王小明: 训练, for~1~h"),
    ],
)
def test_in_a_page_figures_keep_their_units_and_names_turn_nothing_around(text: str, shown: str) -> None:
    marks = str.maketrans({"~": "\u00a0", "<": "\u2068", ">": "\u2069"})
    assert page_text(text) == shown.translate(marks)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("maria: a.py, 59.6 GiB, for 3 h", "maria: a.py, <n>59.6 GiB</n>, <n>for 3 h</n>"),
        ("GPU 2, since 21 Nov 14:02", "GPU 2, <n>since 21</n> Nov 14:02"),
        ("2 min 5 s", "<n>2 min</n> <n>5 s</n>"),
        ("python דוד/train.py --warmup-for 30", "python <bdi>דוד</bdi>/train.py --warmup-<n>for 30</n>"),
        ("'5 GPU' & <b>", "&#x27;<n>5 GPU</n>&#x27; &amp; &lt;b&gt;"),
        (f"{'d/' * 20}5 GPUs", f"<l>{'d/' * 20}5</l> GPUs"),
        ("3 דף 2.ipynb, ٣ GiB", "3 <bdi>דף</bdi> 2.ipynb, <n><bdi>٣</bdi> GiB</n>"),
    ],
)
def test_html_looks_like_that_and_what_is_copied_from_it_is_the_text(text: str, shown: str) -> None:
    found = escaped(text)
    for short, css in (("n", "white-space:nowrap"), ("l", "overflow-wrap:anywhere")):
        shown = shown.replace(f"<{short}>", f"<span style='{css}'>").replace(f"</{short}>", "</span>")
    assert found == shown
    assert html.unescape(re.sub("<.*?>", "", found)) == text


def test_a_table_in_a_page_is_escaped() -> None:
    table = html_table(("GPU", "used by"), [("0", "<b>tom")], right={0})
    assert "<td class='gm-right'>0</td><td>&lt;b&gt;tom</td>" in table
    assert "<thead>" not in html_table(("", ""), [("a", "b")])


def test_the_style_that_each_output_carries_is_short() -> None:
    """A notebook keeps it once for each output: for 200 measured cells, 140 kB."""
    assert len(html_block("", "")) <= 700


@given(st.from_regex(r"\A[0-9.]{0,6} ?[KMGTkmgt]?i?[Bb]?\Z") | st.lists(ODD, max_size=3).map("".join))
@example("9" * LONG)
@example("1.5T")
def test_a_size_is_read_again_as_it_is_written(text: str) -> None:
    size = read_size(text)
    if size is None:
        return
    assert size >= 0
    check_line(bytes_text(size), 40)
    check_line(size_as_typed(text), 60)
    again = read_size(size_as_typed(text))
    assert again is not None
    assert again == size or not re.search(r"[KMGT]", text, re.IGNORECASE)


@given(st.from_regex(r"\A([0-9.]{0,4} ?([smhd]|min|hours?)? ?){0,3}\Z") | ODD)
@example("9" * LONG)
def test_a_length_of_time_is_positive_and_ends(text: str) -> None:
    try:
        assert 0 < read_seconds(text) < float("inf")
    except GpuMagicError as error:
        check_refusal(error)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("It fits. So it stays.", ["It fits. So it stays."]),
        ("UsageError: Nobody uses GPU 1. Try 1", ["UsageError: Nobody uses GPU 1.", "Try 1"]),
        ("GPU 1 is used by tom. Try another one.", ["GPU 1 is used by tom.", "Try another one."]),
        ("One sentence, which is longer than a line.", ["One sentence,", "which is longer than a line."]),
        (
            "To wait for one of these: %gpus auto --wait 30m",
            ["To wait for one of these:", "%gpus auto --wait 30m"],
        ),
        ("There is no --jsn. %gpus? explains it.", ["There is no --jsn.", "%gpus? explains it."]),
        (
            "It is in use. Try %gpu_launch --gpus 0 python train.py",
            ["It is in use.", "Try %gpu_launch --gpus 0 python train.py"],
        ),
        (
            "Too late: it runs.\n  one cell, by itself: %%on_gpu 1",
            ["Too late: it runs.", "  one cell, by itself:", "  %%on_gpu 1"],
        ),
        (
            "Engines need ipyparallel: pip install ipyparallel cloudpickle",
            ["Engines need ipyparallel:", "pip install ipyparallel cloudpickle"],
        ),
        ("In use are GPU 3 (tom, for 3 h), GPU 5", ["In use are GPU 3 (tom,", "for 3 h), GPU 5"]),
        ("王小明的长用户名测试账户, 王小明的长用户名", ["王小明的长用户名测试账户,", "王小明的长用户名"]),
    ],
)
def test_lines_break_after_punctuation_and_so_in_no_command(text: str, lines: list[str]) -> None:
    assert wrapped(text, 30).split("\n") == lines


@given(st.text("ab %-.,:\n", max_size=80), st.integers(1, 30))
def test_only_spaces_become_new_lines(text: str, width: int) -> None:
    found = wrapped(text, width)
    assert found.split() == text.split()
    assert all(line in found.split("\n") for line in text.split("\n") if len(line) <= width)
