"""What a person sees and does with the panel, in a real front end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import TimeoutError as WaitTimeoutError
from playwright.sync_api import expect

from tests.browser.panel import LOAD, MASK, busy_machine, open_again, open_panel, opens_again, picture
from tests.machine import CARDS, GIB, MIG, Driver

if TYPE_CHECKING:
    from tests.browser.lab import Lab


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_clicks_choose_and_pytorch_sees_it(lab: Lab, app: str) -> None:
    notebook = open_panel(lab, app=app)
    assert notebook.badges() == {"0": "cuda:0", "1": "cuda:1", "2": "cuda:2", "3": "cuda:3"}
    expect(notebook.button("Use these")).to_be_disabled()
    notebook.row(2).click()
    notebook.row(0).click()
    assert notebook.badges() == {
        "0": "cuda:0 → cuda:1",
        "1": "cuda:1 dropped",
        "2": "cuda:2 → cuda:0",
        "3": "cuda:3 dropped",
    }
    expect(notebook.line).to_have_text("%gpus 2,0")
    picture(notebook, f"{app}-clicked")
    notebook.button("Use these").click()
    expect(notebook.said).to_have_text(re.compile(r"cuda:0 = GPU 2 .*\ncuda:1 = GPU 0 "))
    expect(notebook.button("Use these")).to_be_disabled()
    assert notebook.badges() == {"0": "cuda:1", "2": "cuda:0"}
    assert notebook.ask("import torch; print(torch.cuda._parse_visible_devices())") == "[2, 0]"
    picture(notebook, f"{app}-chosen")


def test_clicking_again_drops(lab: Lab) -> None:
    notebook = open_panel(lab, "%gpus 3,1")
    assert notebook.badges() == {"1": "cuda:1", "3": "cuda:0"}
    notebook.row(3).click()
    assert notebook.badges() == {"1": "cuda:1 → cuda:0", "3": "cuda:0 dropped"}
    expect(notebook.line).to_have_text("%gpus 1")
    notebook.row(1).click()
    assert notebook.badges() == {"1": "cuda:1 dropped", "3": "cuda:0 dropped"}
    expect(notebook.button("Use these")).to_be_disabled()
    assert notebook.ask(MASK) == "3,1"


def test_everything_by_keyboard(lab: Lab) -> None:
    notebook = open_panel(lab)
    keyboard = notebook.page.keyboard
    notebook.row(0).focus()
    for key in ("ArrowDown", "ArrowDown", "Space", "End", "Enter", "Home", "ArrowUp", "Space", "Space"):
        keyboard.press(key)
    assert notebook.badges() == {
        "0": "cuda:0 dropped",
        "1": "cuda:1 dropped",
        "2": "cuda:2 → cuda:0",
        "3": "cuda:3 → cuda:1",
    }
    expect(notebook.row(0)).to_be_focused()
    assert notebook.row(0).evaluate("row => getComputedStyle(row).outlineStyle") == "solid"
    expect(notebook.row(2)).to_have_attribute("aria-selected", "true")
    expect(notebook.row(0)).to_have_attribute("aria-selected", "false")
    for _ in range(9):  # copy, insert cell, options, clear, how many, least busy, None, Reset, Use these
        keyboard.press("Tab")
    expect(notebook.button("Use these")).to_be_focused()
    keyboard.press("Enter")
    expect(notebook.said).to_contain_text("cuda:1 = GPU 3")
    assert notebook.ask(MASK) == "2,3"
    # The notebook's own shortcuts have not heard any of it: no cell was added, cut or opened for typing.
    cells = notebook.page.evaluate("notebook.content.widgets.length")
    for where in (
        notebook.row(2),
        notebook.button("Reset"),
        notebook.button("None"),
        notebook.button("copy"),
    ):
        where.focus()
        for key in ("b", "a", "x", "m"):
            keyboard.press(key)
    assert notebook.page.evaluate("notebook.content.widgets.length") == cells


def test_the_tree_that_a_screen_reader_reads(lab: Lab) -> None:
    lab.change_machine(busy_machine())
    notebook = open_panel(lab)
    grid = notebook.page.get_by_role("grid", name="GPUs")
    expect(grid).to_have_attribute("aria-multiselectable", "true")
    rows = grid.get_by_role("row")
    expect(rows).to_have_count(5)  # the first has the headings
    assert grid.get_by_role("columnheader").all_text_contents()[3:5] == ["Utilization", "Memory"]
    cells = rows.nth(2).get_by_role("gridcell")
    assert cells.all_inner_texts()[:5] == ["1", "A100-SXM4-80GB", "cuda:1", "97 %", "60.0 / 80.0 GiB"]
    expect(notebook.page.get_by_role("spinbutton", name="How many of the least busy")).to_be_visible()


def test_least_busy_none_and_reset(lab: Lab) -> None:
    lab.change_machine(busy_machine(used=2 * GIB))
    notebook = open_panel(lab)
    notebook.panel.get_by_role("spinbutton").fill("3")
    notebook.button("Least busy").click()
    expect(notebook.line).to_have_text("%gpus 2,3,0")
    notebook.panel.get_by_role("spinbutton").fill("5")
    notebook.button("Least busy").click()
    expect(notebook.said).to_have_text("From 1 to 4 can be picked.")
    expect(notebook.line).to_have_text("%gpus 2,3,0")
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("cuda:0 = GPU 2")
    notebook.button("None").click()
    expect(notebook.line).to_have_text("%gpus none")
    assert set(notebook.badges().values()) == {"cuda:0 dropped", "cuda:1 dropped", "cuda:2 dropped"}
    notebook.button("Use none").click()
    expect(notebook.said).to_have_text("No GPU is visible to CUDA: frameworks run on the CPU.")
    assert notebook.ask(MASK) == ""
    notebook.button("Reset").click()
    expect(notebook.line).to_have_text("%gpus reset")
    assert notebook.badges() == {str(place): f"cuda:{place}" for place in range(4)}
    notebook.button("Use as started").click()
    expect(notebook.said).to_contain_text("As this process was started: CUDA_VISIBLE_DEVICES not set")
    assert notebook.ask(MASK) == "None"


def test_the_line_can_be_copied(lab: Lab) -> None:
    notebook = open_panel(lab)
    notebook.row(3).click()
    notebook.row(1).click()
    notebook.button("copy").click()
    expect(notebook.button("copied")).to_be_visible()
    assert notebook.page.evaluate("navigator.clipboard.readText()") == "%gpus 3,1"


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_a_choice_is_written_into_a_cell_and_lasts(lab: Lab, app: str) -> None:
    notebook = open_panel(lab, MASK, app=app)  # the panel stands in the last cell
    notebook.row(3).click()
    notebook.button("insert cell").click()
    assert notebook.sources()[2:4] == ["%gpu_panel", "%gpus 3"]
    notebook.row(1).click()
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("cuda:1 = GPU 1")
    notebook.button("insert cell").click()  # in place of the one before
    assert notebook.sources()[2:] == ["%gpu_panel", "%gpus 3,1"]
    notebook.page.evaluate("notebook.sessionContext.restartKernel()")
    for cell in (0, 2, 3):
        notebook.run(cell)
    assert notebook.ask(MASK) == "3,1"
    # What somebody has changed since is left alone.
    notebook.page.evaluate(
        "notebook.content.widgets[3].model.sharedModel.setSource('%gpus 3,1  # mine\\nx = 1')"
    )
    expect(notebook.button("insert cell")).to_be_visible()
    notebook.button("insert cell").click()
    assert notebook.sources()[2:5] == ["%gpu_panel", "%gpus 3,1", "%gpus 3,1  # mine\nx = 1"]


def test_figures_and_people(lab: Lab) -> None:
    lab.change_machine(busy_machine())
    notebook = open_panel(lab)
    row = notebook.row(1)
    expect(row).to_have_class(re.compile("gm-busy"))
    expect(row.locator(".gm-size")).to_have_text("60.0 / 80.0 GiB")
    expect(row.locator(".gm-percent")).to_have_text("97 %")
    expect(row.locator(".gm-heat")).to_have_text("71 °C · 391 W")
    expect(row.locator(".gm-users")).to_contain_text("59.0 GiB")
    expect(notebook.row(2).locator(".gm-users")).to_have_text("free")
    whole = row.locator(".gm-bar").evaluate("bar => bar.clientWidth")
    others = row.locator(".gm-bar .gm-others").evaluate("part => part.getBoundingClientRect().width")
    assert others / whole == pytest.approx(59 / 80, abs=0.02)
    lab.change_machine(busy_machine(used=40 * GIB, util=55))
    expect(notebook.row(0).locator(".gm-percent")).to_have_text("55 %")
    expect(notebook.row(0).locator(".gm-users")).to_have_text("in use, by whom can't be seen from here")
    chart = notebook.row(0).locator(".gm-chart-line")
    heights: set[str] = set()
    while len(heights) < 2:  # 0 % and 55 %
        notebook.page.wait_for_timeout(100)
        heights = set(re.findall(r"[ML]\d+ ([\d.]+)", str(chart.get_attribute("d"))))
    assert len(heights) == 2


def test_a_gpu_is_lost_while_looking_and_the_rest_goes_on(lab: Lab) -> None:
    notebook = open_panel(lab)
    machine = busy_machine(used=None, util=None, temperature=None, milliwatts=None)
    lab.change_machine(machine.losing(3))
    expect(notebook.row(3).locator(".gm-users")).to_have_text(
        "not answering: the driver says this GPU is lost"
    )
    expect(notebook.row(0).locator(".gm-size")).to_have_text("? / ?")
    expect(notebook.row(0).locator(".gm-percent")).to_have_text("?")
    expect(notebook.row(0)).to_have_class(re.compile("gm-unknown"))
    expect(notebook.row(1).locator(".gm-percent")).to_have_text("97 %")
    expect(notebook.line).to_have_text("%gpus")  # which GPU is cuda:0 can't be known; that is no choice
    notebook.row(3).click(force=True)  # Playwright itself waits for what is disabled
    expect(notebook.said).to_contain_text("GPU 3 can't be chosen, as it is not answering")
    expect(notebook.row(3)).to_have_attribute("aria-disabled", "true")
    picture(notebook, "lost")
    lab.change_machine(replace(machine, hangs=(("nvmlDeviceGetMemoryInfo_v2", 2, 60.0),)))
    expect(notebook.row(2).locator(".gm-users")).to_contain_text("did not come back in time")
    lab.change_machine(busy_machine(util=44))
    expect(notebook.row(0).locator(".gm-percent")).to_have_text("44 %")


def test_a_gpu_that_is_lost_after_it_was_clicked_can_be_dropped(lab: Lab) -> None:
    notebook = open_panel(lab)
    notebook.row(1).click()
    notebook.row(3).click()
    lab.change_machine(busy_machine().losing(1))
    expect(notebook.row(1)).to_have_class(re.compile("gm-problem"))
    notebook.row(1).click(force=True)
    expect(notebook.line).to_have_text("%gpus 3")
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("cuda:0 = GPU 3")


def test_what_was_clicked_can_be_dropped_as_a_whole(lab: Lab) -> None:
    notebook = open_panel(lab, "%gpus 2")
    notebook.row(1).click()
    notebook.button("clear").click()
    expect(notebook.line).to_have_text("%gpus 2")
    notebook.row(1).click()
    notebook.page.keyboard.press("Escape")
    expect(notebook.line).to_have_text("%gpus 2")
    assert notebook.badges() == {"2": "cuda:0"}


def test_whoever_is_on_a_gpu_is_named_before_it_is_taken(lab: Lab) -> None:
    lab.change_machine(busy_machine())
    notebook = open_panel(lab)
    expect(notebook.panel.locator(".gm-host")).to_contain_text("3 of 4 free")
    notebook.row(1).click()
    expect(notebook.said).to_contain_text("GPU 1 is in use. ")
    expect(notebook.panel.locator(".gm-hint")).to_have_text("not applied yet")
    notebook.row(1).click()
    expect(notebook.said).to_have_text("")


def test_what_was_said_is_not_said_of_another_choice(lab: Lab) -> None:
    notebook = open_panel(lab)
    notebook.row(1).click()
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("cuda:0 = GPU 1")
    notebook.page.wait_for_timeout(2500)
    expect(notebook.said).to_contain_text("cuda:0 = GPU 1")
    notebook.ask("%gpus 3")
    expect(notebook.said).to_have_text("")
    assert notebook.badges() == {"3": "cuda:0"}


def test_what_the_kernel_was_not_given(lab: Lab) -> None:
    kernel = lab.add_kernel("given", CUDA_VISIBLE_DEVICES="2,1")
    notebook = open_panel(lab, kernel=kernel)
    assert notebook.badges() == {"0": "not given", "1": "cuda:1", "2": "cuda:0", "3": "not given"}
    notebook.row(0).click(force=True)
    expect(notebook.said).to_contain_text("GPU 0 is outside what this process was given")
    notebook.row(2).click()
    assert notebook.badges()["2"] == "cuda:0 dropped"
    notebook.button("Reset").click()
    assert notebook.badges() == {"0": "not given", "1": "cuda:1", "2": "cuda:0", "3": "not given"}
    picture(notebook, "given")


def test_an_extension_that_is_unloaded(lab: Lab) -> None:
    notebook = open_panel(lab, "%gpus 2")
    notebook.row(1).click()
    notebook.ask("%unload_ext gpu_magic")
    expect(notebook.said).to_contain_text("gpu_magic was unloaded")
    expect(notebook.line).to_have_text("%gpus 2")  # without what was clicked
    notebook.row(3).click()
    expect(notebook.said).to_contain_text("gpu_magic was unloaded")
    expect(notebook.button("Use these")).to_be_disabled()
    expect(notebook.button("None")).to_be_disabled()
    notebook.ask("%load_ext gpu_magic")
    expect(notebook.said).to_have_text("")
    notebook.row(3).click()
    expect(notebook.line).to_have_text("%gpus 3")


def test_names_from_the_machine_stay_text(lab: Lab) -> None:
    evil = "<img src=x onerror=document.title='owned'><b>A100</b>"
    notebook = lab.open(
        LOAD,
        f"""
        from gpu_magic.testing import simulate
        held = simulate("2xA100-80GB")
        machine = held.__enter__()
        machine.gpus[1].run({evil!r}, "<i>maria</i>", 30 << 30)
        """.replace("\n        ", "\n"),
        "%gpu_panel",
    )
    for cell in range(3):
        notebook.run(cell)
    expect(notebook.row(1).locator(".gm-users")).to_contain_text("<i>maria</i>: <img src=x onerror=")
    assert (
        notebook.page.locator(".gm-panel img, .gm-panel b:not([class]), .gm-panel i:not([class])").count()
        == 0
    )
    assert "owned" not in notebook.page.title()


def test_mig_instances_stand_under_their_gpu(lab: Lab) -> None:
    lab.change_machine(Driver((replace(CARDS[0], mig=MIG), *CARDS[1:])))
    notebook = open_panel(lab)
    keys = notebook.page.eval_on_selector_all(".gm-row", "rows => rows.map(row => row.dataset.key)")
    assert keys == ["0", MIG[0].uuid, MIG[1].uuid, "1", "2", "3"]
    notebook.row(0).click(force=True)
    expect(notebook.said).to_contain_text("GPU 0 is split by MIG, so choose an instance of it")
    notebook.row(2).click()
    notebook.row(MIG[1].uuid).click()  # one process can use one, and nothing beside it
    expect(notebook.line).to_have_text(f"%gpus {MIG[1].uuid}")
    picture(notebook, "mig")
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("cuda:0 = MIG instance 0:1")
    assert notebook.ask(MASK) == MIG[1].uuid


def test_several_panels_agree(lab: Lab) -> None:
    notebook = open_panel(lab, "%gpu_panel", "import gpu_magic; gpu_magic.panel()")
    panels = notebook.page.locator(".gm-panel")
    expect(panels).to_have_count(3)
    cells = notebook.page.locator(
        ".jp-Cell"
    )  # one that was never in sight has the table, and no panel to scroll to
    panels.nth(0).locator('[data-key="3"]').click()
    for number in range(3):
        cells.nth(number + 1).scroll_into_view_if_needed()  # what nobody sees is told later
        expect(panels.nth(number).locator('[data-key="3"]')).to_have_attribute("aria-selected", "true")
        expect(panels.nth(number).locator(".gm-line code")).to_have_text("%gpus 3")
    panels.nth(2).locator('[data-key="1"]').click()
    expect(panels.nth(1).locator(".gm-line code")).to_have_text("%gpus 3,1")  # what is shown is what is used
    panels.nth(1).get_by_role("button", name="Use these").click()
    for number in range(3):
        cells.nth(number + 1).scroll_into_view_if_needed()
        expect(panels.nth(number).locator(".gm-said")).to_contain_text("cuda:1 = GPU 1")
    assert notebook.ask("%gpus 0") == "cuda:0 = GPU 0 (NVIDIA A100-SXM4-80GB, 79 GiB free)"
    for number in range(3):
        cells.nth(number + 1).scroll_into_view_if_needed()
        expect(panels.nth(number).locator('[data-key="0"] .gm-badge')).to_have_text("cuda:0")
        expect(panels.nth(number).locator('[data-key="3"] .gm-badge')).to_have_text("")


@opens_again
def test_what_one_page_has_clicked_another_shows_once_it_is_applied(lab: Lab) -> None:
    one = open_panel(lab, own_page=True)
    one.save()
    other = open_again(lab, one.page.evaluate("notebook.context.path"))
    one.row(2).click()
    other.row(3).click()
    expect(one.line).to_have_text("%gpus 2")
    expect(other.line).to_have_text("%gpus 3")
    one.button("Use these").click()
    expect(other.row(2).locator(".gm-applied")).to_have_text("cuda:0")
    expect(other.line).to_have_text("%gpus 3")
    one.page.close()


def test_a_click_with_shift_takes_all_between(lab: Lab) -> None:
    lab.change_machine(Driver((*CARDS[:2], replace(CARDS[2], mig=MIG), *CARDS[3:])))
    notebook = open_panel(lab)
    notebook.row(3).click()
    notebook.row(0).click(modifiers=["Shift"])
    expect(notebook.line).to_have_text("%gpus 3,1,0")  # not GPU 2, which is split
    notebook.row(0).click(modifiers=["Shift"])  # drops none
    expect(notebook.line).to_have_text("%gpus 3,1,0")


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_the_count_is_picked_by_enter_and_by_its_button_alone(lab: Lab, app: str) -> None:
    notebook = open_panel(lab, app=app)
    count = notebook.panel.get_by_role("spinbutton")
    count.fill("2")
    count.press("Tab")
    expect(notebook.line).to_have_text("%gpus")
    count.fill("3")
    count.press("Enter")
    expect(notebook.line).to_have_text("%gpus 0,1,2")
    expect(count).to_be_focused()


def test_the_dark_theme(lab: Lab) -> None:
    lab.change_machine(busy_machine())
    notebook = open_panel(lab, dark=True)
    notebook.row(2).click()
    light = "element => getComputedStyle(element)[%s].match(/[\\d.]+/g).slice(0, 3).map(Number)"
    ground = notebook.panel.evaluate(light % "'backgroundColor'")
    text = notebook.panel.evaluate(light % "'color'")
    assert max(ground) < 60
    assert min(text) > 180
    picture(notebook, "dark")


@pytest.mark.parametrize("width", [400, 760, 1100, 1600])
def test_every_width(lab: Lab, width: int) -> None:
    lab.change_machine(busy_machine())
    notebook = open_panel(lab, width=width, app="notebook")
    notebook.row(0).click()
    fits = notebook.panel.evaluate(
        """panel => [...panel.querySelectorAll('*')].filter(one => one.checkVisibility() && !one.closest('.gm-headings') &&
            one.getBoundingClientRect().right > panel.getBoundingClientRect().right + 1).length"""
    )
    assert fits == 0
    assert notebook.panel.evaluate("panel => panel.scrollWidth <= panel.clientWidth")
    picture(notebook, f"width-{width}")


def test_a_panel_in_an_hbox_has_its_room(lab: Lab) -> None:
    notebook = lab.open(LOAD, "import gpu_magic, ipywidgets; ipywidgets.HBox([gpu_magic.panel()])")
    notebook.run(0)
    notebook.run(1)
    expect(notebook.panel).to_be_visible()
    width = "one => one.getBoundingClientRect().width"
    room = notebook.page.locator(".widget-hbox").evaluate(width)
    assert room - 20 < notebook.panel.evaluate(width) <= room
    picture(notebook, "hbox")


@pytest.mark.parametrize("count", [1, 8, 64])
def test_few_and_many_gpus(lab: Lab, count: int) -> None:
    kernel = lab.add_kernel(f"{count}-gpus", GPU_MAGIC_SIMULATE=f"{count}xA100-80GB seed=7")
    notebook = open_panel(lab, kernel=kernel)
    expect(notebook.page.locator(".gm-row")).to_have_count(count)
    picture(notebook, f"{count}-gpus")
    last = notebook.row(count - 1)
    last.scroll_into_view_if_needed()
    last.click()
    expect(notebook.line).to_have_text(f"%gpus {count - 1}")
    if count > 8:  # all of them in a box that scrolls, with the buttons in sight
        assert notebook.panel.evaluate("panel => panel.clientHeight") < 900
        expect(notebook.button("Use these")).to_be_in_viewport()


def test_a_page_that_is_loaded_again_has_the_panel_again(lab: Lab) -> None:
    notebook = open_panel(lab, own_page=True)
    notebook.row(2).click()
    expect(notebook.line).to_have_text("%gpus 2")
    notebook.save()
    # The front end gives a kernel four seconds to tell of its widgets, which can be too few on a busy machine.
    lab.harmless.append("widget model not found")
    for _ in range(5):
        notebook.page.reload()
        notebook.wait()
        with suppress(WaitTimeoutError):
            notebook.panel.wait_for(timeout=20_000)
            break
    notebook.row(2).click()
    lab.change_machine(busy_machine())
    expect(notebook.row(1).locator(".gm-percent")).to_have_text("97 %")
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("cuda:0 = GPU 2")


def test_a_clock_that_is_wrong(lab: Lab) -> None:
    """What was told long ago is not shown before the kernel is heard: an exported page has no kernel."""
    notebook = lab.open(LOAD, "%gpu_panel", own_page=True)
    notebook.page.clock.set_fixed_time("2020-01-01")
    notebook.run(0)
    notebook.run(1)
    expect(notebook.panel).to_be_visible()
    expect(notebook.page.locator(".gpu-magic table").first).to_be_hidden()


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_a_saved_notebook_shows_the_table(lab: Lab, app: str) -> None:
    notebook = open_panel(lab, app=app, own_page=True)
    expect(notebook.page.locator(".gpu-magic table").first).to_be_hidden()
    notebook.save()
    name = notebook.page.evaluate("notebook.context.path")
    notebook.page.close()
    for kernel in json.loads(lab.request("api/kernels")):
        lab.request(f"api/kernels/{kernel['id']}", "DELETE")
    lab.harmless.append("widget model not found")  # the front end looks for it, and says so
    again = lab.open_file(name, app=app)
    expect(again.page.locator(".gpu-magic table").first).to_be_visible()
    expect(again.page.get_by_text("model not found")).to_be_hidden()
    expect(again.page.get_by_text("Loading widget")).to_be_hidden()
    expect(again.page.locator(".gm-panel")).to_have_count(0)
    if app == "lab":
        file = lab.root / name
        made = subprocess.run(
            [sys.executable, "-m", "nbconvert", "--to", "html", "--stdout", str(file)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        page = notebook.lab.browser.new_page()
        page.set_content(made, wait_until="domcontentloaded")
        expect(page.locator(".gpu-magic table").first).to_be_visible()
        page.close()


def test_a_restarted_kernel_leaves_a_panel_that_says_so(lab: Lab) -> None:
    notebook = open_panel(lab)
    notebook.page.evaluate("notebook.sessionContext.restartKernel()")
    expect(notebook.said).to_have_text(
        "The kernel of this panel has gone. After the next %load_ext gpu_magic, this panel goes on."
    )
    expect(notebook.button("None")).to_be_disabled()
    notebook.row(1).click()
    expect(notebook.line).to_have_text("%gpus")
