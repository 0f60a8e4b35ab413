"""The panel's layout at every width, with narrow and wide fonts: a page with the front end's part alone."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.browser.standalone import busy, detail_of, fill, open_rows, row_of, state_of, tell

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.standalone import BarePages

FONTS = [
    "sans-serif",
    "monospace; letter-spacing: 1px",
    *(
        pytest.param(font, marks=pytest.mark.nightly)
        for font in ("serif", "monospace", "sans-serif; letter-spacing: 1px")
    ),
]
in_all_fonts = pytest.mark.parametrize("font", FONTS)
WIDTHS = [*range(240, 600, 20), *range(600, 1241, 40)]
MIG = "1xA100-80GB(1g.10gb,1g.10gb,3g.40gb)+1xA100-80GB"
# Returns what is wrong: beyond the panel's edge, cut off, without a title that has all of it, over its neighbor.
WRONG = """async width => {
    box.style.width = `${width}px`;
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    const panel = box.querySelector('.gm-panel');
    const edge = panel.getBoundingClientRect();
    const isCut = one => one.scrollWidth > one.clientWidth + 1;
    const isSeen = one => one.checkVisibility({visibilityProperty: true}) && !one.closest('.gm-headings') && !one.closest('svg') &&
        getComputedStyle(one).clipPath === 'none';
    const all = [...panel.querySelectorAll('*')].filter(isSeen);
    const wrong = all.filter(one => one.getBoundingClientRect().right > edge.right + 1);
    wrong.push(...all.filter(one => one.getBoundingClientRect().left < edge.left - 1));
    const whole = '.gm-detail-size, .gm-figure, .gm-process-facts, .gm-box, .gm-badge, .gm-label, .gm-memory, .gm-size, .gm-util, .gm-percent, .gm-heat, button, code';
    wrong.push(...all.filter(one => one.matches(whole) && isCut(one)));
    for (const one of all.filter(one => one.matches('.gm-name, .gm-detail-name, .gm-users span') && isCut(one))) {
        const title = one.closest('[title]')?.title ?? '';
        if (getComputedStyle(one).textOverflow !== 'ellipsis' || !title.includes(one.textContent)) wrong.push(one);
    }
    for (const row of panel.querySelectorAll('.gm-row')) {
        const cells = [...row.children].filter(one => isSeen(one) && one.textContent);
        const boxes = cells.map(one => one.getBoundingClientRect());
        boxes.forEach((one, index) => boxes.forEach(other => {
            if (one.left < other.left && one.right > other.left + 1 &&
                one.top < other.bottom - 2 && other.top < one.bottom - 2) wrong.push(cells[index]);
        }));
    }
    if (panel.scrollWidth > panel.clientWidth) wrong.push(panel);
    return [...new Set(wrong.map(one => one.className || one.tagName))];
}"""
# Returns what can't be seen, and not be scrolled to either.
CUT = """async width => {
    document.querySelector('main').style.width = `${width}px`;
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    const [panel, rows] = ['.gm-panel', '.gm-rows'].map(one => box.querySelector(one));
    const end = one => one.getBoundingClientRect().right;
    const isSeen = one => one.checkVisibility({visibilityProperty: true}) && !one.closest('svg') && getComputedStyle(one).clipPath === 'none';
    const wide = [...panel.querySelectorAll('*')].filter(one => isSeen(one) && end(one) > end(panel) + 1);
    rows.scrollLeft = rows.scrollWidth;
    const wrong = wide.filter(one => !rows.contains(one) || end(one) > end(panel) + 1);
    rows.scrollLeft = 0;
    if (panel.scrollWidth > panel.clientWidth) wrong.push(panel);
    if (rows.scrollWidth > rows.clientWidth && getComputedStyle(rows).overflowX !== 'auto') wrong.push(rows);
    const whole = '.gm-row :is(.gm-badge, .gm-memory, .gm-size, .gm-util, .gm-percent), button, code';
    wrong.push(...[...panel.querySelectorAll(whole)].filter(one => isSeen(one) && one.scrollWidth > one.clientWidth + 1));
    return [...new Set(wrong.map(one => one.className || one.tagName))];
}"""
# Returns the texts of a row's cells that can be seen whole, and of those that are cut off, what is left of them.
SEEN = """([selector, width]) => {
    box.style.width = `${width}px`;
    return new Promise(done => requestAnimationFrame(() => setTimeout(() => done([...box.querySelectorAll(selector)].map(one => {
        const range = document.createRange();
        const text = one.firstChild;
        const pen = document.createElement('canvas').getContext('2d');
        pen.font = getComputedStyle(one).font;
        const dots = one.scrollWidth > one.clientWidth ? pen.measureText('…').width : 0;
        const edge = one.getBoundingClientRect().right;
        for (let end = text.length; end > 0; end--) {
            range.setStart(text, 0);
            range.setEnd(text, end);
            if (range.getBoundingClientRect().right <= edge - dots + 1) return text.data.slice(0, end);
        }
        return '';
    })))));
}"""


def wrong_at(page: Page, script: str = WRONG, widths: list[int] = WIDTHS) -> dict[str, list[str]]:
    """Return what is wrong, by the width at which it is."""
    found: dict[str, list[str]] = page.evaluate(
        """async ([script, widths]) => {
            const wrongAt = eval(script), all = {};
            for (const width of widths) {
                const found = await wrongAt(width);
                if (found.length) all[width] = found;
            }
            return all;
        }""",
        [script, widths],
    )
    return found


@in_all_fonts
@pytest.mark.parametrize("profile", ["4xA100-80GB", "12xRTX-4090", MIG])
def test_nothing_overflows_and_devices_can_be_told_apart(bare: BarePages, profile: str, font: str) -> None:
    page = bare(state_of(profile, busy), font=font)
    page.locator(".gm-row:not(.gm-unavailable)").nth(1).click()
    assert wrong_at(page) == {}
    rows = ".gm-instance" if profile == MIG else ".gm-row:not(.gm-problem)"
    for width in WIDTHS[::3]:
        names = page.evaluate(SEEN, [f"{rows} .gm-name", width])
        assert min(map(len, names)) >= 8, (width, names)
        assert profile != MIG or len(set(names)) == 3, (width, names)


@in_all_fonts
@pytest.mark.parametrize(
    "profile", ["4xA100-80GB", MIG, pytest.param("20xA100-80GB", marks=pytest.mark.nightly)]
)
def test_nothing_overflows_where_rows_are_open(bare: BarePages, profile: str, font: str) -> None:
    state = fill(state_of(profile, busy))
    page = bare(state, font=font)
    open_rows(page, state, *[row["key"] for row in state["rows"][:2]])
    page.get_by_role("button", name="End train.py").first.click()
    assert wrong_at(page, widths=WIDTHS[2:]) == {}


@in_all_fonts
def test_nothing_overflows_where_gpus_are_waited_for(bare: BarePages, font: str) -> None:
    state = state_of("4xA100-80GB", busy)
    page = bare(state, font=font)
    page.locator(".gm-row").nth(3).click()
    begin = page.get_by_role("button", name="Wait for it")
    expect(begin).to_be_visible()
    assert wrong_at(page) == {}
    begin.click()
    name = "a-notebook-with-a-name-that-is-longer-than-most-others.ipynb"
    text = f"Waiting for GPU 3, 2 min: claimed by a-rather-long-name: {name}, since 14:02. Next look in 10 s."
    tell(page, state, waiting=text)
    expect(begin).to_be_hidden()
    assert wrong_at(page) == {}


@in_all_fonts
def test_long_texts_are_not_cut_off_at_any_width(bare: BarePages, font: str) -> None:
    """From half of a window of 280 pixels on: rows that are wider than it are scrolled."""
    state = state_of("4xA100-80GB", busy)
    who = "a-rather-long-name: a-notebook-with-a-name-that-is-longer-than-most-others.ipynb"
    note = (
        "CUDA_VISIBLE_DEVICES=GPU-8f3a1234-1234-1234-1234-123456789012,9 stops at 9: no GPU has that number."
    )
    state["header"] |= {
        "host": "gpu-node-0123.cluster.some-university.example.org",
        "simulated": "8xA100-80GB+4xRTX-4090+2xH100-80GB",
        "allotted": "allotted by Slurm job 12345678: GPUs 0, 1, 2, 3",
        "notes": [note],
    }
    figures = {"used": 79.9, "shares": [0, 999, 999], "utilization": 100, "temperature": 100, "power": 1000}
    name = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"
    for row in state["rows"]:
        if row["usage"] != "problem":
            row |= {"users": [who] * 5, "usage": "busy", "is_held": True, "name": name, **figures}
    page = bare(state, font=font)
    expect(page.locator(".gm-host")).to_contain_text("allotted by Slurm job 12345678: GPUs 0, 1, 2, 3")
    for key in "301":
        page.locator(f'.gm-row[data-key="{key}"]').click()
    page.get_by_role("button", name="options").click()
    open_rows(page, state, "0")
    assert wrong_at(page, CUT, [*range(140, 280, 10), *WIDTHS[2:]]) == {}


def test_this_kernel_is_marked_among_the_users_whatever_it_is_called(bare: BarePages) -> None:
    state = state_of("2xA100-80GB")
    users = [["this kernel", "a.py", "1 GiB", "", False], ["kernel", "b.ipynb", "1 GiB", "", True]]
    row_of(state, "1").update({"users": users, "usage": "busy"})
    page = bare(state)
    expect(page.locator(".gm-users > span")).to_have_count(3)
    expect(page.locator(".gm-users .gm-own")).to_have_text("kernel: b.ipynb, 1 GiB")


def test_terabytes_have_their_own_unit(bare: BarePages) -> None:
    state = state_of("2xA100-80GB")
    row_of(state, "1").update({"total": "16.0 TiB", "total_gib": 16384.0})
    page = bare(state)
    expect(page.locator('.gm-row[data-key="1"] .gm-size')).to_have_text("0.5 GiB / 16.0 TiB")
    page.locator('.gm-row[data-key="1"] .gm-chevron').click()
    tell(page, state, details={"1": detail_of(memory=[0, 0, 1000])})
    figure = page.locator(".gm-detail-memory")
    expect(figure.locator(".gm-detail-value")).to_have_text("0.5 GiB / 16.0 TiB")
    plot = figure.locator(".gm-plot")
    plot.hover(position={"x": plot.bounding_box()["width"] - 1, "y": 30})
    assert figure.locator(".gm-readout").inner_text() == "16.0 TiB, 0 s ago"
    assert wrong_at(page) == {}


def test_an_open_row_changes_no_column_and_stays_below_its_row(bare: BarePages) -> None:
    state, larger = state_of("2xA100-80GB"), state_of("3xA100-80GB")
    edges = "cells => cells.map(cell => cell.getBoundingClientRect().left)"
    page = bare(state)
    before = page.eval_on_selector_all(".gm-row > *", edges)
    page.locator('.gm-row[data-key="1"] .gm-chevron').click()
    tell(page, state, details={"1": detail_of()})
    assert page.eval_on_selector_all(".gm-row > *", edges) == before
    tell(page, larger, details={"1": detail_of()})  # a GPU is added
    keys = page.eval_on_selector_all(
        ".gm-row, .gm-detail", "all => all.map(one => one.className.split(' ')[0] + one.dataset.key)"
    )
    assert keys == ["gm-row0", "gm-row1", "gm-detail1", "gm-row2"]
    assert page.evaluate("sent.findLast(one => one.type === 'look')")["open"] == ["1"]


def test_charts_fill_from_the_left_have_gaps_and_show_values(bare: BarePages) -> None:
    state = state_of("2xA100-80GB")
    state["history"]["1"] = [10, 10, None, 90, 50]
    memory = [0, None, 250, 500, 1000]
    page = bare(state, theme="light")
    row = page.locator('.gm-row[data-key="1"]')
    assert row.locator(".gm-chart-line").get_attribute("d").startswith("M0 ")
    row.locator(".gm-plot").hover(position={"x": 1.9, "y": 5})  # 96 pixels for 180 seconds
    assert page.locator(".gm-readout").inner_text() == "90 %, 1 s ago"
    page.mouse.move(0, 0)
    expect(page.locator(".gm-readout")).to_have_count(0)
    row.locator(".gm-chevron").click()
    tell(page, state, details={"1": detail_of(memory=memory)})
    figure = page.locator(".gm-detail-memory")
    lines = page.locator(".gm-figure .gm-chart-line").evaluate_all(
        "all => all.map(one => one.getAttribute('d'))"
    )
    assert [line.count("M") for line in lines] == [2, 2]
    assert lines[1].split("L")[-1].split()[1].startswith("1")  # full is at the top
    plot = figure.locator(".gm-plot")
    width = plot.bounding_box()["width"]
    plot.hover(position={"x": 3.5 / 180 * width, "y": 30})
    assert figure.locator(".gm-readout").inner_text() == "40.0 GiB, 1 s ago"
    tell(page, {**change(state, "1", 70), "details": {"1": detail_of(memory=[*memory, 19])}})
    plot.hover(position={"x": 5.5 / 180 * width, "y": 30})
    assert figure.locator(".gm-readout").inner_text() == "1.5 GiB, 0 s ago"


def test_who_uses_a_gpu_is_seen_and_bars_are_equally_long_at_common_widths(bare: BarePages) -> None:
    page = bare(state_of("4xA100-80GB", busy), font="sans-serif")
    for width in (300, 400, *range(560, 761, 40), 1100):
        seen = page.evaluate(SEEN, ['[data-key="3"] .gm-who', width])
        assert width not in range(560, 761) or len(seen[0]) >= 8, (width, seen)
        widths = page.eval_on_selector_all(
            ".gm-row:not(.gm-problem) .gm-bar", "bars => bars.map(bar => bar.clientWidth)"
        )
        assert len(set(widths)) == 1, width


@pytest.mark.parametrize("count", [8, 16, 17, 64])
def test_rows_are_28_pixels_and_lower_above_sixteen(bare: BarePages, count: int) -> None:
    page = bare(state_of(f"{count}xA100-80GB"), theme="light")
    heights = page.eval_on_selector_all(".gm-row", "rows => rows.map(row => row.offsetHeight)")
    assert set(heights) == {28 if count <= 16 else 24}
    scrolls = page.locator(".gm-rows").evaluate("grid => grid.scrollHeight > grid.clientHeight")
    assert scrolls is (count == 64)


def test_a_panel_in_a_box_of_widgets_has_the_room_that_is_left(bare: BarePages) -> None:
    page = bare(state_of("4xA100-80GB"))
    page.evaluate(
        """() => {
            box.parentNode.style.cssText = 'display: flex; width: 900px; overflow: auto';
            box.before(Object.assign(document.createElement('button'), {textContent: 'another widget'}));
        }"""
    )
    width = page.locator(".gm-panel").evaluate("panel => panel.clientWidth")
    left = page.evaluate("900 - box.previousSibling.offsetWidth")
    assert left - 10 < width <= left


def test_the_dark_theme_is_dark(bare: BarePages) -> None:
    page = bare(state_of("4xA100-80GB"), theme="dark")
    color = "(panel, name) => getComputedStyle(panel)[name].match(/[\\d.]+/g).slice(0, 3).map(Number)"
    assert max(page.locator(".gm-panel").evaluate(color, "backgroundColor")) < 60
    assert min(page.locator(".gm-panel").evaluate(color, "color")) > 180


def change(state: dict[str, Any], key: str, utilization: int) -> dict[str, Any]:
    """Return the state after a reading that has found another utilization of one device."""
    later = copy.deepcopy(state)
    del later["history"]
    later["second"] += 1
    row_of(later, key)["utilization"] = utilization
    return later


def test_a_reading_writes_nothing_in_rows_that_it_has_not_changed(bare: BarePages) -> None:
    state = fill(state_of("8xA100-80GB"), 0)
    page = bare(state, theme="light")
    page.evaluate(
        """async () => {
            // What is not in sight is not written; the page learns of it after it has painted.
            for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
            window.written = new Set();
            new MutationObserver(all => all.forEach(one => {
                const node = one.target.nodeType === 1 ? one.target : one.target.parentElement;
                written.add(node.closest('.gm-row').dataset.key);
            })).observe(document.querySelector('.gm-rows'),
                        {subtree: true, childList: true, characterData: true, attributes: true});
        }"""
    )
    tell(page, change(state, "3", 55))
    assert page.evaluate("[...written]") == ["3"]


def test_a_row_that_was_out_of_sight_has_the_latest_figures_when_it_is_seen(bare: BarePages) -> None:
    state = state_of("64xA100-80GB")
    page = bare(state, theme="light")
    page.wait_for_timeout(200)  # until it is known which rows are in sight
    tell(page, change(state, "63", 55))
    row = page.locator('[data-key="63"]')
    assert row.locator(".gm-percent").text_content() != "55 %"
    row.scroll_into_view_if_needed()
    expect(row.locator(".gm-percent")).to_have_text("55 %")


def test_code_and_figures_are_in_order_on_a_page_that_is_written_from_right_to_left(bare: BarePages) -> None:
    page = bare(state_of("4xA100-80GB"), theme="light")
    page.evaluate("document.documentElement.dir = 'rtl'")
    page.locator(".gm-row").nth(1).click()
    places = page.locator(".gm-line code").evaluate(
        """code => ['%', 'g', '1'].map(sign => {
            const range = document.createRange();
            const at = code.textContent.indexOf(sign);
            range.setStart(code.firstChild, at);
            range.setEnd(code.firstChild, at + 1);
            return range.getBoundingClientRect().left;
        })"""
    )
    assert places == sorted(places)
    assert wrong_at(page, widths=[700]) == {}


def test_no_gpu_is_one_text_without_headings_and_buttons(bare: BarePages) -> None:
    page = bare(state_of("1xA100-80GB", lambda machine: machine.gpus.clear()))
    assert "has no GPU" in page.locator(".gm-empty").inner_text()
    assert page.locator(".gm-headings, .gm-panel button").locator("visible=true").count() == 0
