"""What a page makes of the kernel's messages, whenever they come: a page with the front end's part alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from gpu_magic import choose
from tests.browser.standalone import panel_page, said, state_of, tell

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WAITS = "applies when the kernel is free"


def use_gpu_1(page: Page) -> None:
    """Click GPU 1 and "Use these", at once."""
    page.evaluate(
        "() => { document.querySelector('[data-key=\"1\"]').click(); document.querySelector('.gm-buttons .gm-use').click(); }"
    )


def test_what_waits_for_the_kernel_is_said_until_there_is_an_answer(chromium: Browser) -> None:
    state = state_of("4xA100-80GB")
    with panel_page(chromium, state) as page:
        use_gpu_1(page)
        expect(page.locator(".gm-said")).to_contain_text(WAITS)
        tell(page, state)  # a reading that knows nothing of it
        expect(page.locator(".gm-said")).to_contain_text(WAITS)
        tell(page, state, said=said(state, "Too late.", "warning"))
        expect(page.locator(".gm-said")).to_have_text("Too late.")
        expect(page.locator(".gm-line code")).to_have_text("%gpus 1")  # not applied yet


def test_what_is_clicked_after_a_choice_stays_clicked(chromium: Browser) -> None:
    state = state_of("4xA100-80GB")
    done = said(state, "cuda:0 = GPU 1", "done")
    with panel_page(chromium, state) as page:
        use_gpu_1(page)
        page.locator('[data-key="2"]').click()
        tell(page, state, said=done)
        expect(page.locator(".gm-line code")).to_have_text("%gpus 1,2")


def test_what_was_clicked_is_gone_once_the_kernel_has_it(chromium: Browser) -> None:
    """Whoever has chosen it: a click on this page, another page, or somebody who types."""
    state, chosen = state_of("4xA100-80GB"), state_of("4xA100-80GB", lambda _: choose("1"))
    with panel_page(chromium, state) as page:
        page.locator('[data-key="1"]').click()
        expect(page.locator(".gm-hint")).to_have_text("not applied yet")
        tell(page, chosen)
        expect(page.locator(".gm-hint")).to_have_text("")
        page.get_by_role("button", name="Reset").click()
        page.get_by_role("button", name="Use as started").click()
        tell(page, state, said=said(state, "As this process was started", "done"))
        expect(page.locator(".gm-clear, .gm-copy", has_text="clear")).to_be_hidden()


DONE = "cuda:0 = GPU 3 (NVIDIA A100-SXM4-80GB, 20 GiB free)"
BUSY = "GPU 3 is in use by tom: train.py, for 3 h"


@pytest.mark.parametrize(
    "colors", [{}, {"theme": "light"}, {"theme": "dark"}, {"forced_colors": "active"}], ids=str
)
def test_lines_that_warn_stand_out_from_what_was_done(chromium: Browser, colors: dict[str, Any]) -> None:
    def look(line: str) -> list[str]:
        shown: list[str] = page.get_by_text(line).evaluate(
            "one => { const {color, fontWeight} = getComputedStyle(one); return [color, fontWeight]; }"
        )
        return shown

    state = state_of("4xA100-80GB")
    text = f"{DONE}\n{BUSY}\nTensorFlow and JAX take memory as they need it"
    with panel_page(chromium, state, **colors) as page:
        tell(page, state, said=said(state, text, "done", BUSY))
        assert page.locator(".gm-said").inner_text() == text
        assert look(DONE) == look("TensorFlow and JAX") != look(BUSY)
        warned = look(BUSY)
        if "forced_colors" not in colors:  # there all text has one color
            tell(page, state, said={**said(state, "Too late.", "warning"), "number": 9})
            assert look("Too late.") == warned
