"""What is kept of the cells that a kernel runs: few spans, however many cells there are."""

from __future__ import annotations

import pytest

from gpu_magic.widget.cells import CellTimes
from gpu_magic.widget.page_state import CellSpan


class Notebook:
    """Runs cells on a clock of its own."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.cells = CellTimes(lambda: self.now)

    def run(self, number: int | None, seconds: float, pause: float = 0.0) -> None:
        self.cells.begin(number)
        self.now += seconds
        self.cells.end()
        self.now += pause

    @property
    def spans(self) -> list[CellSpan]:
        return self.cells.spans(lambda time: round(time - 1000, 2))


@pytest.fixture
def notebook() -> Notebook:
    return Notebook()


def test_a_cell_is_told_from_its_begin_to_its_end(notebook: Notebook) -> None:
    notebook.run(1, 5, pause=2)
    notebook.run(2, 0.25)
    assert notebook.spans == [
        CellSpan(0, 1, 1, 0, 5, is_beside=False),
        CellSpan(1, 2, 2, 7, 7.25, is_beside=False),
    ]


def test_a_cell_that_runs_has_no_end_and_keeps_its_id(notebook: Notebook) -> None:
    notebook.run(1, 5)
    notebook.cells.begin(2)
    notebook.now += 3
    assert notebook.spans[1:] == [CellSpan(1, 2, 2, 5, None, is_beside=False)]
    notebook.cells.end()
    assert notebook.spans[1:] == [CellSpan(1, 2, 2, 5, 8, is_beside=False)]


def test_short_cells_in_one_second_are_one_span(notebook: Notebook) -> None:
    for number in range(1, 5):
        notebook.run(number, 0.2)
    notebook.run(5, 2)
    notebook.run(6, 0.2)
    assert [(span.first, span.last, span.begin, span.end) for span in notebook.spans] == [
        (1, 4, 0, 0.8),
        (5, 5, 0.8, 2.8),
        (6, 6, 2.8, 3.0),
    ]


def test_a_cell_is_not_told_before_it_is_known_whether_it_is_short(notebook: Notebook) -> None:
    notebook.run(1, 0.2)
    notebook.cells.begin(2)
    notebook.now += 0.5
    assert [span.last for span in notebook.spans] == [1]
    notebook.cells.end()
    assert [(span.id, span.last) for span in notebook.spans] == [(0, 2)]


def test_cells_without_a_number_are_told_where_they_are_long(notebook: Notebook) -> None:
    notebook.run(1, 0.1)
    notebook.run(None, 0.1)
    notebook.run(2, 0.1)
    notebook.run(None, 4)
    assert [(span.first, span.last) for span in notebook.spans] == [(1, 2), (None, None)]


def test_a_number_that_was_not_right_is_dropped(notebook: Notebook) -> None:
    notebook.cells.begin(7)
    notebook.now += 2
    notebook.cells.end(is_numbered=False)
    assert notebook.spans[0].first is None


def test_an_end_without_a_begin_is_nothing(notebook: Notebook) -> None:
    notebook.cells.end()
    notebook.cells.begin(1)
    notebook.now += 2
    notebook.cells.drop_running()
    notebook.cells.end()
    assert notebook.spans == []


def test_what_ended_three_minutes_ago_is_forgotten_and_what_began_then_is_not(notebook: Notebook) -> None:
    notebook.run(1, 5)
    notebook.run(2, 181)
    assert [span.first for span in notebook.spans] == [2]
    notebook.now += 181
    assert notebook.spans == []


# Numbers of which some are left out can't be one span.
@pytest.mark.parametrize(("seconds", "step"), [(0.018, 1), (0.0001, 1), (0.018, 2)])
def test_ten_thousand_cells_are_few_spans_and_few_are_new_each_second(seconds: float, step: int) -> None:
    notebook = Notebook()
    told: list[CellSpan] = []
    most = next_reading = 0
    for number in range(0, 10_000 * step, step):
        notebook.run(number, seconds)
        if notebook.now >= next_reading:
            next_reading = int(notebook.now) + 1
            spans = notebook.spans
            most = max(most, len(set(spans) - set(told)))
            told = spans
    assert len(notebook.spans) <= 400
    assert most <= (3 if step == 1 else 60)
    assert notebook.spans[-1].last == (10_000 - 1) * step


def test_cells_of_about_a_second_are_spans_of_their_own() -> None:
    notebook = Notebook()
    for number in range(300):
        notebook.run(number, 0.5 if number % 2 else 1.0)
    assert 200 < len(notebook.spans) <= 362
