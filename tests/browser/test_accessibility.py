"""What people with a screen reader, a keyboard or weak eyes get of the panel, in all its states, light and dark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from gpu_magic import choose
from gpu_magic.testing import start_cuda
from tests.browser.panel import busy_machine, open_panel
from tests.browser.standalone import detail_of, panel_page, row_of, state_of, tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Browser, Page

    from gpu_magic.testing import Machine
    from tests.browser.lab import Lab

THEMES = ["light", "dark"]


def found_by_axe(page: Page) -> list[str]:
    """Return what axe-core finds wrong with the panel: its rule, and the element."""
    page.wait_for_timeout(100)  # the layout follows the width
    found = Axe().run(page, ".gm-panel").response["violations"]
    return [
        f"{rule['id']}: {node['html'][:150]}: {node['failureSummary']}"
        for rule in found
        for node in rule["nodes"]
    ]


def with_people(machine: Machine) -> None:
    machine.gpus[1].run("train.py", "maria", 60 << 30, work=97)
    for owner in ("chen", "tom", "aisha", "maria"):
        machine.gpus[2].run("eval.py", owner, 9 << 30, work=12)


def frozen(machine: Machine) -> None:
    with_people(machine)
    start_cuda()


def click(*rows: int) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        for row in rows:
            page.locator(".gm-row").nth(row).click()

    return act


def ask_to_restart(page: Page) -> None:
    click(0)(page)
    page.locator(".gm-buttons .gm-use").click()
    assert page.get_by_role("alertdialog").is_visible()


WAITING = (
    "Waiting for GPU 1 and GPU 2, 2 min: GPU 1 (in use by maria for 3 h), GPU 2 (claimed by chen: "
    "a-notebook-with-a-name-that-is-longer-than-most-others.ipynb, since 14:02). Next look in 3 s."
)


def wait(page: Page) -> None:
    click(1, 2)(page)
    page.get_by_role("button", name="Wait for them").click()
    tell(page, state_of(FOUR, with_people), waiting=WAITING)
    assert page.get_by_role("group", name="Waiting").is_visible()


def lose_kernel(page: Page) -> None:
    click(2)(page)
    page.evaluate("lose()")


FOUR = "4xA100-80GB"
MIG = "1xA100-80GB(1g.10gb,3g.40gb)+1xA100-80GB"
# A machine, what is done to it, and what is done on the page.
STATES: dict[str, tuple[str, Callable[[Machine], object], Callable[[Page], object]]] = {
    "normal": (FOUR, lambda _machine: None, lambda _page: None),
    "busy": (FOUR, with_people, lambda _page: None),
    "clicked": (FOUR, with_people, click(1, 0)),
    "hovered": (FOUR, with_people, lambda page: page.locator(".gm-row .gm-plot").nth(1).hover()),
    "focused": (FOUR, with_people, lambda page: page.keyboard.press("Tab")),
    "mig": (MIG, lambda _machine: None, click(2)),
    "lost": (FOUR, lambda machine: machine.gpus[3].lose(), click(0)),
    "frozen": (FOUR, frozen, ask_to_restart),
    "none": (FOUR, lambda machine: machine.gpus.clear(), lambda _page: None),
    "held": (FOUR, with_people, click(1, 2)),
    "waiting": (FOUR, with_people, wait),
    "gone": (FOUR, with_people, lose_kernel),
    "many": ("20xA100-80GB", with_people, click(1)),
}


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("state", STATES)
def test_axe_finds_nothing_in_any_state(chromium: Browser, state: str, theme: str) -> None:
    profile, prepare, act = STATES[state]
    with panel_page(chromium, state_of(profile, prepare), theme=theme) as page:
        act(page)
        assert found_by_axe(page) == []
        page.evaluate("box.style.width = '400px'")
        assert found_by_axe(page) == []


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("profile", [FOUR, MIG, "20xA100-80GB"])
def test_axe_finds_nothing_where_rows_are_open(chromium: Browser, profile: str, theme: str) -> None:
    state = state_of(profile, lambda _machine: None if profile == MIG else with_people(_machine))
    for samples in state["history"].values():
        samples[:] = [50] * 180
    with panel_page(chromium, state, theme=theme) as page:
        click(1)(page)  # what is chosen has another ground
        keys = [row["key"] for row in state["rows"][:3]]
        for key in keys:
            page.locator(f'.gm-row[data-key="{key}"] .gm-chevron').click()
        tell(page, state, details={key: detail_of() for key in keys})
        page.get_by_role("button", name="End train.py").first.click()
        page.locator(".gm-figure:visible .gm-plot").first.hover()
        assert found_by_axe(page) == []
        page.evaluate("box.style.width = '400px'")
        assert found_by_axe(page) == []


def test_an_open_row_is_told_with_what_it_opens(chromium: Browser) -> None:
    state = state_of(FOUR, with_people)
    with panel_page(chromium, state) as page:
        button = page.get_by_role("row").nth(2).get_by_role("button", name="Details")
        button.click()
        tell(page, state, details={"1": detail_of()})
        cell = page.get_by_role("gridcell", name="Details of GPU 1")
        assert button.get_attribute("aria-controls") == cell.get_attribute("id")
        assert cell.get_by_role("list", name="Processes").get_by_role("listitem").count() == 3
        assert cell.get_by_role("list", name="Variables of this kernel").get_by_role("listitem").count() == 2


@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_nothing_where_gpus_were_not_given_and_some_were_chosen(
    chromium: Browser, theme: str
) -> None:
    with panel_page(chromium, state_of(FOUR, with_people, mask="2,1"), theme=theme) as page:
        assert found_by_axe(page) == []
        click(2)(page)
        assert found_by_axe(page) == []


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_in_jupyterlab(lab: Lab, dark: bool) -> None:
    lab.change_machine(busy_machine())
    notebook = open_panel(lab, "%gpus 1", dark=dark)
    notebook.row(2).click()
    notebook.row(1).locator(".gm-chevron").click()
    notebook.page.locator(".gm-detail-processes").get_by_text("in use").or_(
        notebook.page.locator(".gm-process")
    ).first.wait_for()
    notebook.page.wait_for_timeout(1500)  # the theme's colors fade in
    assert found_by_axe(notebook.page) == []


def tree(page: Page) -> str:
    snapshot: str = page.locator(".gm-panel").aria_snapshot()
    return snapshot


def test_a_figure_is_announced_with_the_name_of_its_column(chromium: Browser) -> None:
    state: dict[str, Any] = state_of(FOUR, with_people)
    row_of(state, "1").update({"used": 60.5, "utilization": 95, "temperature": 71, "power": 391})
    with panel_page(chromium, state) as page:
        name = page.get_by_role("row").nth(2)
        said = tree(page).split("\n")
        row = next(line for line in said if "maria: train.py" in line and "row" in line)
    assert name
    assert "GPU 1" in row
    assert "utilization 95 %" in row
    assert "memory 60.5 / 80.0 GiB" in row
    assert "heat and power 71 °C · 391 W" in row


def test_all_users_of_a_gpu_are_read_and_seen_where_the_keyboard_is(chromium: Browser) -> None:
    with panel_page(chromium, state_of(FOUR, with_people)) as page:
        row = page.locator('[data-key="2"]')
        last = row.locator(".gm-users span", has_text="maria: eval.py")
        assert "maria: eval.py" in next(line for line in tree(page).split("\n") if "chen: eval.py" in line)
        assert row.locator(".gm-more").is_visible()
        assert last.bounding_box()["height"] <= 1
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        assert last.bounding_box()["height"] > 10
        assert not row.locator(".gm-more").is_visible()


def with_a_choice(machine: Machine) -> None:
    with_people(machine)
    choose("0,3")


def test_what_is_not_applied_yet_is_announced(chromium: Browser) -> None:
    with panel_page(chromium, state_of(FOUR, with_a_choice)) as page:
        click(1)(page)
        assert page.get_by_role("status").filter(has_text="not applied yet").count() == 1
        click(0)(page)
        said = tree(page)
    for cell in (
        "cuda:0 not applied yet: dropped",
        "not applied yet: cuda:1",
        "cuda:1 → not applied yet: cuda:0",
    ):
        assert f'gridcell "{cell}"' in said


# How a badge is written: its weight, and whether it is framed.
WRITTEN = (
    "one => { const {fontWeight, outlineStyle} = getComputedStyle(one); return [fontWeight, outlineStyle]; }"
)


@pytest.mark.parametrize("colors", [{}, {"theme": "light"}, {"theme": "dark"}, {"forced_colors": "active"}])
def test_what_is_not_applied_yet_does_not_look_applied(chromium: Browser, colors: dict[str, Any]) -> None:
    with panel_page(chromium, state_of(FOUR, with_a_choice), **colors) as page:
        click(1)(page)
        assert page.locator('[data-key="0"] .gm-applied').evaluate(WRITTEN) == ["600", "none"]
        assert page.locator('[data-key="1"] .gm-pending').evaluate(WRITTEN) == ["400", "dashed"]
        click(0)(page)
        moved = page.locator('[data-key="3"]')
        assert moved.locator(".gm-applied").evaluate(WRITTEN) == ["400", "none"]
        assert moved.locator(".gm-pending").evaluate(WRITTEN) == ["400", "dashed"]
