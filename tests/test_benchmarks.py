"""What `python -m benchmarks --save` writes: Markdown that others read, and an exit status."""

from __future__ import annotations

import getpass
import re
import socket
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from markdown_it import MarkdownIt

from benchmarks import host
from benchmarks.report import Row, Table
from benchmarks.results import Results, Section

if TYPE_CHECKING:
    from markdown_it.token import Token


def _results(*rows: Row, reason: str = "") -> Results:
    table = Table("How *long* it takes | a snapshot", rows, "bare", notes=["of 8 GPUs"])
    section = Section("snapshot", [table], reason, is_error=bool(reason), before="0.1", after="0.2")
    return Results({"processor": "A processor, 2 cores"}, [section])


def _read(text: str) -> list[Token]:
    return MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)


def _cells(text: str) -> list[list[str]]:
    """Return the rows of all tables, each cell as the text that a reader sees."""
    rows: list[list[str]] = []
    is_cell = False
    for token in _read(text):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and is_cell:
            rows[-1].append("".join(child.content for child in token.children or []))
        is_cell = token.type in ("td_open", "th_open")
    return rows


def test_a_table_is_one_in_markdown_too() -> None:
    text = _results(
        Row("bare", 1e-3),
        Row("gpu_magic.gpus() | `%gpus` <b>", 2e-3, "at most 1.5 times *bare*", holds=False),
        Row("__nvitop__", 4e-3, "slower", holds=True),
    ).markdown()
    assert [row for row in _cells(text) if len(row) == 5] == [
        ["", "median", "ratio", "bound", ""],
        ["bare", "1 ms", "1.00", "", ""],
        ["gpu_magic.gpus() | `%gpus` <b>", "2 ms", "2.00", "at most 1.5 times *bare*", "✗"],
        ["__nvitop__", "4 ms", "4.00", "slower", "✓"],
    ]
    tokens = _read(text)
    headings = [after.children for token, after in pairwise(tokens) if token.tag == "h3"]
    assert ["".join(child.content for child in heading or []) for heading in headings if heading] == [
        "How *long* it takes | a snapshot"
    ]
    nested = [child.type for token in tokens for child in token.children or []]
    assert not {"html_inline", "em_open", "strong_open"} & set(nested)


@pytest.mark.parametrize(
    "results",
    [
        _results(Row("a wheel", 2.0, "1 s", holds=False)),
        _results(Row("a wheel", 0.5, "1 s", holds=True), reason="OSError: no space left"),
    ],
    ids=["a bound", "a topic that fails"],
)
def test_a_bound_that_does_not_hold_is_an_error(results: Results) -> None:
    assert not results.is_fine
    assert _results(Row("a wheel", 0.5, "1 s", holds=True), Row("another", 1.0)).is_fine


def test_it_names_the_machine_by_its_processor_and_memory_alone() -> None:
    found = host.describe()
    assert found["processor"].endswith("cores")
    assert found["memory"].endswith(" GiB")
    text = _results(
        Row("x", 1.0), reason=f"OSError: /home/{getpass.getuser()}/x on {socket.gethostname()}"
    ).markdown()
    text += " ".join(found.values())
    for name in ("/home", getpass.getuser(), str(host.ROOT), socket.gethostname()):
        assert not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)


def test_results_of_a_machine_have_one_name() -> None:
    assert host.name_of_results({"processor": "AMD EPYC 7B13, 2 cores"}) == "amd-epyc-7b13-2-cores"
