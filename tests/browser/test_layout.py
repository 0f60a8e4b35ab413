"""The panel's layout at every width, with narrow and wide fonts: a page with the front end's part alone."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

import gpu_magic
from gpu_magic.testing import simulate
from tests.browser.standalone import detail_of, panel_page, row_of, state_of, tell

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from playwright.sync_api import Browser, Page

    from gpu_magic.testing import Machine

FONTS = [
    "sans-serif",
    "serif",
    "monospace",
    "sans-serif; letter-spacing: 1px",
    "monospace; letter-spacing: 1px",
]
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


def busy(machine: Machine) -> None:
    """Let somebody work on the last GPU, and lose one."""
    machine.gpus[-1].run("train.py --config everything.yaml", "a-rather-long-name", 60 << 30, work=97)
    if len(machine.gpus) > 2:
        machine.gpus[2].lose()


def open_page(browser: Browser, profile: str, font: str) -> AbstractContextManager[Page]:
    return panel_page(browser, state_of(profile, busy), style=f"body {{ font-family: {font} }}")


@pytest.mark.parametrize("font", FONTS)
@pytest.mark.parametrize("profile", ["4xA100-80GB", "12xRTX-4090", MIG])
def test_nothing_overflows_at_any_width(chromium: Browser, profile: str, font: str) -> None:
    with open_page(chromium, profile, font) as page:
        page.locator(".gm-row:not(.gm-unavailable)").nth(1).click()
        wrong = {width: found for width in range(240, 1241, 20) if (found := page.evaluate(WRONG, width))}
    assert wrong == {}


@pytest.mark.parametrize("font", FONTS)
@pytest.mark.parametrize("profile", ["4xA100-80GB", "20xA100-80GB", MIG])
def test_nothing_overflows_where_rows_are_open(chromium: Browser, profile: str, font: str) -> None:
    state = state_of(profile, busy)
    for samples in state["history"].values():
        samples[:] = [50] * 180
    with panel_page(chromium, state, style=f"body {{ font-family: {font} }}") as page:
        keys = [row["key"] for row in state["rows"][:2]]
        for key in keys:
            page.locator(f'.gm-row[data-key="{key}"] .gm-chevron').click()
        tell(page, state, details={key: detail_of() for key in keys})
        page.get_by_role("button", name="End train.py").first.click()
        wrong = {width: found for width in range(280, 1241, 20) if (found := page.evaluate(WRONG, width))}
    assert wrong == {}


@pytest.mark.parametrize("font", FONTS)
def test_nothing_overflows_where_gpus_are_waited_for(chromium: Browser, font: str) -> None:
    with open_page(chromium, "4xA100-80GB", font) as page:
        page.locator(".gm-row").nth(3).click()
        begin = page.get_by_role("button", name="Wait for it")
        expect(begin).to_be_visible()
        wrong = {width: found for width in range(240, 1241, 20) if (found := page.evaluate(WRONG, width))}
        begin.click()
        name = "a-notebook-with-a-name-that-is-longer-than-most-others.ipynb"
        text = f"Waiting for GPU 3, 2 min: claimed by a-rather-long-name: {name}, since 14:02. Next look in 10 s."
        tell(page, state_of("4xA100-80GB", busy), waiting=text)
        expect(begin).to_be_hidden()
        wrong |= {width: found for width in range(240, 1241, 20) if (found := page.evaluate(WRONG, width))}
    assert wrong == {}


@pytest.mark.parametrize("font", FONTS)
def test_long_texts_are_not_cut_off_at_any_width(chromium: Browser, font: str) -> None:
    """From half of a window of 280 pixels on: rows that are wider than it are scrolled."""
    state = state_of("4xA100-80GB", busy)
    who = "a-rather-long-name: a-notebook-with-a-name-that-is-longer-than-most-others.ipynb"
    state["header"] |= {
        "host": "gpu-node-0123.cluster.some-university.example.org",
        "simulated": "8xA100-80GB+4xRTX-4090+2xH100-80GB",
        "allotted": "allotted by Slurm job 12345678: GPUs 0, 1, 2, 3",
        "notes": [
            "CUDA_VISIBLE_DEVICES=GPU-8f3a1234-1234-1234-1234-123456789012,9 stops at 9: no GPU has that number."
        ],
    }
    for row in state["rows"]:
        if row["usage"] != "problem":
            row |= {"users": [who] * 5, "usage": "busy", "is_held": True}
            row["name"] = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"
            row |= {
                "used": 79.9,
                "shares": [0, 999, 999],
                "utilization": 100,
                "temperature": 100,
                "power": 1000,
            }
    with panel_page(chromium, state, style=f"body {{ font-family: {font} }}") as page:
        for key in "301":
            page.locator(f'.gm-row[data-key="{key}"]').click()
        page.get_by_role("button", name="options").click()
        page.locator(".gm-row .gm-chevron").first.click()
        tell(page, state, details={"0": detail_of()})
        wrong = {
            width: found
            for width in (*range(140, 280, 10), *range(280, 1201, 20))
            if (found := page.evaluate(CUT, width))
        }
    assert wrong == {}


def test_who_gave_which_gpus_stands_in_the_header_at_every_width(chromium: Browser) -> None:
    state = state_of("4xA100-80GB")
    state["header"]["allotted"] = text = "allotted by Slurm job 12345678: GPUs 0, 1, 2, 3"
    with panel_page(chromium, state) as page:
        expect(page.locator(".gm-host")).to_contain_text(text)
        wrong = {width: found for width in range(240, 1241, 40) if (found := page.evaluate(WRONG, width))}
    assert wrong == {}


def test_an_open_row_changes_no_column(chromium: Browser) -> None:
    state = state_of("4xA100-80GB", busy)
    edges = "cells => cells.map(cell => cell.getBoundingClientRect().left)"
    with panel_page(chromium, state) as page:
        before = page.eval_on_selector_all(".gm-row > *", edges)
        page.locator('.gm-row[data-key="1"] .gm-chevron').click()
        tell(page, state, details={"1": detail_of()})
        assert page.eval_on_selector_all(".gm-row > *", edges) == before


def test_an_open_row_stays_open_below_its_row_when_a_gpu_is_added(chromium: Browser) -> None:
    state, larger = state_of("2xA100-80GB"), state_of("3xA100-80GB")
    with panel_page(chromium, state) as page:
        page.locator('.gm-row[data-key="1"] .gm-chevron').click()
        tell(page, state, details={"1": detail_of()})
        tell(page, larger, details={"1": detail_of()})
        keys = page.eval_on_selector_all(
            ".gm-row, .gm-detail", "all => all.map(one => one.className.split(' ')[0] + one.dataset.key)"
        )
        asked = page.evaluate("sent.findLast(one => one.type === 'look')")
    assert keys == ["gm-row0", "gm-row1", "gm-detail1", "gm-row2"]
    assert asked["open"] == ["1"]


def test_the_charts_of_a_detail_have_gaps_and_show_values(chromium: Browser) -> None:
    state = state_of("2xA100-80GB")
    state["history"]["1"] = [10, 10, None, 90, 50]
    memory = [0, None, 250, 500, 1000]
    with panel_page(chromium, state, theme="light") as page:
        page.locator('.gm-row[data-key="1"] .gm-chevron').click()
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
        later = {**change(state, "1", 70), "details": {"1": detail_of(memory=[*memory, 19])}}
        tell(page, later)
        lengths = page.evaluate("document.querySelectorAll('.gm-figure .gm-chart-line').length")
        assert lengths == 2
        plot.hover(position={"x": 5.5 / 180 * width, "y": 30})
        assert figure.locator(".gm-readout").inner_text() == "1.5 GiB, 0 s ago"


def test_terabytes_have_their_own_unit(chromium: Browser) -> None:
    state = state_of("2xA100-80GB")
    row_of(state, "1").update({"total": "16.0 TiB", "total_gib": 16384.0})
    with panel_page(chromium, state) as page:
        size = page.locator('.gm-row[data-key="1"] .gm-size')
        expect(size).to_have_text("0.5 GiB / 16.0 TiB")
        page.locator('.gm-row[data-key="1"] .gm-chevron').click()
        tell(page, state, details={"1": detail_of(memory=[0, 0, 1000])})
        figure = page.locator(".gm-detail-memory")
        expect(figure.locator(".gm-detail-value")).to_have_text("0.5 GiB / 16.0 TiB")
        plot = figure.locator(".gm-plot")
        plot.hover(position={"x": plot.bounding_box()["width"] - 1, "y": 30})
        assert figure.locator(".gm-readout").inner_text() == "16.0 TiB, 0 s ago"
        wrong = {width: found for width in range(240, 1241, 20) if (found := page.evaluate(WRONG, width))}
    assert wrong == {}


@pytest.mark.parametrize("font", FONTS)
def test_a_name_keeps_at_least_eight_characters(chromium: Browser, font: str) -> None:
    with open_page(chromium, "4xA100-80GB", font) as page:
        for width in range(240, 1241, 20):
            names = page.evaluate(SEEN, [".gm-row:not(.gm-problem) .gm-name", width])
            assert min(map(len, names)) >= 8, (width, names)


@pytest.mark.parametrize("font", FONTS)
def test_mig_instances_can_be_told_apart_at_every_width(chromium: Browser, font: str) -> None:
    with open_page(chromium, MIG, font) as page:
        for width in range(240, 1241, 20):
            names = page.evaluate(SEEN, [".gm-instance .gm-name", width])
            assert len(set(names)) == 3, (width, names)


def test_who_uses_a_gpu_is_seen_at_the_width_of_a_window_with_the_file_browser(chromium: Browser) -> None:
    with open_page(chromium, "4xA100-80GB", "sans-serif") as page:
        for width in range(560, 761, 20):
            seen = page.evaluate(SEEN, ['[data-key="3"] .gm-who', width])
            assert len(seen[0]) >= 8, (width, seen)


def test_bars_are_equally_long_in_all_rows(chromium: Browser) -> None:
    with open_page(chromium, "8xA100-80GB", "sans-serif") as page:
        for width in (300, 400, 560, 760, 1100):
            page.evaluate(WRONG, width)
            widths = page.eval_on_selector_all(
                ".gm-row:not(.gm-problem) .gm-bar", "bars => bars.map(bar => bar.clientWidth)"
            )
            assert len(set(widths)) == 1, width


@pytest.mark.parametrize("count", [8, 12, 16, 17, 64])
def test_rows_are_28_pixels_and_lower_above_sixteen(chromium: Browser, count: int) -> None:
    with panel_page(chromium, state_of(f"{count}xA100-80GB"), theme="light") as page:
        heights = page.eval_on_selector_all(".gm-row", "rows => rows.map(row => row.offsetHeight)")
        grid = page.locator(".gm-rows")
        scrolls = grid.evaluate("grid => grid.scrollHeight > grid.clientHeight")
    assert set(heights) == {28 if count <= 16 else 24}
    assert scrolls is (count == 64)


def test_a_panel_in_a_box_of_widgets_has_the_room_that_is_left(chromium: Browser) -> None:
    with open_page(chromium, "4xA100-80GB", "sans-serif") as page:
        page.evaluate(
            """() => {
                box.parentNode.style.cssText = 'display: flex; width: 900px; overflow: auto';
                box.before(Object.assign(document.createElement('button'), {textContent: 'another widget'}));
            }"""
        )
        width = page.locator(".gm-panel").evaluate("panel => panel.clientWidth")
        left = page.evaluate("900 - box.previousSibling.offsetWidth")
    assert left - 10 < width <= left


def change(state: dict[str, Any], key: str, utilization: int) -> dict[str, Any]:
    """Return the state after a reading that has found another utilization of one device."""
    later = copy.deepcopy(state)
    del later["history"]
    later["second"] += 1
    row_of(later, key)["utilization"] = utilization
    return later


def test_a_reading_writes_nothing_in_rows_that_it_has_not_changed(chromium: Browser) -> None:
    state = state_of("8xA100-80GB")
    for samples in state["history"].values():
        samples[:] = [0] * 180
    with panel_page(chromium, state, theme="light") as page:
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


def test_a_row_that_was_out_of_sight_has_the_latest_figures_when_it_is_seen(chromium: Browser) -> None:
    state = state_of("64xA100-80GB")
    with panel_page(chromium, state, theme="light") as page:
        page.wait_for_timeout(200)  # until it is known which rows are in sight
        tell(page, change(state, "63", 55))
        row = page.locator('[data-key="63"]')
        row.scroll_into_view_if_needed()
        expect(row.locator(".gm-percent")).to_have_text("55 %")


def test_code_and_figures_are_in_order_on_a_page_that_is_written_from_right_to_left(
    chromium: Browser,
) -> None:
    with panel_page(chromium, state_of("4xA100-80GB"), theme="light") as page:
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
        wrong = page.evaluate(WRONG, 700)
    assert places == sorted(places)
    assert wrong == []


def test_no_gpu_is_one_text_without_headings_and_buttons(chromium: Browser) -> None:
    with panel_page(chromium, state_of("1xA100-80GB", lambda machine: machine.gpus.clear())) as page:
        assert page.locator(".gm-empty").inner_text() == (
            "The NVIDIA driver is there, and it has no GPU. A container has to be given one: docker run --gpus all."
        )
        assert page.locator(".gm-headings, .gm-panel button").locator("visible=true").count() == 0


@pytest.mark.parametrize(
    ("profile", "mask", "text"),
    [
        ("8xA100-80GB", None, "7 of 8 free"),
        ("8xA100-80GB", "2,3", "2 of 2 free, 6 not given"),
        ("1xA100-80GB(1g.10gb,1g.10gb)+1xA100-80GB", None, "2 of 3 free"),
    ],
)
def test_what_can_be_chosen_is_counted(chromium: Browser, profile: str, mask: str | None, text: str) -> None:
    def use_last(machine: Machine) -> None:
        machine.gpus[-1].run("train.py", "maria", 60 << 30, work=97)

    with panel_page(chromium, state_of(profile, use_last, mask=mask)) as page:
        assert page.locator(".gm-host").inner_text().split(" · ")[0] == text


def test_the_chart_fills_from_the_left_and_shows_a_value_and_its_time(chromium: Browser) -> None:
    state = state_of("1xA100-80GB")
    state["history"]["0"] = [10, 10, 90, 50]
    with panel_page(chromium, state, theme="light") as page:
        assert page.locator(".gm-chart-line").get_attribute("d").startswith("M0 ")
        plot = page.locator(".gm-row .gm-plot")
        plot.hover(position={"x": 1.3, "y": 5})  # 96 pixels for 180 seconds
        assert page.locator(".gm-readout").inner_text() == "90 %, 1 s ago"
        page.mouse.move(0, 0)
        assert page.locator(".gm-readout").count() == 0


def test_what_is_applied_stays_visible_beside_what_is_pending(chromium: Browser) -> None:
    with panel_page(chromium, state_of("4xA100-80GB", mask="1,2,3"), theme="light") as page:
        for key in (1, 3, 3):
            page.locator(f'[data-key="{key}"]').click()
        badges = page.eval_on_selector_all(
            ".gm-row .gm-badge", "badges => badges.map(badge => badge.textContent)"
        )
        orders = page.eval_on_selector_all(".gm-row .gm-box", "boxes => boxes.map(box => box.dataset.order)")
    assert badges == ["not given", "cuda:0 dropped", "cuda:1 → cuda:0", "cuda:2 → cuda:1"]
    assert orders == ["", "", "0", "1"]


@pytest.mark.parametrize("width", [420, 760, 1100])
def test_the_table_of_gpus_needs_no_scrolling_sideways(chromium: Browser, width: int) -> None:
    with simulate("8xA100-80GB", seed=7) as machine:
        machine.populate()
        table = gpu_magic.gpus()._repr_html_()
    page = chromium.new_page(viewport={"width": width, "height": 900})
    page.set_content(f"<!doctype html>{table}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    block = page.locator(".gpu-magic")
    assert block.evaluate("one => one.scrollWidth <= one.clientWidth")
    for text in ("In this process", "Used by", "maria: train.py, 12.7 GiB, for 2 h"):
        expect(block.get_by_text(text)).to_be_visible()
    page.close()
