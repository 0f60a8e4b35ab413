"""What a page makes of the kernel's messages, whenever they come: a page with the front end's part alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.browser.standalone import panel_page, state_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WAITS = "applies when the kernel is free"


def sent(page: Page, kind: str) -> dict[str, Any]:
    """Return the latest message of a type that the page has sent."""
    message: dict[str, Any] = page.evaluate("kind => sent.findLast(one => one.type === kind)", kind)
    return message


def hear(to: Page, **message: Any) -> None:
    to.evaluate("message => hear(message)", message)


def hear_heartbeat(page: Page, state: dict[str, Any]) -> None:
    """Nine seconds after a state, of which no message is missing since."""
    hear(page, type="heartbeat", second=state["second"] + 9, unbroken=state["second"])


def drafts(page: Page) -> int:
    """Return how many drafts the page has sent."""
    return page.evaluate("sent.filter(one => one.type === 'set_draft').length")


def use_gpu_1(page: Page) -> dict[str, Any]:
    """Click GPU 1 and "Use these", at once; return the message of the first click."""
    page.evaluate(
        "() => { document.querySelector('[data-key=\"1\"]').click(); document.querySelector('.gm-buttons .gm-use').click(); }"
    )
    return sent(page, "set_draft")


def test_what_waits_is_said_though_its_click_is_confirmed_meanwhile(chromium: Browser) -> None:
    state = state_of("4xA100-80GB")
    with panel_page(chromium, state) as page:
        click = use_gpu_1(page)
        confirmed = {
            "request": "1",
            "number": 1,
            "clicks": {click["page"]: click["click"]},
            "page": click["page"],
        }
        hear(page, type="draft", **confirmed, version=state["version"] + 1)
        expect(page.locator(".gm-said")).to_contain_text(WAITS)


def test_a_page_that_looked_away_learns_what_became_of_its_choice(chromium: Browser) -> None:
    state = state_of("4xA100-80GB")
    with panel_page(chromium, state) as page:
        use_gpu_1(page)
        expect(page.locator(".gm-said")).to_contain_text(WAITS)
        hear(page, type="state", state={**state, "is_waiting": True})
        expect(page.locator(".gm-said")).to_contain_text(WAITS)
        hear(page, type="state", state={**state, "said": ["Too late.", "warning"]})
        expect(page.locator(".gm-said")).to_have_text("Too late.")


def test_a_click_that_was_under_way_while_the_state_came_is_kept(chromium: Browser) -> None:
    """Another page has asked for the state: the kernel sent it before it heard of the click."""
    state = state_of("4xA100-80GB")
    with panel_page(chromium, state) as page:
        page.locator('[data-key="1"]').click()
        hear(page, type="state", state={**state, "draft": "3", "draft_number": 5})
        expect(page.locator(".gm-line code")).to_have_text("%gpus 3,1")
        again = sent(page, "set_draft")
        assert (again["request"], again["number"]) == ("3,1", 5)
        page.locator('[data-key="2"]').click()
        assert sent(page, "set_draft")["request"] == "3,1,2"


def test_a_click_that_the_state_has_already_is_not_repeated(chromium: Browser) -> None:
    state = state_of("4xA100-80GB")
    with panel_page(chromium, state) as page:
        page.locator('[data-key="1"]').click()
        click = sent(page, "set_draft")
        clicks = {click["page"]: click["click"], "another": 7}
        hear(page, type="state", state={**state, "draft": "1", "draft_number": 1, "clicks": clicks})
        expect(page.locator(".gm-line code")).to_have_text("%gpus 1")
        page.locator('[data-key="2"]').click()
        assert sent(page, "set_draft")["request"] == "1,2"


def test_a_state_that_was_overtaken_by_what_came_after_it_is_not_shown(chromium: Browser) -> None:
    """ipywidgets hands over a change of the model later than messages that the kernel sent after it."""
    state = state_of("4xA100-80GB")
    with panel_page(chromium, state) as page:
        page.locator('[data-key="1"]').click()
        click = sent(page, "set_draft")
        draft = {"request": "3,1", "number": 2, "clicks": {click["page"]: click["click"]}, "page": "another"}
        hear(page, type="draft", **draft, version=state["version"] + 1)
        page.evaluate("state => load(state)", {**state, "draft": "3", "draft_number": 1})
        expect(page.locator(".gm-line code")).to_have_text("%gpus 3,1")
        page.locator('[data-key="2"]').click()
        assert sent(page, "set_draft")["request"] == "3,1,2"


def test_a_click_that_the_kernel_says_nothing_of_is_repeated(chromium: Browser) -> None:
    state = state_of("4xA100-80GB")
    with panel_page(chromium, state) as page:
        page.clock.install()
        page.locator('[data-key="1"]').click()
        hear_heartbeat(page, state)
        assert drafts(page) == 1
        page.clock.fast_forward(4000)
        hear_heartbeat(page, state)
        hear_heartbeat(page, state)
        assert drafts(page) == 2
        assert sent(page, "set_draft")["request"] == "1"


def test_a_click_that_got_lost_is_not_made_again_once_it_was_chosen(chromium: Browser) -> None:
    state = state_of("4xA100-80GB")
    with panel_page(chromium, state) as page:
        page.clock.install()
        use_gpu_1(page)  # the kernel has heard of "Use these" alone
        hear(page, type="notice", text="cuda:0 = GPU 1", kind="done", version=state["version"] + 1)
        page.clock.fast_forward(4000)
        hear_heartbeat(page, state)
        assert drafts(page) == 1


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
        said = {"text": text, "kind": "done", "warnings": [BUSY], "version": state["version"] + 1}
        hear(page, type="notice", **said)
        assert page.locator(".gm-said").inner_text() == text
        assert look(DONE) == look("TensorFlow and JAX") != look(BUSY)
        warned = look(BUSY)
        hear(page, type="state", state={**state, "said": [text, "done", [BUSY]]})
        assert look(BUSY) == warned
        if "forced_colors" not in colors:  # there all text has one color
            hear(page, type="notice", text="Too late.", kind="warning", warnings=[], version=0)
            assert look("Too late.") == warned
        hear(page, type="state", state={**state, "said": ["As before.", "done"]})  # from a notebook's file
        expect(page.locator(".gm-said")).to_have_text("As before.")
