"""What a page makes of the kernel's messages, and of their absence: a bare page, without a kernel."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from gpu_magic import choose
from gpu_magic.testing import start_cuda
from tests.browser.panel import HIDE, Panels
from tests.browser.standalone import detail_of, said, state_of, tell, with_people

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.standalone import BarePages

FOUR = "4xA100-80GB"
TEN_MINUTES = 10 * 60 * 1000  # in milliseconds


def use_gpu_1(page: Page) -> None:
    """Click GPU 1 and "Use these", at once."""
    page.evaluate(
        "() => { document.querySelector('[data-key=\"1\"]').click(); document.querySelector('.gm-buttons .gm-use').click(); }"
    )


def sent(page: Page, *kinds: str) -> list[dict[str, Any]]:
    """Return the messages of these kinds that the page has sent."""
    found: list[dict[str, Any]] = page.evaluate(
        "kinds => sent.filter(one => kinds.includes(one.type))", list(kinds)
    )
    return found


def is_off(page: Page) -> None:
    """Expect a panel that takes no click, and shows it."""
    panel = Panels(page)
    expect(panel.button("None")).to_be_disabled()
    expect(panel.button("Use")).to_be_disabled()
    expect(panel.panel).to_have_class(re.compile("gm-old"))
    line = panel.line.text_content()
    panel.row(1).click(force=True)
    panel.row(2).click(force=True)
    expect(panel.line).to_have_text(str(line))


def test_what_was_clicked_stays_until_the_kernel_has_it(bare: BarePages) -> None:
    """Whoever has chosen it: a click on this page, another page, or somebody who types."""
    state, chosen = state_of(FOUR), state_of(FOUR, lambda _: choose("1"))
    page = bare(state)
    panel = Panels(page)
    use_gpu_1(page)
    assert [one["request"] for one in sent(page, "choose")] == ["1"]
    for _ in range(2):
        expect(panel.said).to_contain_text("applies when the kernel is free")
        tell(page, state)  # a reading that knows nothing of it
    tell(page, state, said=said(state, "Too late.", "warning"))
    expect(panel.said).to_have_text("Too late.")
    expect(panel.line).to_have_text("%gpus 1")  # not applied yet
    tell(page, chosen)
    expect(panel.panel.locator(".gm-hint")).to_have_text("")
    panel.button("Reset").click()
    panel.button("Use as started").click()
    tell(page, state, said={**said(state, "As this process was started", "done"), "number": 9})
    expect(panel.button("clear")).to_be_hidden()


DONE = "cuda:0 = GPU 3 (NVIDIA A100-SXM4-80GB, 20 GiB free)"
BUSY = "GPU 3 is in use by tom: train.py, for 3 h"


@pytest.mark.parametrize(
    "colors", [{"theme": "light"}, {"theme": "dark"}, {"forced_colors": "active"}], ids=str
)
def test_lines_that_warn_stand_out_from_what_was_done(bare: BarePages, colors: dict[str, Any]) -> None:
    def look(line: str) -> list[str]:
        shown: list[str] = page.get_by_text(line).evaluate(
            "one => { const {color, fontWeight} = getComputedStyle(one); return [color, fontWeight]; }"
        )
        return shown

    state = state_of(FOUR)
    text = f"{DONE}\n{BUSY}\nTensorFlow and JAX allocate memory as they need it"
    page = bare(state, **colors)
    tell(page, state, said=said(state, text, "done", BUSY))
    assert page.locator(".gm-said").inner_text() == text
    assert look(DONE) == look("TensorFlow and JAX") != look(BUSY)
    warned = look(BUSY)
    if "forced_colors" not in colors:  # there all text has one color
        tell(page, state, said={**said(state, "Too late.", "warning"), "number": 9})
        assert look("Too late.") == warned


def test_waiting_by_keyboard_keeps_the_focus_at_the_buttons(bare: BarePages) -> None:
    state = state_of(FOUR, with_people)
    page = bare(state)
    page.locator(".gm-row").nth(1).click()
    begin, use = (page.get_by_role("button", name=name) for name in ("Wait for it", "Use these"))
    use.focus()
    page.keyboard.press("Shift+Tab")
    expect(begin).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".gm-said")).to_have_text("%gpus 1: starts to wait when the kernel is free")
    tell(page, state, waiting="Waiting for GPU 1, 2 s: in use by maria. Next look in 1 s.")
    expect(page.get_by_role("button", name="Cancel the waiting")).to_be_focused()
    page.keyboard.press("Enter")
    tell(page, state)
    expect(begin).to_be_focused()
    assert sent(page, "wait", "stop_waiting") == [{"type": "wait", "request": "1"}, {"type": "stop_waiting"}]
    tell(
        page, state, said=said(state, "GPU 1 is lost.", "error")
    )  # a refusal takes the place of what was asked for
    expect(page.locator(".gm-said")).to_have_text("GPU 1 is lost.")
    page.evaluate("lose()")
    expect(page.locator(".gm-wait")).to_be_hidden()


def test_a_restart_is_asked_for_once_it_is_confirmed_and_done_where_the_page_can(bare: BarePages) -> None:
    """A bare page has no Jupyter server to ask, and says so to the kernel, which then does it itself."""
    state = state_of(FOUR, lambda _: start_cuda())
    page = bare(state)
    page.locator('[data-key="3"]').click()
    page.get_by_role("button", name="Restart kernel and use these").click()
    assert sent(page, "choose") == []
    page.get_by_role("button", name="Restart", exact=True).click()
    [asked] = sent(page, "choose")
    assert (asked["request"], asked["restart"]) == ("3", True)
    name = asked["page"]
    page.evaluate("name => hear({type: 'restart', kernel: 'k', page: name})", name)
    page.wait_for_function("sent.filter(one => one.type === 'answer_restart').length === 2")
    assert [one["can"] for one in sent(page, "answer_restart")] == [True, False]
    tell(page, state, is_restarting=True)
    expect(page.locator(".gm-said")).to_have_text("Restarting the kernel …")
    page.evaluate("lose()")
    expect(page.locator(".gm-said")).to_contain_text("The kernel was restarted. Run %load_ext gpu_magic")
    is_off(page)


# Processes and variables of a row that is open.


def test_a_process_is_ended_after_a_question_and_killed_after_that(bare: BarePages) -> None:
    state = state_of(FOUR, with_people)
    page = bare(state)
    page.locator('[data-key="1"]').focus()
    page.keyboard.press("ArrowRight")
    tell(page, state, details={"1": detail_of()})
    mine, train, deaf = page.locator(".gm-process").all()
    assert mine.locator("button:visible").count() == 0
    for text in ("train.py", "PID 4243", "from ~/other.ipynb", "31.2 GiB"):
        expect(train).to_contain_text(text)
    train.get_by_role("button", name="End train.py").click()
    question = train.get_by_role("alertdialog")
    expect(question).to_contain_text("End train.py (PID 4243)? It gets TERM.")
    expect(question.get_by_role("button", name="Cancel")).to_be_focused()
    question.get_by_role("button", name="Cancel").click()
    assert sent(page, "end_process") == []
    train.get_by_role("button", name="End train.py").click()
    question.get_by_role("button", name="End").click()
    deaf.get_by_role("button", name="Kill eval.py").click()
    expect(deaf).to_contain_text("It is ended at once, without saving.")
    deaf.get_by_role("alertdialog").get_by_role("button", name="Kill").click()
    ended = [(one["pid"], one["kill"]) for one in sent(page, "end_process")]
    assert ended == [(4243, False), (4244, True)]
    # One that is being ended can't be ended again.
    processes = [{**one, "step": one["step"] and "wait"} for one in detail_of()["processes"]]
    tell(page, state, details={"1": detail_of(processes=processes)})
    expect(train.locator("button")).to_be_disabled()
    # By the keyboard: Right goes into what is open, Escape closes it and goes back to its row.
    page.locator('[data-key="1"].gm-row').focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".gm-detail :focus")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator(".gm-detail")).to_have_count(0)
    expect(page.locator('[data-key="1"].gm-row')).to_be_focused()


def test_variables_are_shown_where_there_are_some_and_can_be_freed(bare: BarePages) -> None:
    state = state_of(FOUR)
    page = bare(state)
    Panels(page).open(1)
    tell(page, state, details={"1": detail_of()})
    variables = page.locator(".gm-detail-variables")
    expect(variables).to_contain_text("model12.1 GiB")
    expect(variables).to_contain_text("and 3 more; not all were looked at")
    variables.get_by_role("button", name="Free what can be freed").click()
    assert sent(page, "free") == [{"type": "free"}]
    none = {"largest": [], "more": 0, "unfinished": False, "parked": ""}
    tell(page, state, details={"1": detail_of(variables={**none, "parked": "6.2 GiB"}, processes=[])})
    expect(variables.locator(".gm-detail-note")).to_have_text("6.2 GiB parked")
    tell(page, state, details={"1": detail_of(variables=none)})
    expect(variables).to_contain_text("none here")
    tell(page, state, details={"1": detail_of(variables=none, processes=[])})
    expect(variables).to_be_hidden()


def test_the_name_of_a_variable_stays_selected_to_be_copied(bare: BarePages) -> None:
    state = state_of(FOUR)
    page = bare(state)
    Panels(page).open(1)
    tell(page, state, details={"1": detail_of()})
    page.get_by_title("model", exact=True).evaluate("one => getSelection().selectAllChildren(one)")
    grown: dict[str, Any] = {
        "largest": [["model", "13.0 GiB"], ["batch", "1 MiB"]],
        "more": 0,
        "unfinished": False,
    }
    tell(page, state, details={"1": detail_of(variables=grown)})
    expect(page.locator(".gm-detail-variables li")).to_have_text(["model13.0 GiB", "batch1 MiB"])
    assert page.evaluate("String(getSelection())") == "model"
    tell(page, state, details={"1": detail_of(variables={**grown, "largest": grown["largest"][1:]})})
    expect(page.locator(".gm-detail-variables li")).to_have_text(["batch1 MiB"])


# What is said of a kernel that is gone, or silent, and to one whose figures nobody sees.


def test_a_state_without_a_kernel_makes_no_live_panel_at_any_time(bare: BarePages) -> None:
    """An exported page has the widget's state, and can have the widget's code, but no kernel."""
    state = state_of(FOUR)
    page = bare(state, is_live=False, has_clock=True)
    expect(page.locator(".gm-panel")).to_be_hidden()
    page.clock.set_system_time("2020-01-01")  # nor does a clock that is wrong make one, or hide one
    tell(page, state)
    expect(page.locator(".gm-panel")).to_be_visible()


def test_a_kernel_that_says_nothing(bare: BarePages) -> None:
    state = state_of(FOUR)
    page = bare(state, has_clock=True)
    page.clock.run_for(1000)
    page.clock.fast_forward(29_000)
    expect(page.locator(".gm-stale")).to_contain_text("no figures for ")
    expect(page.locator(".gm-said")).to_contain_text("The kernel does not answer")
    is_off(page)
    tell(page, state)
    page.clock.run_for(2000)
    expect(page.locator(".gm-stale")).to_have_text("")
    expect(page.locator(".gm-said")).to_have_text("")
    page.locator('[data-key="2"]').click()
    expect(page.locator(".gm-line code")).to_have_text("%gpus 2")
    page.evaluate("lose()")
    expect(page.locator(".gm-state")).to_have_text("no kernel")
    expect(page.locator(".gm-said")).to_contain_text("This panel's kernel has ended")
    is_off(page)


def with_held_clock(bare: BarePages, state: dict[str, Any]) -> Page:
    """Open a page that is watched, and whose clock only the test turns."""
    page = bare(state, has_clock=True)
    while not sent(page, "look"):
        page.clock.run_for(100)
    page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 1)
    return page


def test_a_kernel_that_tells_a_pause_is_not_silent(bare: BarePages) -> None:
    """It does not hear the page before its cell ends."""
    state = state_of(FOUR)
    page = with_held_clock(bare, state)
    tell(page, state, pause=60, is_busy=True)
    looks = len(sent(page, "look"))
    page.clock.run_for(45_000)
    expect(page.locator(".gm-stale")).to_have_text("figures are 45 s old while a cell runs")
    expect(page.locator(".gm-said")).to_have_text("")
    page.locator('[data-key="2"]').click()
    expect(page.locator(".gm-line code")).to_have_text("%gpus 2")
    assert len(sent(page, "look")) == looks  # it would answer all of them then
    page.clock.run_for(36_000)
    expect(page.locator(".gm-said")).to_contain_text("The kernel does not answer")
    is_off(page)
    assert len(sent(page, "look")) > looks


def test_a_state_that_is_the_same_is_a_sign_of_life_and_a_figure(bare: BarePages) -> None:
    state = state_of(FOUR)
    page = with_held_clock(bare, state)
    chart = page.locator('[data-key="1"] .gm-chart-line')
    for second in range(1, 31):
        page.clock.run_for(1000)
        page.evaluate("second => hear({type: 'same', second, pause: 0})", state["second"] + second)
    expect(page.locator(".gm-stale")).to_have_text("")
    assert "H31" in str(chart.get_attribute("d"))


def seen(page: Page) -> str:
    """Return whether the kernel was told that the panel is seen."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
    return str(sent(page, "look")[-1]["visibility"])


