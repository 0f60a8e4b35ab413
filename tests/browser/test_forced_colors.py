"""The panel in forced colors (Windows' contrast themes), where the system's own take the place of all others.

What a page says of its colors is not what is seen then, so the tests look at pictures of it.
"""

from __future__ import annotations

import base64
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.panel import PICTURES
from tests.browser.standalone import detail_of, panel_page, state_of, tell
from tests.browser.test_layout import busy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page

Color = tuple[int, int, int]
TEXT = 4.5  # the least contrast that text has to have (WCAG 1.4.3)
SHAPE = 3.0  # and what is no text (WCAG 1.4.11)
# Returns the rows of a picture's pixels.
PIXELS = """async png => {
    const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${png}`)).blob());
    const pen = new OffscreenCanvas(image.width, image.height).getContext('2d');
    pen.drawImage(image, 0, 0);
    const {data} = pen.getImageData(0, 0, image.width, image.height);
    const color = place => [...data.slice(4 * place, 4 * place + 3)];
    return Array.from({length: image.height}, (_, y) => Array.from({length: image.width}, (_, x) => color(y * image.width + x)));
}"""
in_both = pytest.mark.parametrize("scheme", ["light", "dark"])


@contextmanager
def forced_page(chromium: Browser, scheme: str = "light", width: int = 1240) -> Iterator[Page]:
    """Open a panel in forced colors; the first GPU is open, chosen with the keyboard, and slowed down."""
    state = state_of("4xA100-80GB", busy)
    for samples in state["history"].values():
        samples[:] = [50] * 180
    how = {"forced_colors": "active", "color_scheme": scheme, "viewport": {"width": width, "height": 900}}
    with panel_page(chromium, state, theme="light", **how) as page:
        page.locator(".gm-row").first.focus()
        page.keyboard.press("Enter")
        page.keyboard.press("ArrowRight")
        tell(page, state, details={"0": detail_of()})
        expect(page.locator(".gm-process")).to_have_count(3)
        yield page


def pixels(element: Locator) -> list[list[Color]]:
    """Return what is seen of an element, as rows of pixels."""
    png = base64.b64encode(element.screenshot()).decode()
    return [[(red, green, blue) for red, green, blue in row] for row in element.page.evaluate(PIXELS, png)]


def ground_of(rows: list[list[Color]]) -> Color:
    return Counter(color for row in rows for color in row).most_common(1)[0][0]


def contrast(one: Color, other: Color) -> float:
    """Return the contrast of two colors as WCAG 2 has it, from 1 to 21."""

    def luminance(color: Color) -> float:
        parts = [value / 255 for value in color]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def ink_of(rows: list[list[Color]]) -> Color:
    """Return the color that stands out most from the ground."""
    ground = ground_of(rows)
    return max({color for row in rows for color in row}, key=lambda color: contrast(color, ground))


def contrast_within(element: Locator) -> float:
    """Return the contrast of what is in an element, without its border and what is beyond its round corners."""
    rows = [row[3:-3] for row in pixels(element)[3:-3]]
    return contrast(ink_of(rows), ground_of(rows))


@in_both
def test_what_an_open_row_says_can_be_read(chromium: Browser, scheme: str) -> None:
    with forced_page(chromium, scheme) as page:
        page.get_by_role("button", name="End train.py").click()
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=PICTURES / f"forced-{scheme}.png", full_page=True)
        parts = page.locator(
            ".gm-detail :is(.gm-plot, p > span:not(:empty), .gm-detail-title, li > span, button):visible"
        )
        faint = [part.text_content() for part in parts.all() if contrast_within(part) < TEXT]
        assert parts.count() > 20
        assert faint == []


@in_both
@pytest.mark.parametrize("place", [".gm-detail", ".gm-chosen", '[data-key="3"]'])
def test_a_chart_stands_on_a_line(chromium: Browser, place: str, scheme: str) -> None:
    with forced_page(chromium, scheme) as page:
        rows = pixels(page.locator(place).locator(".gm-chart").first)
        assert max(contrast(color, ground_of(rows)) for row in rows[-2:] for color in row) >= SHAPE


@in_both
@pytest.mark.parametrize("place", [".gm-detail", ".gm-chosen", '[data-key="3"]'])
def test_what_the_pointer_shows_can_be_read(chromium: Browser, place: str, scheme: str) -> None:
    with forced_page(chromium, scheme) as page:
        chart = page.locator(place).locator(".gm-plot").first
        chart.hover()
        assert contrast_within(chart.locator(".gm-readout")) >= TEXT


@in_both
def test_the_focus_can_be_seen_on_a_chosen_row(chromium: Browser, scheme: str) -> None:
    with forced_page(chromium, scheme) as page:
        row = page.locator(".gm-chosen")
        expect(row).to_be_focused()
        rows = pixels(row)
        edge = [contrast(line[len(line) // 2], ground_of(rows)) for line in rows[:5]]
        assert min(edge[:2]) == 1  # the outline is within the row
        assert max(edge) >= SHAPE


@pytest.mark.parametrize("width", [1240, 560])
def test_the_buttons_of_processes_end_where_their_list_does(chromium: Browser, width: int) -> None:
    with forced_page(chromium, width=width) as page:
        ends = page.eval_on_selector_all(
            ".gm-detail-processes ul, .gm-end:not([hidden])",
            "all => all.map(one => Math.round(one.getBoundingClientRect().right))",
        )
        assert len(set(ends)) == 1


def test_a_button_that_does_nothing_is_gray(chromium: Browser) -> None:
    with forced_page(chromium) as page:
        free = page.get_by_role("button", name="Free what can be freed")
        end = page.get_by_role("button", name="End train.py")
        before = ink_of(pixels(end))
        page.evaluate("lose()")
        expect(free).to_be_disabled()
        assert ink_of(pixels(end)) == ink_of(pixels(free)) != before


def test_a_slowdown_stands_out(chromium: Browser) -> None:
    with forced_page(chromium) as page:
        slow = page.locator(".gm-detail-slow")
        assert slow.evaluate("slow => getComputedStyle(slow).fontWeight") == "600"


def test_the_bars_and_what_is_chosen_can_be_seen(chromium: Browser) -> None:
    with panel_page(chromium, state_of("4xA100-80GB", busy), theme="light", forced_colors="active") as page:
        page.locator(".gm-row").first.click()
        color = "(one, name) => getComputedStyle(one)[name]"
        ground = page.locator(".gm-panel").evaluate(color, "backgroundColor")
        bar = page.locator('[data-key="3"] .gm-bar')
        used = bar.locator(".gm-others").evaluate(color, "backgroundColor")
        rows = page.eval_on_selector_all(
            ".gm-row",
            "rows => rows.map(row => [getComputedStyle(row).backgroundColor, getComputedStyle(row, '::before').borderLeftStyle])",
        )
    assert used != ground
    assert rows[0] not in rows[1:]
    assert len({tuple(row) for row in rows[1:]}) == 1
