"""What a user sets in the settings editor of JupyterLab and Notebook 7, which takes effect without a reload."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.lab import PATIENCE, TOKEN
from tests.browser.panel import LOAD, PICTURES
from tests.browser.test_rerun import START_CUDA, again, agree, last_output
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Locator, Page, Route

    from tests.browser.lab import Lab

PLUGIN = "gpu-magic:chip"
SECTION = ".jp-RunningSessions .jp-AccordionPanel-title"


@pytest.fixture
def settings(lab: Lab) -> Iterator[Callable[..., None]]:
    """Return what writes the user's settings, as they are before a page is opened."""
    yield lambda **values: lab.write_settings(PLUGIN, **values)
    lab.write_settings(PLUGIN)


def open_editor(page: Page) -> Locator:
    """Open the settings editor; return the part of gpu_magic."""
    page.evaluate("jupyterapp.commands.execute('settingeditor:open', {query: 'GPUs'}).then(() => true)")
    return page.locator(".jp-SettingsPanel", has=page.get_by_role("heading", name="GPUs"))


def asked(page: Page) -> list[str]:
    """Return where a page's requests for the GPUs are noted, from now on."""
    found = list[str]()
    page.on("request", lambda request: found.append(request.url) if "gpu_magic/gpus" in request.url else None)
    return found


@pytest.mark.usefixtures("settings")
def test_off_hides_the_chip_and_the_list_and_asks_nothing_but_leaves_panels(lab: Lab) -> None:
    notebook = lab.open(LOAD, "%gpu_panel", own_page=True)
    page, chip = notebook.page, notebook.page.locator(".gm-chip:visible")
    section = page.locator(SECTION, has_text="Kernels with GPUs")
    page.evaluate("jupyterapp.shell.activateById('jp-running-sessions')")
    expect(section).to_have_count(1)
    notebook.run(0)
    notebook.run(1)
    expect(chip).to_contain_text("CUDA")
    chip.click()
    expect(page.locator(".gm-panel")).to_have_count(2)
    page.evaluate(
        "jupyterapp.commands.execute('docmanager:new-untitled', {type: 'notebook'}).then(() => true)"
    )
    editor = open_editor(page)
    expect(editor).to_contain_text("Seconds between two readings")
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / "lab-settings.png")
    switch = editor.get_by_role("checkbox", name="Show the GPUs")
    switch.uncheck()
    expect(section).to_have_count(0)
    expect(page.locator(".gm-panel")).to_have_count(
        1
    )  # that of the cell; the one beside belonged to the chip
    page.evaluate("jupyterapp.shell.activateById(notebook.id)")
    expect(notebook.panel).to_be_visible()
    expect(chip).to_have_count(0)
    requests = asked(page)
    notebook.row(3).click()
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("cuda:0 = GPU 3")
    expect(chip).to_have_count(0)
    page.screenshot(path=PICTURES / "lab-settings-off.png")
    page.clock.install()
    page.clock.run_for(60_000)
    assert not requests
    open_editor(page)
    switch.check()
    page.clock.run_for(5_000)  # the editor saves after a while
    expect(section).to_have_count(1)
    page.evaluate("jupyterapp.shell.activateById(notebook.id)")
    expect(chip).to_contain_text("GPU 3")


@pytest.mark.usefixtures("settings")
def test_in_notebook_7_a_change_reaches_the_pages_of_notebooks(lab: Lab) -> None:
    notebook = lab.open("1 + 1", app="notebook")
    chip = notebook.page.locator(".gm-chip:visible")
    expect(chip).to_have_text("4 of 4 GPUs free")
    page = notebook.page.context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{lab.address}/tree?token={TOKEN}")
    page.wait_for_function("window.jupyterapp?.started")
    page.evaluate("jupyterapp.restored.then(() => true)")
    page.get_by_role("tab", name="Running").click()
    section = page.locator(SECTION, has_text="Kernels with GPUs")
    expect(section).to_have_count(1)
    switch = open_editor(page).get_by_role("checkbox", name="Show the GPUs")
    page.screenshot(path=PICTURES / "notebook-settings.png")
    for is_on in (False, True, False):
        switch.set_checked(is_on)
        expect(section).to_have_count(int(is_on))
        expect(chip).to_have_count(int(is_on))
    page.close()


@pytest.mark.timeout(240)  # waits for readings, and loads pages
def test_the_seconds_between_two_readings(lab: Lab, settings: Callable[..., None]) -> None:
    settings(interval=100)
    notebook = lab.open("1 + 1", own_page=True)
    page = notebook.page
    page.clock.install()
    page.reload()
    notebook.wait()
    expect(notebook.chip).to_have_text("4 of 4 GPUs free")
    requests = asked(page)
    page.clock.run_for(70_000)
    assert not requests
    with page.expect_request("**/gpu_magic/gpus*"):
        page.clock.run_for(30_000)
    open_editor(page).locator("input:not([type=checkbox])").fill("20")
    with page.expect_request(lambda request: PLUGIN in request.url and request.method == "PUT"):
        page.clock.run_for(5_000)  # the editor saves after a while
    page.evaluate("jupyterapp.shell.activateById(notebook.id)")
    expect(notebook.chip).to_be_visible()
    requests.clear()
    page.clock.run_for(50_000)
    until(lambda: page.evaluate("true") and len(requests) > 1)


def test_cells_run_again_also_while_it_is_off(lab: Lab, settings: Callable[..., None]) -> None:
    settings(enabled=False)
    notebook = lab.open(LOAD, "%gpus 2", START_CUDA, "%gpus 3", own_page=True)
    for cell in range(4):
        notebook.run(cell)
    again(notebook).click()
    agree(notebook.page.locator(".jp-Dialog"))
    expect(last_output(notebook)).to_contain_text("cuda:0 = GPU 3")
    assert notebook.page.locator(".gm-chip:visible").count() == 0


def test_a_server_without_the_schema_has_the_defaults(lab: Lab) -> None:
    lab.harmless.append(r"console: .*")
    notebook = lab.open("1 + 1", own_page=True)
    page, answered = notebook.page, list[str]()

    def without(route: Route) -> None:
        answered.append(route.request.url)
        route.fulfill(status=404, json={"message": "Schema not found"})

    def others(route: Route) -> None:
        answer = route.fetch()
        listed = [one for one in answer.json()["settings"] if one["id"] != PLUGIN]
        route.fulfill(response=answer, json={"settings": listed})

    page.route("**/api/settings?*", others)
    page.route(f"**/api/settings/{PLUGIN}*", without)
    page.reload()
    notebook.wait()
    expect(notebook.chip).to_have_text("4 of 4 GPUs free")
    until(lambda: answered)
