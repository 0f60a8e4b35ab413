"""The panel in forced colors (Windows' contrast themes), where the system's own take the place of all others.

What a page says of its colors is not what is seen then, so the tests look at pictures of it.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.browser.panel import PICTURES
from tests.browser.standalone import busy, detail_of, fill, state_of, tell

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from tests.browser.standalone import BarePages

Color = list[int]
TEXT = 4.5  # the least contrast that text has to have (WCAG 1.4.3)
SHAPE = 3.0  # and what is no text (WCAG 1.4.11)
# Returns the colors of a picture: the most frequent one, all, those on a line down its middle, and those at its bottom.
# `inset` pixels at each edge are left out.
COLORS = """async ([png, inset]) => {
    const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${png}`)).blob());
    const [width, height] = [image.width - 2 * inset, image.height - 2 * inset];
    const pen = new OffscreenCanvas(image.width, image.height).getContext('2d');
    pen.drawImage(image, 0, 0);
    const {data} = pen.getImageData(inset, inset, width, height);
    const at = (x, y) => [...data.slice(4 * (y * width + x), 4 * (y * width + x) + 3)];
    const counts = new Map(), bottom = [];
    for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) {
        const color = at(x, y);
        counts.set(String(color), (counts.get(String(color)) ?? 0) + 1);
        if (y >= height - 2) bottom.push(color);
    }
    const all = [...counts].sort((one, other) => other[1] - one[1]).map(([color]) => color.split(',').map(Number));
    const middle = Array.from({length: height}, (_, y) => at(width >> 1, y));
    return {ground: all[0], all, middle, bottom};
}"""


def forced_page(bare: BarePages, theme: str = "light", width: int = 1240) -> Page:
    """Open a panel in forced colors; the first GPU is open, chosen with the keyboard, and slowed down."""
    state = fill(state_of("4xA100-80GB", busy))
    page = bare(state, theme=theme, forced_colors="active", width=width)
    page.locator(".gm-row").first.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")
    tell(page, state, details={"0": detail_of()})
    expect(page.locator(".gm-process")).to_have_count(3)
    return page


def colors_of(element: Locator, inset: int = 0) -> dict[str, Any]:
    """Return what is seen of an element; see COLORS."""
    png = base64.b64encode(element.screenshot()).decode()
    found: dict[str, Any] = element.page.evaluate(COLORS, [png, inset])
    return found


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


def ink_of(colors: dict[str, Any]) -> Color:
    """Return the color that stands out most from the ground."""
    ink: Color = max(colors["all"], key=lambda color: contrast(color, colors["ground"]))
    return ink


def contrast_within(element: Locator) -> float:
    """Return the contrast of what is in an element, without its border and what is beyond its round corners."""
    colors = colors_of(element, 3)
    return contrast(ink_of(colors), colors["ground"])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_is_open_chosen_and_pointed_at_can_be_seen(bare: BarePages, theme: str) -> None:
    page = forced_page(bare, theme)
    # The focus on a chosen row: its outline is within the row.
    row = page.locator(".gm-chosen")
    expect(row).to_be_focused()
    colors = colors_of(row)
    edge = [contrast(color, colors["ground"]) for color in colors["middle"][:5]]
    assert min(edge[:2]) == 1
    assert max(edge) >= SHAPE
    for place in (".gm-detail", ".gm-chosen", '[data-key="3"]'):
        # A chart stands on a line, and what the pointer shows in it can be read.
        colors = colors_of(page.locator(place).locator(".gm-chart").first)
        assert max(contrast(color, colors["ground"]) for color in colors["bottom"]) >= SHAPE, place
        chart = page.locator(place).locator(".gm-plot").first
        chart.hover()
        assert contrast_within(chart.locator(".gm-readout")) >= TEXT, place
    page.get_by_role("button", name="End train.py").click()
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"forced-{theme}.png", full_page=True)
    parts = page.locator(
        ".gm-detail :is(.gm-plot, p > span:not(:empty), .gm-detail-title, li > span, button):visible"
    )
    assert parts.count() > 20
    assert [part.text_content() for part in parts.all() if contrast_within(part) < TEXT] == []


@pytest.mark.parametrize("width", [1240, 560])
def test_the_buttons_of_processes_end_where_their_list_does(bare: BarePages, width: int) -> None:
    ends = forced_page(bare, width=width).eval_on_selector_all(
        ".gm-detail-processes ul, .gm-end:not([hidden])",
        "all => all.map(one => Math.round(one.getBoundingClientRect().right))",
    )
    assert len(set(ends)) == 1


def test_a_button_that_does_nothing_is_gray_and_a_slowdown_stands_out(bare: BarePages) -> None:
    page = forced_page(bare)
    weight = page.locator(".gm-detail-slow").evaluate("slow => getComputedStyle(slow).fontWeight")
    assert weight == "600"
    free = page.get_by_role("button", name="Free what can be freed")
    end = page.get_by_role("button", name="End train.py")
    before = ink_of(colors_of(end))
    page.evaluate("lose()")
    expect(free).to_be_disabled()
    assert ink_of(colors_of(end)) == ink_of(colors_of(free)) != before


def test_the_bars_and_what_is_chosen_can_be_seen(bare: BarePages) -> None:
    page = bare(state_of("4xA100-80GB", busy), theme="light", forced_colors="active")
    page.locator(".gm-row").first.click()
    color = "(one, name) => getComputedStyle(one)[name]"
    ground = page.locator(".gm-panel").evaluate(color, "backgroundColor")
    used = page.locator('[data-key="3"] .gm-bar .gm-others').evaluate(color, "backgroundColor")
    rows = page.eval_on_selector_all(
        ".gm-row",
        "rows => rows.map(row => [getComputedStyle(row).backgroundColor, getComputedStyle(row, '::before').borderLeftStyle])",
    )
    assert used != ground
    assert rows[0] not in rows[1:]
    assert len({tuple(row) for row in rows[1:]}) == 1