def test_a_panel_that_nobody_watches_pauses_and_goes_on_with_the_first_movement(bare: BarePages) -> None:
    state = state_of(FOUR)
    page = bare(state, has_clock=True)
    while not sent(page, "look"):
        page.clock.run_for(100)
    page.clock.fast_forward(TEN_MINUTES)
    page.clock.fast_forward(30_000)
    page.clock.run_for(1000)
    expect(page.locator(".gm-stale")).to_have_text("paused: this page was not used for ten minutes")
    assert sent(page, "look")[-1]["visibility"] == "unwatched"
    page.mouse.move(200, 200)
    assert sent(page, "look")[-1]["visibility"] == "watched"
    page.clock.run_for(1000)
    expect(page.locator(".gm-stale")).to_have_text("")


def test_a_panel_that_nobody_watches_reports_during_a_cell_alone(bare: BarePages) -> None:
    """So the kernel knows of a page that vanishes."""
    state = state_of(FOUR)
    page = with_held_clock(bare, state)
    page.clock.fast_forward(TEN_MINUTES)
    page.clock.run_for(30_000)
    looks = len(sent(page, "look"))
    tell(page, state, is_busy=True)
    page.clock.run_for(30_000)
    later = sent(page, "look")[looks:]
    assert [look["visibility"] for look in later] == ["unwatched", "unwatched"]
    tell(page, state, is_busy=False)
    page.clock.run_for(30_000)
    assert len(sent(page, "look")) == looks + 2


def test_a_panel_that_is_not_seen_wants_no_figures(bare: BarePages) -> None:
    page = bare(state_of(FOUR))
    assert seen(page) == "watched"
    page.evaluate(HIDE, True)
    assert seen(page) == "hidden"
    page.evaluate(HIDE, False)
    assert seen(page) == "watched"
    page.evaluate("() => { box.style.marginTop = '3000px'; }")
    assert seen(page) == "hidden"
    page.locator(".gm-panel").scroll_into_view_if_needed()
    assert seen(page) == "watched"
