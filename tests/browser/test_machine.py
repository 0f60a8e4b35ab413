"""What a page shows of the machine where no kernel has loaded gpu_magic: by the Jupyter server's extension."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.lab import TOKEN, write_notebook
from tests.browser.panel import APPS, HIDE, LOAD, PICTURES
from tests.conftest import LIMIT
from tests.machine import CARDS, GIB, Driver
from tests.processes import until

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page, Route

    from tests.browser.lab import Lab

PID = "import os; print(os.getpid(), end='')"
OTHER_LANGUAGE = """
from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel

class Other(Kernel):
    implementation = language = banner = 'other'
    implementation_version = '1'
    language_info = {'name': 'other', 'mimetype': 'text/x-other', 'file_extension': '.other'}

    def do_execute(self, code, silent, *_, **__):
        return {'status': 'ok', 'execution_count': self.execution_count, 'payload': [], 'user_expressions': {}}

IPKernelApp.launch_instance(kernel_class=Other)
"""


def with_process(pid: int, memory: int = 31 * GIB) -> Driver:
    """Return the machine with a process on GPU 2."""
    used = replace(CARDS[2], used=memory, util=40, processes=((pid, memory),))
    return Driver((*CARDS[:2], used, CARDS[3]))


@APPS
def test_a_notebook_that_has_loaded_nothing_shows_the_machine(lab: Lab, app: str) -> None:
    notebook = lab.open("import os", "os.environ['CUDA_VISIBLE_DEVICES']", app=app)
    expect(notebook.chip).to_have_text("4 of 4 GPUs free")
    lab.change_machine(with_process(int(notebook.ask(PID))))
    expect(notebook.chip).to_have_text("GPU 2 · 31/80 GiB")
    notebook.chip.click()
    rows = notebook.page.locator(".gm-machine li")
    expect(rows).to_have_count(4)
    expect(rows.nth(2)).to_contain_text("31/80 GiB")
    expect(rows.nth(2)).to_contain_text("40 %")
    expect(rows.nth(2)).to_contain_text(", 31.0 GiB")
    expect(rows.nth(1)).to_contain_text("free")
    PICTURES.mkdir(parents=True, exist_ok=True)
    notebook.page.screenshot(path=PICTURES / f"{app}-machine.png")
    found = Axe().run(notebook.page, ".gm-machine").response["violations"]
    assert not found, found
    lab.change_machine(Driver(CARDS))
    rows.nth(3).get_by_role("button", name="Use in this notebook").click()
    expect(notebook.chip).to_contain_text("GPU 3")
    expect(notebook.page.locator(".gm-machine")).to_have_count(0)  # the panel has its place
    expect(notebook.page.locator(".gm-beside .gm-panel")).to_be_visible()
    assert notebook.sources()[0] == f"{LOAD}\n%gpus 3"
    assert notebook.ask("print(os.environ['CUDA_VISIBLE_DEVICES'], end='')") == "3"
    until(lambda: json.loads(lab.request("gpu_magic/gpus"))["gpus"][3]["kernels"])  # a claim


def test_each_use_in_this_notebook_replaces_the_cell_of_the_one_before(lab: Lab) -> None:
    notebook = lab.open("x = 1", own_page=True)

    def use(gpu: int) -> None:
        notebook.chip.click()
        row = notebook.page.locator(".gm-machine li").nth(gpu)
        row.get_by_role("button", name="Use in this notebook").click()
        expect(notebook.chip).to_contain_text(f"GPU {gpu}")
        notebook.page.locator(".lm-TabBar-tab", has_text="GPUs").locator(".lm-TabBar-tabCloseIcon").click()

    def restart() -> None:
        notebook.page.evaluate("notebook.sessionContext.session.kernel.restart()")
        expect(notebook.chip).to_have_text("4 of 4 GPUs free")

    use(1)
    restart()
    use(2)
    assert notebook.sources() == [f"{LOAD}\n%gpus 2", "x = 1"]
    # So does a line that the panel inserts.
    notebook.chip.click()
    notebook.row(3).click()
    notebook.button("insert cell").click()
    expect(notebook.button("inserted")).to_be_visible()
    assert notebook.sources() == [f"{LOAD}\n%gpus 2,3", "x = 1"]
    notebook.page.locator(".lm-TabBar-tab", has_text="GPUs").locator(".lm-TabBar-tabCloseIcon").click()
    # What the user has changed stays.
    changed = f"{LOAD}\n%gpus 2,3  # two"
    notebook.page.evaluate("text => notebook.content.model.sharedModel.cells[0].setSource(text)", changed)
    restart()
    use(1)
    assert notebook.sources() == [f"{LOAD}\n%gpus 1", changed, "x = 1"]


def report(page: Page, kernel: str, **use: Any) -> None:
    """Let the server say what a kernel does on the GPUs that it uses, from its next answer on."""

    def change(route: Route) -> None:
        answer = route.fetch()
        data = answer.json()
        for gpu in data["gpus"]:
            if kernel in gpu["kernels"]:
                gpu["kernels"][kernel] |= use
        route.fulfill(response=answer, json=data)

    page.unroute_all(behavior="ignoreErrors")
    page.route("**/gpu_magic/gpus*", change)


def test_an_idle_kernel_is_listed_and_can_be_shut_down_after_a_question(lab: Lab) -> None:
    other = lab.open("1 + 1", own_page=True)
    holder, kernel = int(other.ask(PID)), other.kernel()
    other.save()
    name = other.page.evaluate("notebook.context.path")
    notebook = lab.open("1 + 1", own_page=True)
    page = notebook.page
    lab.change_machine(with_process(holder))
    expect(notebook.chip).to_have_text("3 of 4 GPUs free")
    notebook.chip.click()
    page.evaluate("jupyterapp.shell.activateById('jp-running-sessions')")
    running = page.locator("#jp-running-sessions .jp-RunningSessions-item")
    label = running.filter(has_text="GPU 2: 31 GiB").locator(".jp-RunningSessions-itemLabel")
    expect(label).to_have_attribute(
        "title",
        re.compile(r"has 31 GiB on GPU 2\. It works on GPU 2 \(40 %\) now\. Its variables will be lost\."),
    )
    row = page.locator(".gm-machine li").nth(2)
    expect(row).to_contain_text(name)
    page.clock.set_system_time(time.time() + 7200)  # the page's clock is not the server's
    for idle in (599, 0, None):
        report(page, kernel, is_working=None, idle=idle)
        with page.expect_response("**/gpu_magic/gpus*"):
            pass
        expect(label).to_have_attribute(
            "title", re.compile(r"It may be working on GPU 2 \(40 %\)\. " + "It runs a cell" * (idle == 0))
        )
        expect(row.get_by_role("button", name="Shut down")).to_have_count(0)
        expect(running.filter(has_text=", idle")).to_have_count(0)
    for idle in (7200, 0):  # 0: its child trains
        report(other.page, kernel, idle=idle)
        expect(other.chip).to_have_text(f"GPU 2 · 31/80 GiB{'idle 2 h' * (idle > 0)}")
    report(page, kernel, is_working=False, idle=7200)
    row.get_by_role("button", name=f"Shut down {name}").click()
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text(
        f"{name} has 31 GiB on GPU 2. It has been idle for 2 h. Its variables will be lost."
    )
    dialog.get_by_role("button", name="Cancel").click()
    # The view of what runs has it, too.
    expect(running.filter(has_text="GPU 2: 31 GiB, idle 2 h")).to_be_visible()
    assert name in {one["path"] for one in json.loads(lab.request("api/sessions"))}
    row.get_by_role("button", name=f"Shut down {name}").click()
    dialog.get_by_role("button", name="Shut down").click()
    until(lambda: name not in {one["path"] for one in json.loads(lab.request("api/sessions"))})
    other.page.unroute_all(behavior="ignoreErrors")  # a reading can be under way
    other.page.close()


def test_all_kernels_that_have_memory_are_shut_down_at_once_and_no_others(lab: Lab) -> None:
    """Of one kernel the memory is unknown, as in a container. Another one has only claimed a GPU."""
    notebook = lab.open("1 + 1", own_page=True)
    page = notebook.page
    trainer, sleeper, hidden, claimer = (
        page.evaluate(
            """async name => {
                const how = {path: name, type: 'console', name, kernel: {name: 'python3'}};
                return (await jupyterapp.serviceManager.sessions.startNew(how)).kernel.id;
            }""",
            name,
        )
        for name in ("trainer", "sleeper", "hidden", "claimer")
    )
    gpu = {"label": "GPU 0", "typed": "0", "name": "A100", "used": 29 * GIB, "total": 80 * GIB}
    gpu |= {"utilization": 97, "is_free": False, "is_split": False, "users": []}
    working = {"memory": 29 * GIB, "is_working": True, "idle": 0}
    unknown = {"memory": None, "is_working": None, "idle": None}
    gpu["kernels"] = {trainer: working, hidden: unknown}
    claimed = gpu | {"label": "GPU 1", "typed": "1", "utilization": 0}
    resting = {"is_working": False, "idle": 7200}
    claimed["kernels"] = {sleeper: resting | {"memory": GIB}, claimer: resting | {"memory": 0, "idle": 60}}
    page.route(
        "**/gpu_magic/gpus*",
        lambda route: route.fulfill(json={"gpus": [gpu, claimed], "simulated": "", "idle_from": 600}),
    )
    page.evaluate("jupyterapp.shell.activateById('jp-running-sessions')")
    listed = page.locator("#jp-running-sessions .jp-RunningSessions-item")
    label = listed.filter(has_text="GPU 1: claimed").locator(".jp-RunningSessions-itemLabel")
    expect(label).to_have_attribute("title", "claimer has claimed GPU 1. Its variables will be lost.")
    expect(listed.filter(has_text="GPU 0: ? GiB")).to_have_count(1)
    title = page.locator("#jp-running-sessions .jp-AccordionPanel-title", has_text="Kernels with GPUs")
    title.get_by_role("button", name="Shut Down All").click()
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text(
        "sleeper has 1.0 GiB on GPU 1. It has been idle for 2 h. "
        "trainer has 29 GiB on GPU 0. It works on GPU 0 (97 %) now. Their variables will be lost."
    )
    dialog.get_by_role("button", name="Shut Down All").click()

    def running() -> set[str]:
        return {one["id"] for one in json.loads(lab.request("api/kernels"))}

    until(lambda: not {trainer, sleeper} & running())
    assert {hidden, claimer} <= running()


MARKUP = "<img src=x onerror=alert(1)>"


@pytest.mark.parametrize("look", [{"color_scheme": "dark"}, {"forced_colors": "active"}])
def test_many_gpus_and_hostile_names_fit_into_a_narrow_page(lab: Lab, look: dict[str, Any]) -> None:
    name = f"{MARKUP}{'x' * 120}.ipynb"
    write_notebook(lab.root / name, ("1 + 1",), "python3")
    other = lab.open_file(name)
    holder = other.kernel()
    other.page.close()
    notebook = lab.open("1 + 1", own_page=True, width=640, dark="color_scheme" in look)
    page, own = notebook.page, notebook.kernel()
    page.emulate_media(**look)
    figures = {"name": MARKUP, "used": 31 * GIB, "total": 80 * GIB, "utilization": 97, "is_free": False}
    who = {
        "is_split": False,
        "users": [f"{MARKUP}: {'y' * 120}"],
        "kernels": {
            own: {"memory": 2 * GIB, "is_working": False, "idle": 7200},
            holder: {"memory": 29 * GIB, "is_working": False, "idle": 7200},
        },
    }
    gpus = [{"label": f"GPU {n}", "typed": str(n), **figures, **who} for n in range(16)]
    for n, gpu in enumerate(gpus):
        gpu["utilization"] = 100 if n % 2 else 7
    page.route(
        "**/gpu_magic/gpus*",
        lambda route: route.fulfill(json={"gpus": gpus, "simulated": MARKUP, "idle_from": 600}),
    )
    expect(notebook.chip).to_contain_text("16 GPUs · 496/1280 GiB · SIMULATED")
    notebook.chip.click()
    table = page.locator(".gm-machine")
    button = table.get_by_role("button", name=f"Shut down {name}")
    expect(button).to_have_count(16)
    expect(table.get_by_role("button", name="Shut down")).to_have_count(16)  # none for the notebook's own
    page.screenshot(path=PICTURES / f"machine-{next(iter(look.values()))}.png")
    assert table.evaluate("one => one.scrollWidth <= one.clientWidth")
    # Whatever a GPU's figures are, its column is where those of the others are.
    for width in (640, 1240, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        expect(table.locator("li")).to_have_count(16)
        assert table.evaluate("one => one.scrollWidth <= one.clientWidth"), width
        lefts = "all => all.map(one => Math.round(one.getBoundingClientRect().left))"
        for part in ("name", "memory", "users") if width > 1000 else ("name", "users"):
            assert len(set(table.locator(f".gm-machine-{part}").evaluate_all(lefts))) == 1, (width, part)
    page.set_viewport_size({"width": 640, "height": 900})
    found = Axe().run(page, ".gm-machine").response["violations"]
    assert not found, found
    notebook.chip.focus()
    assert notebook.chip.evaluate("one => one === document.activeElement")
    button.last.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".jp-Dialog")).to_contain_text(f"{name} has 464 GiB on GPU 0, ")
    assert page.locator(".jp-Dialog img, .gm-machine img, .gm-chip img").count() == 0
    page.keyboard.press("Escape")
    # Its buttons have the name that it has now.
    page.evaluate(
        "([id, path]) => { for (const one of jupyterapp.serviceManager.sessions.running())"
        " if (one.kernel?.id === id) one.path = path; }",
        [holder, "re\u202enamed.ipynb"],
    )
    expect(table.get_by_role("button", name="Shut down re\ufffdnamed.ipynb")).to_have_count(16)


def test_a_console_that_is_listed_opens_as_a_console(lab: Lab) -> None:
    notebook = lab.open("1 + 1", own_page=True)
    page = notebook.page
    holder = page.evaluate(
        """async () => {
            const how = {path: 'console-1', type: 'console', name: 'Console 1', kernel: {name: 'python3'}};
            return (await jupyterapp.serviceManager.sessions.startNew(how)).kernel.id;
        }"""
    )
    gpu = {"label": "GPU 0", "typed": "0", "name": "A100", "used": 29 * GIB, "total": 80 * GIB}
    gpu |= {"utilization": 0, "is_free": False, "is_split": False, "users": []}
    gpu["kernels"] = {holder: {"memory": 29 * GIB, "is_working": False, "idle": 0}}
    split = gpu | {"label": "GPU 1", "typed": "1", "is_split": True, "kernels": {}}
    page.route(
        "**/gpu_magic/gpus*", lambda route: route.fulfill(json={"gpus": [gpu, split], "simulated": ""})
    )
    expect(notebook.chip).to_have_text("0 of 1 GPUs free")  # one that is split can't be chosen
    page.evaluate("jupyterapp.shell.activateById('jp-running-sessions')")
    listed = page.locator("#jp-running-sessions .jp-RunningSessions-item", has_text="GPU 0: 29 GiB")
    listed.locator(".jp-RunningSessions-itemLabel").click()
    expect(page.locator(".jp-CodeConsole:visible")).to_have_count(1)
    assert page.locator(".jp-Dialog").count() == 0


def test_who_is_not_logged_in_sees_nothing(lab: Lab) -> None:
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{lab.address}/gpu_magic/gpus", timeout=LIMIT)


@pytest.mark.parametrize(
    "answer", [{"status": 200, "json": {"gpus": [], "simulated": ""}}, {"status": 403}, {"status": 404}]
)
def test_where_the_server_sees_no_gpu_there_is_no_chip_and_it_is_seldom_asked(
    lab: Lab, answer: dict[str, Any]
) -> None:
    """The answers are of a server without a driver, of one that wants a new login, and of one without the extension."""
    lab.harmless.append(r"console: Failed to load resource: the server responded with a status of 40[34] .*")
    notebook = lab.open("1 + 1", own_page=True)
    page, asked = notebook.page, []

    def reply(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(**answer)

    page.route("**/gpu_magic/gpus*", reply)
    page.on("domcontentloaded", lambda _: asked.clear())  # of the page as it was
    page.clock.install()
    page.reload()
    notebook.wait()
    until(lambda: page.evaluate("true") and asked)  # which lets the request in
    notebook.run(0)
    page.clock.run_for(60_000)
    expect(notebook.chip).to_be_hidden()
    (url,) = asked
    if answer["status"] != 404:  # a driver can be mended, and users can log in
        with page.expect_request("**/gpu_magic/gpus*"):
            page.clock.run_for(300_000)
    page.clock.run_for(600_000)
    assert (len(asked) == 1) == (answer["status"] == 404)
    assert "?no_track_activity=1" in url  # so that a hub can end an idle server whose page is open


def test_a_page_that_nobody_sees_asks_nothing(lab: Lab) -> None:
    notebook = lab.open("1 + 1", own_page=True)
    page, asked = notebook.page, list[str]()
    expect(notebook.chip).to_be_visible()
    page.clock.install()
    page.evaluate(HIDE, True)
    page.on("request", lambda request: asked.append(request.url) if "gpu_magic/gpus" in request.url else None)
    page.clock.run_for(60_000)
    lab.change_machine(with_process(1))
    assert not asked
    page.evaluate(HIDE, False)
    expect(notebook.chip).to_have_text("3 of 4 GPUs free")


def test_the_server_is_asked_only_while_its_answer_is_in_sight(lab: Lab) -> None:
    notebook = lab.open(LOAD, own_page=True)
    page, asked = notebook.page, list[str]()
    expect(notebook.chip).to_have_text("4 of 4 GPUs free")
    page.on("request", lambda request: asked.append(request.url) if "gpu_magic/gpus" in request.url else None)
    page.clock.install()
    with page.expect_request("**/gpu_magic/gpus*"):  # again
        pass

    def is_asked() -> bool:
        page.evaluate("new Promise(done => new IntersectionObserver(done).observe(document.body))")
        asked.clear()
        page.clock.run_for(60_000)
        return bool(asked)

    page.evaluate("jupyterapp.commands.execute('launcher:create').then(() => true)")
    expect(notebook.chip).to_be_hidden()
    assert not is_asked()
    with page.expect_request("**/gpu_magic/gpus*"):
        page.evaluate("jupyterapp.shell.activateById(notebook.id)")
    notebook.run(0)
    expect(notebook.chip).to_contain_text("CUDA")  # its own kernel sends the figures now
    assert not is_asked()
    with page.expect_request("**/gpu_magic/gpus*"):
        page.evaluate("jupyterapp.shell.activateById('jp-running-sessions')")


def test_in_notebook_7_the_server_is_asked_while_its_list_of_kernels_is_in_sight(lab: Lab) -> None:
    context = lab.browser.new_context()
    lab.contexts.append(context)
    page, asked = context.new_page(), list[str]()
    page.on("request", lambda request: asked.append(request.url) if "gpu_magic/gpus" in request.url else None)
    page.goto(f"{lab.address}/tree?token={TOKEN}")
    page.wait_for_function("window.jupyterapp?.started")
    page.evaluate("jupyterapp.started.then(() => true)")
    assert not asked
    with page.expect_request("**/gpu_magic/gpus*"):
        page.get_by_role("tab", name="Running").click()


def test_a_kernel_of_another_language_shows_the_machine_and_chooses_nothing(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(OTHER_LANGUAGE)
    name = lab.add_kernel("other", str(tmp_path), module="other")
    notebook = lab.open("print 1", kernel=name, own_page=True)
    expect(notebook.chip).to_have_text("4 of 4 GPUs free")
    expect(notebook.chip).to_have_css("border-top-style", "solid")  # no kernel has sent its style
    notebook.chip.click()
    expect(notebook.page.locator(".gm-machine li")).to_have_count(4)
    expect(notebook.page.get_by_role("button", name="Use in this notebook")).to_have_count(0)


def test_a_driver_that_hangs_does_not_stop_the_server(lab: Lab) -> None:
    lab.change_machine(Driver(CARDS, hangs=(("nvmlDeviceGetUtilizationRates", 1, float(LIMIT)),)))
    until(lambda: json.loads(lab.request("gpu_magic/gpus"))["gpus"][1]["used"] is None)  # of a later second
    assert json.loads(lab.request("gpu_magic/gpus"))["gpus"][0]["used"] == CARDS[0].used
    assert lab.request("api/status")
