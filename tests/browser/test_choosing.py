"""What a person sees in the panel and does with it: a bare page, with the kernel's part in this process."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import gpu_magic
from gpu_magic.testing import start_cuda
from tests.browser.standalone import with_people
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_magic.testing import Machine
    from tests.browser.standalone import LivePanel

MIG = "1xA100-80GB(3g.40gb,4g.40gb)+3xA100-80GB"
MANY = "16xA100-80GB+8xT4"


def mask() -> str | None:
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def chosen(request: str) -> Callable[[Machine], object]:
    return lambda _machine: gpu_magic.choose(request)


def keys(panel: LivePanel) -> list[str]:
    found: list[str] = panel.page.eval_on_selector_all(".gm-row", "rows => rows.map(row => row.dataset.key)")
    return found


def test_clicks_choose_in_their_order(live: Callable[..., LivePanel]) -> None:
    panel = live()
    assert panel.badges() == {str(place): f"cuda:{place}" for place in range(4)}
    expect(panel.button("Use these")).to_be_disabled()
    panel.click(2, 0)
    assert panel.badges() == {
        "0": "cuda:0 → cuda:1",
        "1": "cuda:1 dropped",
        "2": "cuda:2 → cuda:0",
        "3": "cuda:3 dropped",
    }
    expect(panel.line).to_have_text("%gpus 2,0")
    assert re.fullmatch(r"cuda:0 = GPU 2 .*\ncuda:1 = GPU 0 .*", panel.use())
    expect(panel.button("Use these")).to_be_disabled()
    assert panel.badges() == {"0": "cuda:1", "2": "cuda:0"}
    assert mask() == "2,0"
    gpu_magic.choose("3")  # what was said is not said of another choice
    panel.exchange()
    expect(panel.said).to_have_text("")
    assert panel.badges() == {"3": "cuda:0"}


def test_clicking_again_drops_and_clear_and_escape_drop_all(live: Callable[..., LivePanel]) -> None:
    panel = live(prepare=chosen("3,1"))
    assert panel.badges() == {"1": "cuda:1", "3": "cuda:0"}
    panel.click(3)
    assert panel.badges() == {"1": "cuda:1 → cuda:0", "3": "cuda:0 dropped"}
    expect(panel.line).to_have_text("%gpus 1")
    panel.click(1)
    expect(panel.button("Use these")).to_be_disabled()
    for drop in (panel.button("clear").click, lambda: panel.page.keyboard.press("Escape")):
        panel.click(2)
        expect(panel.panel.locator(".gm-hint")).to_have_text("not applied yet")
        drop()
        expect(panel.line).to_have_text("%gpus 3,1")
    assert mask() == "3,1"


def test_everything_by_keyboard(live: Callable[..., LivePanel]) -> None:
    panel = live()
    keyboard = panel.page.keyboard
    panel.row(0).focus()
    for key in ("ArrowDown", "ArrowDown", "Space", "End", "Enter", "Home", "ArrowUp", "Space", "Space"):
        keyboard.press(key)
    expect(panel.line).to_have_text("%gpus 2,3")
    expect(panel.row(0)).to_be_focused()
    assert panel.row(0).evaluate("row => getComputedStyle(row).outlineStyle") == "solid"
    expect(panel.row(2)).to_have_attribute("aria-selected", "true")
    expect(panel.row(0)).to_have_attribute("aria-selected", "false")
    for _ in range(8):  # copy, options, clear, how many, least busy, None, Reset, Use these
        keyboard.press("Tab")
    expect(panel.button("Use these")).to_be_focused()
    keyboard.press("Enter")
    assert "cuda:1 = GPU 3" in panel.exchange().said.inner_text()
    assert mask() == "2,3"
    # A row is opened by Right, entered by Right, and left and closed by Escape or Left.
    panel.row(1).focus()
    for key, is_open in (("ArrowRight", 1), ("ArrowLeft", 0), ("ArrowRight", 1), ("ArrowDown", 1)):
        keyboard.press(key)
        expect(panel.detail(1)).to_have_count(is_open)
    expect(panel.row(2)).to_be_focused()


def test_least_busy_none_and_reset(live: Callable[..., LivePanel]) -> None:
    panel = live(prepare=lambda machine: machine.gpus[0].run("train.py", "maria", 2 << 30))
    count = panel.page.get_by_role("spinbutton", name="How many of the least busy")
    count.fill("2")
    count.press("Tab")
    expect(panel.line).to_have_text("%gpus")  # Enter and its button alone pick
    count.fill("2")
    count.press("Enter")
    expect(panel.line).to_have_text("%gpus 1,2")
    expect(count).to_be_focused()
    count.fill("5")
    panel.button("Least busy").click()
    expect(panel.said).to_have_text("From 1 to 4 can be picked.")
    expect(panel.line).to_have_text("%gpus 1,2")
    assert "cuda:0 = GPU 1" in panel.use()
    panel.button("None").click()
    expect(panel.line).to_have_text("%gpus none")
    assert set(panel.badges().values()) == {"cuda:0 dropped", "cuda:1 dropped"}
    assert panel.use("Use none") == "No GPU is visible to CUDA. Frameworks run on the CPU."
    assert mask() == ""
    panel.button("Reset").click()
    expect(panel.line).to_have_text("%gpus reset")
    assert panel.badges() == {str(place): f"cuda:{place}" for place in range(4)}
    assert "Reset: CUDA_VISIBLE_DEVICES not set" in panel.use("Use as started")
    assert mask() is None


def test_a_click_with_shift_takes_all_between_that_can_be_chosen(live: Callable[..., LivePanel]) -> None:
    panel = live("2xA100-80GB+1xA100-80GB(3g.40gb,4g.40gb)+1xA100-80GB")
    panel.click(3)
    for _ in range(2):  # the second time drops none
        panel.row(0).click(modifiers=["Shift"])
        expect(panel.line).to_have_text("%gpus 3,1,0")  # not GPU 2, which is split


def test_figures_and_people(live: Callable[..., LivePanel]) -> None:
    panel = live(prepare=with_people)
    row = panel.row(1)
    expect(row).to_have_class(re.compile("gm-busy"))
    for part, text in (
        (".gm-size", "60.5 / 80.0 GiB"),
        (".gm-percent", r"\d+ %"),
        (".gm-heat", r"\d+ °C · \d+ W"),
    ):
        expect(row.locator(part)).to_have_text(re.compile(text))
    expect(row.locator(".gm-users")).to_contain_text("maria: train.py")
    bar = "row => ['.gm-bar', '.gm-others'].map(one => row.querySelector(one).getBoundingClientRect().width)"
    whole, others = row.evaluate(bar)
    assert others / whole == pytest.approx(60 / 80, abs=0.02)
    expect(panel.panel.locator(".gm-host")).to_contain_text("2 of 4 free")
    panel.click(1)  # whoever is there is named before it is taken
    expect(panel.said).to_contain_text("GPU 1 is in use. ")
    expect(panel.panel.locator(".gm-hint")).to_have_text("not applied yet")
    panel.click(1)
    expect(panel.said).to_have_text("")
    panel.machine.gpus[1].processes.clear()
    panel.exchange()
    expect(row.locator(".gm-percent")).to_have_text("0 %")
    expect(row.locator(".gm-users")).to_have_text("free")


def test_what_is_not_known_is_not_zero(live: Callable[..., LivePanel]) -> None:
    def hide(machine: Machine) -> None:
        for call in ("MemoryInfo", "UtilizationRates", "Temperature", "PowerUsage"):
            machine.gpus[0].fail(f"nvmlDeviceGet{call}", 3)

    panel = live(prepare=hide)
    expect(panel.row(0).locator(".gm-size")).to_have_text("? / ?")
    expect(panel.row(0).locator(".gm-percent")).to_have_text("?")
    expect(panel.row(0)).to_have_class(re.compile("gm-unknown"))
    detail = panel.open(0)
    panel.exchange("sent.length")
    expect(detail.locator(".gm-detail-processes")).to_be_visible()
    expect(detail.locator(".gm-figure:visible")).to_have_count(0)
    assert not re.search(r"\b0", detail.inner_text())


def test_a_gpu_is_lost_while_looking_and_the_rest_goes_on(live: Callable[..., LivePanel]) -> None:
    panel = live()
    panel.click(1, 3)
    panel.machine.gpus[1].lose()
    panel.exchange()
    expect(panel.row(1).locator(".gm-users")).to_have_text(
        "not answering: the driver reports this GPU as lost"
    )
    expect(panel.row(1)).to_have_attribute("aria-disabled", "true")
    panel.click(1)  # what was clicked before can be dropped, and not taken back
    expect(panel.line).to_have_text("%gpus 3")
    panel.click(1)
    expect(panel.said).to_contain_text("GPU 1 cannot be chosen because it is not answering")
    assert "cuda:0 = GPU 3" in panel.use()
    panel.machine.gpus[1].recover()
    panel.exchange()
    expect(panel.row(1).locator(".gm-percent")).to_have_text("0 %")


def test_what_the_kernel_was_not_given(live: Callable[..., LivePanel]) -> None:
    given = {"0": "not given", "1": "cuda:1", "2": "cuda:0", "3": "not given"}
    panel = live(mask="2,1")
    assert panel.badges() == given
    expect(panel.panel.locator(".gm-host")).to_contain_text("2 of 2 free, 2 not given")
    panel.click(0)
    expect(panel.said).to_contain_text("GPU 0 was not given to this process")
    panel.click(2)
    assert panel.badges()["2"] == "cuda:0 dropped"
    panel.button("Reset").click()
    assert panel.badges() == given


def test_an_extension_that_is_unloaded(live: Callable[..., LivePanel]) -> None:
    panel = live(prepare=chosen("2"))
    panel.click(1)
    panel.kernel.pause()
    panel.exchange()
    for key in (1, 3):
        expect(panel.said).to_contain_text("gpu_magic was unloaded")
        expect(panel.line).to_have_text("%gpus 2")  # without what was clicked
        panel.click(key)
    expect(panel.button("Use these")).to_be_disabled()
    expect(panel.button("None")).to_be_disabled()
    panel.kernel.resume(None)
    panel.exchange()
    expect(panel.said).to_have_text("")
    panel.click(3)
    expect(panel.line).to_have_text("%gpus 2,3")


def test_names_from_the_machine_stay_text(live: Callable[..., LivePanel]) -> None:
    evil = "<img src=x onerror=document.title='owned'><b>A100</b>"
    panel = live(prepare=lambda machine: machine.gpus[1].run(evil, "<i>maria</i>", 30 << 30))
    panel.open(1)
    panel.exchange("sent.length")
    expect(panel.row(1).locator(".gm-users")).to_contain_text("<i>maria</i>: <img src=x onerror=")
    expect(panel.detail(1).locator(".gm-process")).to_contain_text("<img src=x onerror=")
    assert panel.panel.locator("img, b:not([class]), i:not([class])").count() == 0
    assert panel.page.title() == "GPUs"


def test_mig_instances_stand_under_their_gpu(live: Callable[..., LivePanel]) -> None:
    panel = live(MIG)
    first, second = (instance.uuid for instance in panel.machine.gpus[0].mig)
    assert keys(panel) == ["0", first, second, "1", "2", "3"]
    expect(panel.panel.locator(".gm-host")).to_contain_text("5 of 5 free")
    panel.click(0)
    expect(panel.said).to_contain_text("GPU 0 is split by MIG, so it cannot be chosen as a whole")
    panel.click(2, second)  # one process can use one, and nothing beside it
    expect(panel.line).to_have_text(f"%gpus {second}")
    assert "cuda:0 = MIG instance 0:" in panel.use()
    assert mask() == second
    detail = panel.open(first)
    panel.exchange("sent.length")
    expect(detail.locator(".gm-detail-memory .gm-detail-value")).to_have_text(
        re.compile(r"[\d.]+ / 40.0 GiB")
    )
    expect(detail.locator(".gm-detail-power")).to_be_hidden()
    expect(detail.locator(".gm-figure:visible")).to_have_count(1)


def test_two_views_of_a_panel_agree(live: Callable[..., LivePanel]) -> None:
    panel = live()
    panel.page.evaluate("() => { show(); }")
    views = panel.page.locator(".gm-panel")
    views.nth(1).locator('[data-key="3"]').click()
    views.nth(1).locator("button", has_text="options").click()
    views.nth(1).get_by_label("growth").check()
    expect(panel.line).to_have_text("%gpus 3 --growth")
    expect(panel.panel.get_by_label("growth")).to_be_checked()
    panel.use()
    for number in range(2):
        expect(views.nth(number).locator(".gm-said")).to_contain_text("cuda:0 = GPU 3")
        expect(views.nth(number).locator('[data-key="3"]')).to_have_attribute("aria-selected", "true")


@pytest.mark.parametrize("count", [1, 8, 64])
def test_few_and_many_gpus(live: Callable[..., LivePanel], count: int) -> None:
    panel = live(f"{count}xA100-80GB")
    assert keys(panel) == list(map(str, range(count)))
    panel.row(count - 1).scroll_into_view_if_needed()
    panel.click(count - 1)
    expect(panel.line).to_have_text(f"%gpus {count - 1}")
    if count > 8:  # all of them in a box that scrolls, with the buttons in sight
        assert panel.panel.evaluate("panel => panel.clientHeight") < 900
        expect(panel.button("Use these")).to_be_in_viewport()


# Once CUDA has started.


def test_a_choice_that_comes_too_late_is_asked_about(live: Callable[..., LivePanel]) -> None:
    def start(_machine: Machine) -> None:
        gpu_magic.choose("1")
        start_cuda()

    panel = live(prepare=start)
    expect(panel.cuda).to_have_text("CUDA started")
    expect(panel.panel.locator(".gm-banner").first).to_contain_text("Another choice needs a restart")
    panel.click(3)
    restart = panel.button("Restart kernel and use these")
    question = panel.page.get_by_role("alertdialog")
    # The question is about what was clicked when it was asked, and Escape is no.
    restart.press("Enter")
    expect(question).to_contain_text("Restart the kernel for %gpus 1,3? Its variables are lost.")
    expect(panel.button("Cancel")).to_be_focused()
    panel.page.keyboard.press("Escape")
    expect(restart).to_be_focused()
    restart.click()
    panel.click(0)
    expect(question).to_be_hidden()
    panel.click(3, 0)  # what it has needs no restart
    expect(panel.line).to_have_text("%gpus 1")
    assert "cuda:0 = GPU 1" in panel.use()
    assert panel.page.evaluate("sent.length") == 0


# Its options: how frameworks may take memory.


def test_options_are_a_part_of_the_choice(live: Callable[..., LivePanel]) -> None:
    panel = live()
    growth, limit = panel.panel.get_by_label("growth"), panel.panel.get_by_label("memory limit")
    expect(growth).to_be_hidden()
    panel.button("options").click()
    growth.check()
    expect(panel.line).to_have_text("%gpus --growth")
    expect(panel.button("Use these")).to_have_attribute("aria-disabled", "true")  # they wait for GPUs
    panel.click(2)
    limit.fill("much --force")
    limit.press("Enter")
    expect(panel.said).to_have_text("much --force is not a size. Try 8GB or 8GiB")
    expect(limit).to_have_value("much --force")
    expect(panel.line).to_have_text("%gpus 2 --growth")
    limit.fill("900GB")
    limit.press("Enter")
    assert "--memory-limit 900GB is more than GPU 2 has" in panel.use()
    expect(panel.line).to_have_text("%gpus 2 --growth --memory-limit 900GB")
    limit.fill("8 GB")
    limit.press("Enter")
    said = panel.use()
    assert "TensorFlow and JAX allocate memory as they need it" in said
    assert "at most 8 GB of each GPU" in said
    assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    # They stay with the next choice, until they are taken back.
    panel.click(0)
    expect(panel.line).to_have_text("%gpus 2,0 --growth --memory-limit 8GB")
    growth.uncheck()
    limit.fill("")
    limit.press("Enter")
    panel.use()
    expect(panel.line).to_have_text("%gpus 2,0")
    assert "TF_FORCE_GPU_ALLOW_GROWTH" not in os.environ
    # What was typed shows, and "clear" drops it with what was clicked.
    gpu_magic.choose("1", memory_limit="8GiB")
    panel.exchange()
    expect(panel.line).to_have_text("%gpus 1 --memory-limit 8GiB")
    expect(limit).to_have_value("8GiB")
    growth.check()
    panel.button("clear").click()
    expect(growth).not_to_be_checked()


def test_filters_say_which_gpus_are_picked(live: Callable[..., LivePanel]) -> None:
    panel = live(prepare=lambda machine: machine.gpus[0].run("train.py", "maria", 60 << 30, work=97))
    free, model = panel.panel.get_by_label("min free"), panel.panel.get_by_label("model")
    panel.button("options").click()
    panel.click(1, 2)
    free.fill("40 GB")
    free.press("Enter")
    expect(panel.line).to_have_text("%gpus auto:2 --min-free 40GB")
    panel.panel.get_by_label("How many of the least busy").fill("1")
    panel.button("least busy").click()
    expect(panel.line).to_have_text("%gpus auto:1 --min-free 40GB")
    assert "cuda:0 = GPU 1" in panel.use()
    # GPUs by number need no filter, but can all have to be free.
    free.fill("40GB")
    free.press("Enter")
    panel.panel.get_by_label("only free").check()
    panel.click(0)
    expect(panel.line).to_have_text("%gpus 0 --only-free")
    expect(free).to_have_value("")
    assert "Not free: GPU 0 (in use by maria" in panel.use()
    model.fill("T4 --force")
    model.press("Enter")
    assert "--force is not an option of the panel" in panel.use()


# Waiting for a GPU that another process has.


def people(machine: Machine) -> None:
    for gpu in (1, 3):
        machine.gpus[gpu].run("train.py", "maria", 60 << 30, work=97)


def test_it_waits_until_others_have_ended_and_then_chooses(live: Callable[..., LivePanel]) -> None:
    panel = live(prepare=people)
    waits = panel.panel.locator(".gm-wait")

    def is_told(text: str) -> None:
        until(lambda: re.search(text, panel.kernel.choosing.waiting))
        panel.exchange()

    def begin(key: int) -> None:
        panel.click(key)
        panel.button("Wait for it").click()
        panel.exchange()
        is_told(r"^Waiting for SIMULATED GPU \d, \d+ s: in use by maria.* Next look in \d+ s\.$")
        expect(waits).to_contain_text(f"Waiting for SIMULATED GPU {key}")
        expect(panel.said).to_be_empty()

    begin(3)
    panel.page.evaluate("() => { show(); }")  # all views show it, and can end it
    panel.page.locator(".gm-panel").nth(1).get_by_role("button", name="Cancel").click()
    panel.exchange()
    expect(waits).to_be_hidden()
    expect(panel.button("Wait for it")).to_be_visible()
    panel.click(3)
    begin(1)
    # Whoever clicks only looks.
    for other in (panel.row(0), panel.button("None"), panel.button("Reset"), panel.button("clear")):
        other.click()
        panel.exchange()
        expect(waits).to_contain_text("Waiting for SIMULATED GPU 1,")
    panel.click(3)
    expect(panel.panel.locator(".gm-hint")).to_have_text("not applied yet")
    expect(panel.said).to_contain_text("GPU 3 is in use")
    panel.button("clear").click()
    begin(3)  # in place of the other wait
    panel.machine.gpus[3].processes.clear()
    is_told("free. Chosen when the kernel is free")
    expect(panel.exchange().said).to_contain_text("cuda:0 = GPU 3")
    expect(waits).to_be_hidden()
    assert mask() == "3"


def test_it_is_offered_for_what_others_have_before_cuda_starts(live: Callable[..., LivePanel]) -> None:
    panel = live(prepare=people)
    begin = panel.panel.locator(".gm-begin")
    for key, text in ((0, ""), (1, "Wait for it"), (3, "Wait for them")):
        panel.click(key)
        expect(begin).to_have_text(text) if text else expect(begin).to_be_hidden()
    panel.button("Reset").click()
    expect(begin).to_be_hidden()
    panel.click(1)
    expect(begin).to_be_visible()
    start_cuda()
    panel.exchange()
    expect(begin).to_be_hidden()


# A row that is open.


def test_rows_open_with_what_the_kernel_tells_of_them(live: Callable[..., LivePanel]) -> None:
    panel = live()
    chevron = panel.row(1).get_by_role("button", name="Details")
    expect(chevron).to_have_attribute("aria-expanded", "false")
    panel.open(1)
    panel.exchange("sent.length")
    expect(chevron).to_have_attribute("aria-expanded", "true")
    expect(panel.detail(1)).to_contain_text("of 400 W")
    expect(panel.detail(1).locator(".gm-detail-memory .gm-detail-value")).to_have_text("0.5 / 80.0 GiB")
    expect(panel.line).to_have_text("%gpus")  # it was not chosen
    panel.open(2)
    panel.exchange("sent.length")
    expect(panel.page.locator(".gm-detail")).to_have_count(2)
    chevron.click()
    expect(chevron).to_have_attribute("aria-expanded", "false")
    expect(panel.page.locator(".gm-detail")).to_have_count(1)


# Above the rows of many GPUs: a sum by model, and which rows are shown in which order.


def populated(machine: Machine) -> None:
    machine.populate()


def free_memory(panel: LivePanel) -> list[float]:
    """Return the free memory of each row, as its figures say, in GiB."""
    pairs = [
        re.findall(r"[\d.]+", size) for size in panel.page.locator(".gm-row .gm-size").all_text_contents()
    ]
    return [round(float(total) - float(used), 1) for used, total in pairs]


def test_many_are_summed_up_filtered_and_sorted(live: Callable[..., LivePanel]) -> None:
    panel = live(MANY, populated)
    free = panel.page.locator(".gm-row.gm-free")
    of_model = [free.filter(has_text=model).count() for model in ("A100", "T4")]
    assert all(of_model)
    expect(panel.panel.locator(".gm-overview > span").first).to_have_text(
        f"16 \u00d7 A100-SXM4-80GB: {of_model[0]} free · 8 \u00d7 Tesla T4: {of_model[1]} free"
    )
    # The free ones alone, and what was clicked.
    busy = panel.page.locator(".gm-row.gm-busy").last
    clicked = str(busy.get_attribute("data-key"))
    busy.click()
    only = panel.panel.get_by_label("free only")
    only.check()
    expect(panel.page.locator(".gm-row")).to_have_count(sum(of_model) + 1)
    assert clicked in keys(panel)
    only.uncheck()
    panel.button("clear").click()
    assert keys(panel) == list(map(str, range(24)))
    # A range goes over the rows as they are seen.
    panel.panel.get_by_label("most free memory first").check()
    panel.page.locator(".gm-row").last.scroll_into_view_if_needed()
    assert free_memory(panel) == sorted(free_memory(panel), reverse=True)
    assert sorted(keys(panel), key=int) == list(map(str, range(24)))
    rows = panel.page.locator(".gm-row")
    rows.nth(0).click()
    rows.nth(2).click(modifiers=["Shift"])
    expect(panel.line).to_have_text("%gpus " + ",".join(keys(panel)[:3]))


def test_up_to_sixteen_are_seen_at_a_glance(live: Callable[..., LivePanel]) -> None:
    expect(live("16xA100-80GB").panel.locator(".gm-overview")).to_be_hidden()


def test_instances_stay_with_their_gpu(live: Callable[..., LivePanel]) -> None:
    panel = live(f"8xA100-80GB({','.join(['1g.10gb'] * 7)})", populated)
    panel.panel.get_by_label("most free memory first").check()
    labels = panel.page.locator(".gm-row .gm-label").all_text_contents()
    assert [place for place, label in enumerate(labels) if label.isdigit()] == list(range(0, 64, 8))
