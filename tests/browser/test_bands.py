"""The cells that the charts of an open row show as bands: a page with the front end's part alone."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.panel import PICTURES
from tests.browser.standalone import cells_of, detail_of, panel_page, state_of
from tests.browser.test_accessibility import found_by_axe
from tests.browser.test_layout import FONTS, WRONG, busy, change

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

# What a morning is like: long cells, quick ones, one without a number, one in the background, and one that runs.
CELLS: list[list[Any]] = [
    [3, 3, 300, 170, False],
    [4, 9, 169.8, 169, False],
    [10, 10, 159, 110, False],
    [11, 11, 110, 95, False],
    [12, 12, 90, 89.99, False],
    [13, 13, 82, 81.6, False],
    [None, None, 80, 74, False],
    [14, 14, 73.9, 60, False],
    [1015, 1015, 40, None, False],
    [13, 13, 82, 10, True],
]
TEXTS = [
    "Cell 1015, running for 40 s",
    "Cell 14, 14 s",
    "Unnumbered cell, 6.0 s",
    "Cell 13 in the background, 1 min 12 s",
    "Cell 13, 0.4 s",
    "Cell 12, under 0.1 s",
    "Cell 11, 15 s",
    "Cell 10, 49 s",
    "Cells 4 to 9, 0.8 s",
    "Cell 3, 2 min 10 s",
]
# Returns the numbers that are seen below each chart, and what they overlap: each other, a time, or the axis' ends.
LABELS = """async width => {
    box.style.width = `${width}px`;
    await new Promise(done => requestAnimationFrame(() => setTimeout(done, 30)));
    return [...box.querySelectorAll('.gm-detail-axis')].map(axis => {
        const labels = [...axis.querySelectorAll('.gm-bands span')].filter(one => one.style.visibility !== 'hidden');
        const all = [...labels, ...axis.querySelectorAll(':scope > span:not(.gm-bands)')].filter(one => one.textContent);
        const boxes = all.map(one => one.getBoundingClientRect());
        const edge = axis.getBoundingClientRect();
        const wrong = all.filter((_, index) => boxes.some((other, at) => at !== index &&
            boxes[index].left < other.right && other.left < boxes[index].right) ||
            boxes[index].right > edge.right + 0.5 || boxes[index].left < edge.left - 0.5);
        return [labels.map(one => one.textContent), wrong.map(one => one.textContent)];
    });
}"""
HEIGHTS = "box.querySelector('.gm-panel').getBoundingClientRect().height"


@contextmanager
def page_with_cells(
    chromium: Browser, cells: list[list[Any]], *, samples: int = 180, font: str = "", **how: Any
) -> Iterator[tuple[Page, dict[str, Any]]]:
    state = state_of("2xA100-80GB", busy) | {"second": 1000}
    state["history"]["1"] = [80 if 20 <= index < 70 else 5 for index in range(samples)]
    with panel_page(chromium, state, style=f"body {{ font-family: {font} }}" if font else "", **how) as page:
        page.locator('.gm-row[data-key="1"] .gm-chevron').click()
        page.evaluate("message => hear(message)", detail_of(state, "1", memory=[500] * samples))
        page.evaluate("message => hear(message)", cells_of(state, *cells))
        yield page, state


def drawn(page: Page, name: str) -> list[str]:
    """Return what is drawn of a kind in the chart of utilization, a piece each."""
    paths = page.locator(f".gm-figure .gm-band-{name}").evaluate_all(
        "all => all.map(one => one.getAttribute('d'))"
    )
    assert len(set(paths)) == 1  # the chart of memory has the same
    return [f"M{piece}" for piece in paths[0].split("M")[1:]]


def listed(page: Page) -> list[str]:
    return page.locator(".gm-detail-cells li").all_text_contents()


def test_bands_reach_from_the_begin_of_a_cell_to_its_end(chromium: Browser) -> None:
    cells = [[1, 1, 200, 170, False], [2, 2, 100, 50, False], [3, 3, 50, 30, False], [4, 4, 20, None, False]]
    with page_with_cells(chromium, [*cells, [2, 2, 100, 90, True]]) as (page, _):
        assert drawn(page, "even") == ["M0.0 0H10.0V56H0.0Z", "M130.0 0H150.0V56H130.0Z"]
        assert drawn(page, "odd") == ["M80.0 0H130.0V56H80.0Z", "M160.0 0H180.0V56H160.0Z"]
        assert drawn(page, "beside") == ["M80.0 0H90.0V56H80.0Z"]
        # None where a cell began before, and none where it still runs.
        edges = {piece.split()[0] for piece in drawn(page, "edges")}
        assert edges == {"M10.0", "M80.0", "M130.0", "M150.0", "M160.0"}


def test_a_short_cell_is_a_line(chromium: Browser) -> None:
    with page_with_cells(chromium, [[1, 1, 50, 49.99, False]]) as (page, _):
        assert drawn(page, "edges") == ["M130.0 0V56"]
        plot = page.locator(".gm-figure .gm-plot").first
        box = plot.bounding_box()
        assert box is not None
        plot.hover(position={"x": 130 / 180 * box["width"] + 1, "y": 20})
        assert page.locator(".gm-readout").inner_text().endswith(", [1] under 0.1 s")


def test_bands_stand_where_the_samples_of_their_time_are_in_a_chart_that_fills(chromium: Browser) -> None:
    with page_with_cells(chromium, [[1, 1, 99, 20, False], [2, 2, 10, None, False]], samples=60) as (page, _):
        assert drawn(page, "even") == ["M0.0 0H40.0V56H0.0Z"]
        assert drawn(page, "odd") == ["M50.0 0H60.0V56H50.0Z"]


def test_bands_move_with_the_samples_and_leave_the_chart(chromium: Browser) -> None:
    with page_with_cells(chromium, [[1, 1, 200, 179, False], [2, 2, 10, None, False]]) as (page, state):
        assert len(listed(page)) == 2
        page.evaluate("message => hear(message)", change(state, "1", 70) | {"second": 1002})
        assert drawn(page, "even") == []
        assert drawn(page, "odd") == ["M168.0 0H180.0V56H168.0Z"]
        assert listed(page) == ["Cell 2, running for 12 s"]
        message = {"type": "cells", "second": 1003, "unbroken": 0, "is_all": False}
        page.evaluate("message => hear(message)", message | {"cells": [[1, 2, 2, 990, 1002.5, False]]})
        assert listed(page) == ["Cell 2, 13 s"]


def test_a_cell_whose_end_was_not_heard_ends_where_the_next_begins(chromium: Browser) -> None:
    with page_with_cells(chromium, [[1, 1, 60, None, False], [2, 2, 20, None, False]]) as (page, _):
        assert listed(page) == ["Cell 2, running for 20 s", "Cell 1, 40 s"]


def test_a_restarted_kernel_begins_with_no_bands(chromium: Browser) -> None:
    with page_with_cells(chromium, CELLS) as (page, state):
        assert listed(page) == TEXTS
        page.evaluate("state => hear({type: 'state', state})", state)  # the same kernel says all anew
        assert listed(page) == TEXTS
        page.evaluate("state => hear({type: 'state', state})", state | {"process": "another"})
        assert listed(page) == []
        assert not page.locator(".gm-detail-cells").is_visible()
        assert drawn(page, "edges") == []


def test_cells_are_told_to_screen_readers(chromium: Browser) -> None:
    with page_with_cells(chromium, CELLS, theme="light") as (page, _):
        cells = page.get_by_role("list", name="Cells of the last three minutes").get_by_role("listitem")
        assert cells.all_text_contents() == TEXTS
        assert found_by_axe(page) == []
    many = [[number, number, 170 - 5 * number, 168 - 5 * number, False] for number in range(30)]
    with page_with_cells(chromium, many) as (page, _):
        assert listed(page)[19:] == ["Cell 10, 2.0 s", "and 10 before"]


def test_numbers_have_room_of_their_own(chromium: Browser) -> None:
    with page_with_cells(chromium, CELLS, theme="light") as (page, _):
        (seen, wrong), _ = page.evaluate(LABELS, 1200)
        assert set(seen) == {"[10]", "[11]", "[13]", "[14]", "[1015]"}
        assert wrong == []
        (narrow, _), _ = page.evaluate(LABELS, 240)
        assert 0 < len(narrow) < len(seen)
        assert page.evaluate(LABELS, 1200)[0][0] == seen  # and are back where it is wide again


@pytest.mark.parametrize("font", FONTS)
def test_numbers_never_overlap_and_nothing_overflows(chromium: Browser, font: str) -> None:
    with page_with_cells(chromium, CELLS, font=font) as (page, _):
        for width in range(240, 1241, 20):
            charts = page.evaluate(LABELS, width)
            assert [wrong for _, wrong in charts] == [[], []], width
            if width >= 280:
                assert page.evaluate(WRONG, width) == [], width


def test_cells_change_no_layout(chromium: Browser) -> None:
    boxes = """width => { box.style.width = `${width}px`; return new Promise(done => setTimeout(() => done(
        [...box.querySelectorAll('.gm-panel, .gm-row, .gm-detail, .gm-figure, .gm-plot, .gm-detail-axis, .gm-detail-lists')].map(
            one => JSON.stringify(one.getBoundingClientRect()))), 50)); }"""
    with page_with_cells(chromium, []) as (page, state):
        before = {width: page.evaluate(boxes, width) for width in (240, 320, 560, 760, 1000, 1200)}
        page.evaluate("message => hear(message)", cells_of(state, *CELLS))
        assert {width: page.evaluate(boxes, width) for width in before} == before


def test_as_many_cells_as_a_kernel_tells_of_are_drawn(chromium: Browser) -> None:
    cells = [[number, number, 180 - number / 2, 179.6 - number / 2, False] for number in range(360)]
    with page_with_cells(chromium, cells) as (page, _):
        assert len(drawn(page, "edges")) == 360
        for width in (320, 1200):
            assert [wrong for _, wrong in page.evaluate(LABELS, width)] == [[], []]
        assert len(listed(page)) == 21


def test_the_charts_of_rows_have_no_bands(chromium: Browser) -> None:
    with page_with_cells(chromium, CELLS) as (page, _):
        assert page.locator(".gm-row .gm-band-edges").count() == 0


def test_what_is_under_the_pointer_fits_the_chart(chromium: Browser) -> None:
    with page_with_cells(chromium, CELLS, theme="light") as (page, _):
        for width in (240, 320, 1200):
            page.evaluate(LABELS, width)
            plot = page.locator(".gm-detail-memory .gm-plot")
            box = plot.bounding_box()
            assert box is not None
            plot.hover(position={"x": 110.5 / 180 * box["width"], "y": 20})
            readout = page.locator(".gm-readout")
            assert readout.inner_text() == "40.0 GiB, 69 s ago, [13] 1 min 12 s, [14] 14 s"
            assert readout.bounding_box()["x"] >= box["x"] - 1
            page.mouse.move(0, 0)


@pytest.mark.parametrize("width", [320, 760, 1200])
@pytest.mark.parametrize("look", ["light", "dark", "forced-light", "forced-dark"])
def test_pictures_of_bands(chromium: Browser, look: str, width: int) -> None:
    forced, _, scheme = look.rpartition("-")
    how = {"forced_colors": "active", "color_scheme": scheme} if forced else {}
    with page_with_cells(chromium, CELLS, theme="light" if forced else look, **how) as (page, _):
        page.evaluate(LABELS, width)
        strokes = page.locator(".gm-band-edges").first.evaluate("one => getComputedStyle(one).stroke")
        line = page.locator(".gm-figure .gm-chart-line").first.evaluate("one => getComputedStyle(one).stroke")
        assert strokes not in ("none", line)
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.locator(".gm-panel").screenshot(path=PICTURES / f"bands-{look}-{width}.png")
