"""What people with a screen reader, a keyboard or weak eyes get of the panel, in all its states, light and dark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from gpu_magic import choose
from gpu_magic.testing import start_cuda
from tests.browser.standalone import detail_of, fill, open_rows, row_of, state_of, tell, with_people

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from gpu_magic.testing import Machine
    from tests.browser.standalone import BarePages

# Each theme and each of two widths; all four at night.
LOOKS = [
    ("light", 1400),
    ("dark", 400),
    pytest.param("light", 400, marks=pytest.mark.nightly),
    pytest.param("dark", 1400, marks=pytest.mark.nightly),
]
in_all_looks = pytest.mark.parametrize(("theme", "width"), LOOKS)


def found_by_axe(page: Page, part: str = ".gm-panel") -> list[str]:
    """Return what axe-core finds wrong: its rule, and the element."""
    page.evaluate(
        "new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
    )  # the layout follows the width
    found = Axe().run(page, part).response["violations"]
    return [
        f"{rule['id']}: {node['html'][:150]}: {node['failureSummary']}"
        for rule in found
        for node in rule["nodes"]
    ]


def frozen(machine: Machine) -> None:
    with_people(machine)
    start_cuda()


def with_a_choice(machine: Machine) -> None:
    with_people(machine)
    choose("0,3")


def click(*rows: int) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        for row in rows:
            page.locator(".gm-row").nth(row).click()

    return act


def hover(page: Page) -> None:
    row = page.locator(".gm-row").nth(1)
    plot = row.locator(".gm-plot")
    (plot if plot.is_visible() else row).hover()


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


def open_three(profile: str, prepare: Callable[[Machine], object]) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        state = fill(state_of(profile, prepare))
        tell(page, state)
        click(1)(page)  # what is chosen has another ground
        open_rows(page, state, *[row["key"] for row in state["rows"][:3]])
        page.get_by_role("button", name="End train.py").first.click()
        page.locator(".gm-figure:visible .gm-plot").first.hover()

    return act


def nothing(_: object) -> None:
    pass


FOUR, TWENTY = "4xA100-80GB", "20xA100-80GB"
MIG = "1xA100-80GB(1g.10gb,3g.40gb)+1xA100-80GB"
# A machine, what is done to it, and what is done on the page; then what the kernel was given.
STATES: dict[str, tuple[Any, ...]] = {
    "normal": (FOUR, nothing, nothing),
    "busy": (FOUR, with_people, nothing),
    "clicked": (FOUR, with_people, click(1, 0)),
    "hovered": (FOUR, with_people, hover),
    "focused": (FOUR, with_people, lambda page: page.keyboard.press("Tab")),
    "mig": (MIG, nothing, click(2)),
    "lost": (FOUR, lambda machine: machine.gpus[3].lose(), click(0)),
    "frozen": (FOUR, frozen, ask_to_restart),
    "none": (FOUR, lambda machine: machine.gpus.clear(), nothing),
    "held": (FOUR, with_people, click(1, 2)),
    "waiting": (FOUR, with_people, wait),
    "gone": (FOUR, with_people, lose_kernel),
    "many": (TWENTY, with_people, click(1)),
    "not given": (FOUR, with_people, nothing, "2,1"),
    "not given, clicked": (FOUR, with_people, click(2), "2,1"),
    "open": (FOUR, with_people, open_three(FOUR, with_people)),
    "open, mig": (MIG, nothing, open_three(MIG, nothing)),
    "open, many": (TWENTY, with_people, open_three(TWENTY, with_people)),
}


@in_all_looks
@pytest.mark.parametrize("state", STATES)
def test_axe_finds_nothing_in_any_state(bare: BarePages, state: str, theme: str, width: int) -> None:
    profile, prepare, act, *mask = STATES[state]
    page = bare(state_of(profile, prepare, mask=mask[0] if mask else None), theme=theme)
    page.evaluate("width => { box.style.width = `${width}px`; }", width)
    act(page)
    assert found_by_axe(page) == []


def test_an_open_row_is_told_with_what_it_opens(bare: BarePages) -> None:
    state = state_of(FOUR, with_people)
    page = bare(state)
    button = page.get_by_role("row").nth(2).get_by_role("button", name="Details")
    button.click()
    tell(page, state, details={"1": detail_of()})
    cell = page.get_by_role("gridcell", name="Details of GPU 1")
    assert button.get_attribute("aria-controls") == cell.get_attribute("id")
    assert cell.get_by_role("list", name="Processes").get_by_role("listitem").count() == 3
    assert cell.get_by_role("list", name="Variables of this kernel").get_by_role("listitem").count() == 2


def tree(page: Page) -> str:
    snapshot: str = page.locator(".gm-panel").aria_snapshot()
    return snapshot


def test_the_tree_that_a_screen_reader_reads(bare: BarePages) -> None:
    state = state_of(FOUR, with_people)
    row_of(state, "1").update({"used": 60.5, "utilization": 95, "temperature": 71, "power": 391})
    page = bare(state)
    grid = page.get_by_role("grid", name="GPUs")
    assert grid.get_attribute("aria-multiselectable") == "true"
    assert grid.get_by_role("row").count() == 5  # the first has the headings
    assert grid.get_by_role("columnheader").all_text_contents()[3:5] == ["Utilization", "Memory"]
    cells = grid.get_by_role("row").nth(2).get_by_role("gridcell").all_inner_texts()
    assert cells[:5] == ["1", "A100-SXM4-80GB", "cuda:1", "95 %", "60.5 / 80.0 GiB"]
    # A figure is announced with the name of its column.
    row = next(line for line in tree(page).split("\n") if "maria: train.py" in line and "row" in line)
    for said in ("GPU 1", "utilization 95 %", "memory 60.5 / 80.0 GiB", "heat and power 71 °C · 391 W"):
        assert said in row


def test_all_users_of_a_gpu_are_read_and_seen_where_the_keyboard_is(bare: BarePages) -> None:
    page = bare(state_of(FOUR, with_people))
    row = page.locator('[data-key="2"]')
    last = row.locator(".gm-users span", has_text="maria: eval.py")
    assert "maria: eval.py" in next(line for line in tree(page).split("\n") if "chen: eval.py" in line)
    assert row.locator(".gm-more").is_visible()
    assert last.bounding_box()["height"] <= 1
    for key in ("Tab", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    assert last.bounding_box()["height"] > 10
    assert not row.locator(".gm-more").is_visible()


# How a badge is written: its weight, and whether it is framed.
WRITTEN = (
    "one => { const {fontWeight, outlineStyle} = getComputedStyle(one); return [fontWeight, outlineStyle]; }"
)


@pytest.mark.parametrize("colors", [{"theme": "light"}, {"forced_colors": "active"}], ids=str)
def test_what_is_not_applied_yet_is_announced_and_does_not_look_applied(
    bare: BarePages, colors: dict[str, Any]
) -> None:
    page = bare(state_of(FOUR, with_a_choice), **colors)
    click(1)(page)
    assert page.get_by_role("status").filter(has_text="not applied yet").count() == 1
    assert page.locator('[data-key="0"] .gm-applied').evaluate(WRITTEN) == ["600", "none"]
    assert page.locator('[data-key="1"] .gm-pending').evaluate(WRITTEN) == ["400", "dashed"]
    click(0)(page)
    moved = page.locator('[data-key="3"]')
    assert moved.locator(".gm-applied").evaluate(WRITTEN) == ["400", "none"]
    assert moved.locator(".gm-pending").evaluate(WRITTEN) == ["400", "dashed"]
    said = tree(page)
    for cell in (
        "cuda:0 not applied yet: dropped",
        "not applied yet: cuda:1",
        "cuda:1 → not applied yet: cuda:0",
    ):
        assert f'gridcell "{cell}"' in said
