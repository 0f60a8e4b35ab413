"""Waiting for a GPU that another process has: by the panel's button, while cells run."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from gpu_magic.testing import start_cuda
from tests.browser.panel import CLAIMS, MASK, open_panel, picture
from tests.browser.standalone import panel_page, said, state_of, tell
from tests.claims.holders import end, holder
from tests.machine import CARDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from gpu_magic.testing import Machine
    from tests.browser.lab import Lab, Notebook

HELD = re.compile(r"^Waiting for GPU 3, \d+ s: claimed by \w+, since .+\. Next look in \d+ s\.$")


@contextmanager
def held_gpu(lab: Lab, *cells: str, **how: Any) -> Iterator[tuple[Notebook, int]]:
    """Open a notebook with a panel, while another process has claimed GPU 3; yield its number, too."""
    notebook = open_panel(lab, *cells, **how)
    with holder(CARDS[3].uuid, GPU_MAGIC_CLAIMS=notebook.ask(CLAIMS)) as pid:
        expect(notebook.row(3)).to_contain_text("claimed by")
        yield notebook, pid


def waits(notebook: Notebook, panel: int = 0) -> Any:
    return notebook.page.locator(".gm-panel").nth(panel).locator(".gm-wait")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_waits_while_cells_run_and_then_chooses(lab: Lab, dark: bool) -> None:
    with held_gpu(lab, "%gpu_panel", dark=dark, own_page=True) as (notebook, pid):
        notebook.row(3).click()
        notebook.button("Wait for it").click()
        for panel in range(2):  # all panels show it
            expect(waits(notebook, panel).locator("span")).to_have_text(HELD)
        expect(notebook.said).to_be_empty()
        picture(notebook, f"waiting-{'dark' if dark else 'light'}")
        assert notebook.ask(MASK) == "None"  # a cell runs
        expect(waits(notebook).locator("span")).to_have_text(HELD)
        end(pid)
        expect(notebook.said).to_contain_text("cuda:0 = GPU 3")
        expect(waits(notebook)).to_be_hidden()
        assert notebook.ask(MASK) == "3"
        assert notebook.badges() == {"3": "cuda:0"}


def test_cancel_on_another_panel_changes_nothing(lab: Lab) -> None:
    with held_gpu(lab, "%gpu_panel") as (notebook, pid):
        notebook.row(3).click()
        notebook.button("Wait for it").click()
        expect(waits(notebook)).to_be_visible()
        waits(notebook, 1).get_by_role("button", name="Cancel").click()
        expect(waits(notebook)).to_be_hidden()
        expect(notebook.button("Wait for it")).to_be_visible()
        expect(notebook.line).to_have_text("%gpus 3")
        end(pid)
        expect(notebook.row(3)).to_contain_text("free")
        expect(notebook.button("Wait for it")).to_be_hidden()  # nobody has it
        assert notebook.ask(MASK) == "None"


def test_a_page_that_comes_later_shows_it_and_a_click_ends_it(lab: Lab) -> None:
    with held_gpu(lab) as (notebook, pid):
        notebook.row(3).click()
        notebook.button("Wait for it").click()
        expect(waits(notebook)).to_be_visible()
        notebook.run(notebook.add("%gpu_panel"))
        expect(waits(notebook, 1)).to_be_visible()
        notebook.row(1).click()
        for panel in range(2):
            expect(waits(notebook, panel)).to_be_hidden()
        end(pid)
        assert notebook.ask(MASK) == "None"


def people(machine: Machine) -> None:
    for gpu in (1, 3):
        machine.gpus[gpu].run("train.py", "maria", 60 << 30, work=97)


def frozen(machine: Machine) -> None:
    people(machine)
    start_cuda()


def test_by_keyboard_the_focus_stays_with_the_buttons(chromium: Browser) -> None:
    state = state_of("4xA100-80GB", people)
    with panel_page(chromium, state) as page:
        page.locator(".gm-row").nth(1).click()
        begin, use = (page.get_by_role("button", name=name) for name in ("Wait for it", "Use these"))
        use.focus()
        page.keyboard.press("Shift+Tab")
        expect(begin).to_be_focused()
        page.keyboard.press("Enter")
        tell(page, state, waiting="Waiting for GPU 1, 2 s: in use by maria. Next look in 1 s.")
        expect(page.get_by_role("button", name="Cancel the waiting")).to_be_focused()
        page.keyboard.press("Enter")
        tell(page, state)
        expect(begin).to_be_focused()
        assert page.evaluate("sent.filter(one => one.type.includes('wait'))") == [
            {"type": "wait", "request": "1"},
            {"type": "stop_waiting"},
        ]


def test_it_is_offered_for_what_others_have(chromium: Browser) -> None:
    with panel_page(chromium, state_of("4xA100-80GB", people)) as page:
        rows, begin = page.locator(".gm-row"), page.locator(".gm-begin")
        expect(begin).to_be_hidden()
        rows.nth(0).click()
        expect(begin).to_be_hidden()
        rows.nth(1).click()
        expect(begin).to_have_text("Wait for it")
        rows.nth(3).click()
        expect(begin).to_have_text("Wait for them")
        page.get_by_role("button", name="Reset").click()
        expect(begin).to_be_hidden()


def test_it_is_not_offered_once_cuda_has_started(chromium: Browser) -> None:
    with panel_page(chromium, state_of("4xA100-80GB", frozen)) as page:
        page.locator(".gm-row").nth(1).click()
        expect(page.locator(".gm-begin")).to_be_hidden()


def test_a_refusal_takes_the_place_of_what_was_asked_for(chromium: Browser) -> None:
    state = state_of("4xA100-80GB", people)
    with panel_page(chromium, state) as page:
        page.locator(".gm-row").nth(1).click()
        page.locator(".gm-begin").click()
        expect(page.locator(".gm-said")).to_have_text("%gpus 1: waits as soon as the kernel is free")
        tell(page, state, said=said(state, "GPU 1 is lost.", "error"))
        expect(page.locator(".gm-said")).to_have_text("GPU 1 is lost.")
        page.evaluate("lose()")
        expect(page.locator(".gm-wait")).to_be_hidden()
