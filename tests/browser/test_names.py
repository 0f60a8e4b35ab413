"""Long names, and names that are not in Latin letters, in the panel and in outputs: where their letters are.

What is asked does not depend on fonts: a page without Arabic letters has boxes in their places.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

import gpu_magic
from gpu_magic.testing import simulate
from tests.browser.standalone import THEMES, detail_of, state_of, tell

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from gpu_magic.testing import Machine
    from tests.browser.standalone import BarePages

HOUR = 3700  # seconds, and some
LONG = "maximiliane.von-und-zu-hohenlohe-waldenburg"
WIDTHS = [280, 420, 560, 720, 900, 1240]
# What each part of the lines of users is, in a panel of some width.
PARTS = """async width => {
    box.style.width = `${width}px`;
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    const text = one => {
        const range = document.createRange();
        range.selectNodeContents(one);
        return range.getBoundingClientRect();
    };
    return [...box.querySelectorAll('.gm-row .gm-users > span:not(.gm-more, .gm-surplus)')].map(line =>
        Object.fromEntries([...line.querySelectorAll('i:not(.gm-rest)')].map(part => [part.className, {
            left: part.getBoundingClientRect().left,
            isCut: part.scrollWidth > part.clientWidth,
            isInLine: text(part).bottom > line.getBoundingClientRect().top + 4,
            isWhole: text(part).right <= line.parentNode.getBoundingClientRect().right + 1,
        }])));
}"""
# Returns the texts in which a Latin letter or a digit is left of the one before it, in the same line.
TURNED = """selector => [...document.querySelectorAll(selector)].filter(one => {
    const range = document.createRange();
    const nodes = document.createTreeWalker(one, NodeFilter.SHOW_TEXT);
    let last = {left: 0, bottom: 0};
    while (nodes.nextNode()) {
        for (let at = 0; at < nodes.currentNode.length; at++) {
            if (!/[A-Za-z0-9]/.test(nodes.currentNode.data[at])) continue;
            range.setStart(nodes.currentNode, at);
            range.setEnd(nodes.currentNode, at + 1);
            const here = range.getBoundingClientRect();
            if (here.top < last.bottom && here.left < last.left) return true;
            last = here;
        }
    }
    return false;
}).map(one => one.textContent)"""
# Returns the texts that match a pattern and are on several lines.
BROKEN = r"""([selector, pattern]) => [...document.querySelectorAll(selector)].flatMap(one => {
    const range = document.createRange();
    const isBroken = ({0: found, index}) => {
        const nodes = document.createTreeWalker(one, NodeFilter.SHOW_TEXT);
        for (let begin = 0; nodes.nextNode(); begin += nodes.currentNode.length) {
            const [from, to] = [index - begin, index + found.length - begin];
            if (from >= 0 && from < nodes.currentNode.length) range.setStart(nodes.currentNode, from);
            if (to > 0 && to <= nodes.currentNode.length) range.setEnd(nodes.currentNode, to);
        }
        const tops = [...range.getClientRects()].map(line => line.bottom);
        return Math.max(...tops) - Math.min(...tops) > 4;
    };
    return [...one.textContent.matchAll(RegExp(pattern, 'g'))].filter(isBroken).map(([found]) => found);
})"""
# A figure with its unit, and a time with its "for".
FIGURES = r"for\s\d+\s\w+|[\d.]+\s[KMGT]iB"
# A word that is not long, without a hyphen or a slash, which can end a line.
WORDS = r"(?<!\S)[!-,.0-~]{1,32}(?!\S)"


def broken(page: Page, selector: str, pattern: str) -> list[str]:
    found: list[str] = page.evaluate(BROKEN, [selector, pattern])
    return found


def people(machine: Machine) -> None:
    """Let people of all kinds of names work, and lose a GPU."""
    gpus = machine.gpus
    gpus[0].run("train.py", "maria", 21 << 30, age=HOUR)
    gpus[1].run("تدريب", "عبدالرحمن_محمد", 13_600_000_000, age=HOUR)
    gpus[1].run("train.py", "נועה 2", 21 << 30, age=25 * HOUR)
    gpus[2].run("训练脚本最终版本", "王小明的长用户名测试账户", 21 << 30, age=HOUR)
    gpus[2].run("ipykernel", "me", 5 << 30, age=HOUR, is_same_user=True, notebook="מחברת 2.ipynb")
    gpus[3].run("a-program-with-a-name-that-is-also-long", LONG, 21 << 30, age=90 * HOUR)
    gpus[3].run("train", "x" * 40, 21 << 30, age=90 * HOUR)
    gpus[4].lose()


@pytest.fixture
def page(bare: BarePages) -> Page:
    return bare(state_of("5xA100-80GB", people))


@pytest.mark.parametrize("font", ["sans-serif", "monospace; letter-spacing: 1px"])
def test_the_memory_is_whole_or_left_out_and_the_time_is_whole(bare: BarePages, font: str) -> None:
    page = bare(state_of("5xA100-80GB", people), font=font)
    shown = set()
    for width in WIDTHS:
        lines = [line for line in page.evaluate(PARTS, width) if "gm-held" in line]
        assert len(lines) == 7
        for line in lines:
            held = line["gm-held"]
            shown.add(held["isInLine"])
            assert held["isWhole"] or not held["isInLine"], (width, line)
            assert line["gm-since"]["isWhole"], (width, line)
            assert not line["gm-since"]["isCut"], (width, line)
            # Names are cut off only if that is not enough.
            assert not (held["isInLine"] and (line["gm-who"]["isCut"] or line["gm-what"]["isCut"])), (
                width,
                line,
            )
    assert shown == {True, False}


def test_names_from_right_to_left_turn_nothing_around(page: Page) -> None:
    for width in WIDTHS:
        for line in page.evaluate(PARTS, width):
            lefts = [part["left"] for part in line.values() if part["isInLine"]]
            assert lefts == sorted(lefts), (width, line)
    assert page.evaluate(TURNED, ".gm-users i") == []
    for row in (1, 2):
        page.locator(".gm-row").nth(row).click()
    expect(page.locator(".gm-said")).to_contain_text("is in use")
    assert page.evaluate(TURNED, ".gm-said span") == []


def test_figures_in_a_notice_stay_with_their_units(page: Page) -> None:
    for row in range(4):
        page.locator(".gm-row").nth(row).click()
    for width in range(240, 900, 20):
        page.evaluate("width => { box.style.width = `${width}px`; }", width)
        assert broken(page, ".gm-said span", FIGURES) == [], width


def test_what_is_wrong_with_a_gpu_is_read_whole(page: Page) -> None:
    for width in WIDTHS:
        page.evaluate(PARTS, width)
        assert page.locator(".gm-problem .gm-who").evaluate("one => one.scrollWidth <= one.clientWidth"), (
            width
        )


def test_a_row_of_several_users_begins_with_the_first(page: Page) -> None:
    for width in WIDTHS[1:]:
        page.evaluate(PARTS, width)
        tops = "row => ['.gm-label', '.gm-name', '.gm-users span'].map(one => row.querySelector(one).getBoundingClientRect().top)"
        tops = page.locator(".gm-row").nth(1).evaluate(tops)
        assert max(tops) - min(tops) <= 1, (width, tops)


@pytest.mark.parametrize("width", [400, 1240])
def test_the_focus_on_a_button_of_a_process_is_seen_whole(bare: BarePages, width: int) -> None:
    state = state_of("2xA100-80GB")
    page = bare(state, width=width)
    page.locator(".gm-chevron").first.click()
    tell(page, state, details={"0": detail_of()})
    end = page.get_by_role("button", name="End train.py")
    end.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")  # at the keyboard, the focus is shown
    expect(end).to_be_focused()
    beyond = end.evaluate(
        """one => {
            const {outlineStyle, outlineOffset, outlineWidth} = getComputedStyle(one);
            const ring = outlineStyle === 'none' ? Infinity : parseFloat(outlineOffset) + parseFloat(outlineWidth);
            return one.getBoundingClientRect().right + ring - one.closest('ul').getBoundingClientRect().right;
        }"""
    )
    assert beyond <= 9  # the padding of the button, whose text ends where the list does


def outputs() -> str:
    """Return the outputs of `%gpus`, `%gpu_ps` and `%gpu_doctor`."""
    with simulate("5xA100-80GB", clock=0) as machine:
        people(machine)
        machine.gpus[0].run(LONG, "me", 5 << 30, pid=os.getpid(), age=HOUR, is_same_user=True)
        shown = (gpu_magic.gpus(), gpu_magic.my_processes(), gpu_magic.doctor())
        return "".join(one._repr_html_() for one in shown)


def output_page(chromium: Browser, theme: str = "light") -> Page:
    """Open a page with these outputs in a theme of JupyterLab."""
    colors = (THEMES / f"theme-{theme}-extension/index.css").read_text()
    page = chromium.new_page()
    page.set_content(
        f"<!doctype html><html lang=en><title>GPUs</title><style>{colors} body {{"
        " background: var(--jp-layout-color0); color: var(--jp-content-font-color1) }"
        f"</style><main>{outputs()}</main>"
    )
    return page


def test_outputs_need_no_scrolling_sideways_and_break_at_words(chromium: Browser) -> None:
    page = output_page(chromium)
    for width in (300, 420, 560, 720, 900, 1280, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        blocks = page.locator(".gpu-magic").evaluate_all(
            "all => all.map(one => one.scrollWidth <= one.clientWidth)"
        )
        assert all(blocks), width
        # The first depends on whether an earlier test has left a shell.
        for text in (
            re.compile("In this (process|kernel)$"),
            "Used by",
            "maria: train.py, 21.0 GiB, for 1 h",
        ):
            expect(page.get_by_text(text)).to_be_visible()
        assert broken(page, ".gm-by div, .gm-by:not(:has(div))", FIGURES) == [], width
        assert broken(page, ".gm-by div, td:not(:has(div)), th, p", WORDS) == [], width
        assert page.evaluate(TURNED, ".gm-by div, td") == [], width
        # Who uses a GPU has room: a line of 34 letters is not in more lines than it must be.
        line = page.get_by_text("maria: train.py, 21.0 GiB, for 1 h").bounding_box()
        assert line["height"] < 30 or width < 420, (width, line)
    page.close()


@pytest.mark.parametrize("theme", ["light", "dark", "dark-high-contrast"])
def test_outputs_can_be_read_in_each_theme(chromium: Browser, theme: str) -> None:
    page = output_page(chromium, theme)
    for width in (420, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        found: list[dict[str, Any]] = Axe().run(page, "main").response["violations"]
        assert [(rule["id"], node["html"]) for rule in found for node in rule["nodes"]] == []
    page.close()
