"""How a page warns of kernels that the server will shut down, because they hold GPU memory idle."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.lab import start_lab
from tests.browser.panel import APPS, HIDE, PICTURES
from tests.machine import CARDS, GIB, Driver, environment
from tests.processes import sees_processes, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from tests.browser.lab import Lab

pytestmark = sees_processes


@pytest.fixture(params=["10m", pytest.param("park:10m", marks=pytest.mark.nightly)])
def culling(native: Path, tmp_path: Path, chromium: Browser, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Start a server that warns of a kernel once it has been idle for ten seconds."""
    Driver(CARDS).write(tmp_path / "machine")
    options = f"--GpuMagic.cull_idle_gpu={request.param}", "--GpuMagic.cull_idle_gpu_warn=590s"
    with start_lab(tmp_path, chromium, environment(native, tmp_path / "machine"), *options) as lab:
        yield lab
        lab.close_pages(keep_shared=False)


def look_again(page: Page) -> None:
    """Let the page ask the server, as it does when its user comes back."""
    with page.expect_response("**/gpu_magic/culling*"):
        page.evaluate(HIDE, True)
        page.evaluate(HIDE, False)


@APPS
def test_a_page_warns_and_keeps_the_kernel(culling: Lab, app: str, request: pytest.FixtureRequest) -> None:
    if app == "notebook":
        culling.write_settings("gpu-magic:chip", enabled=False)  # a user who wants no chip is warned
    parks = "park" in request.node.name.partition("[")[2]
    notebook = culling.open("1 + 1", app=app)
    page, kernel = notebook.page, notebook.kernel()
    pid = int(notebook.ask("import os; print(os.getpid(), end='')"))
    held = replace(CARDS[2], used=31 * GIB, processes=((pid, 31 * GIB, 0),))
    culling.change_machine(Driver((*CARDS[:2], held, CARDS[3])))
    until(lambda: json.loads(culling.request("gpu_magic/culling"))["kernels"])
    look_again(page)
    toast = page.locator(".Toastify__toast")
    lost = (
        "it is asked to park its variables" if parks else "its kernel is shut down and its variables are lost"
    )
    expect(toast).to_have_text(
        re.compile(
            rf"\w+\.ipynb is idle with 31 GiB on GPU 2\. At \d\d:\d\d( [AP]M)? {lost}\.Keep for 10 min"
        )
    )
    PICTURES.mkdir(parents=True, exist_ok=True)
    for look in ("light", "dark"):
        if look == "dark":
            notebook.make_dark()
        toast.evaluate(
            "one => Promise.all(one.getAnimations().map(moves => moves.finished)).then(() => true)"
        )
        page.screenshot(path=PICTURES / f"{app}-culling-{'park-' * parks}{look}.png")
        found = Axe().run(page, ".Toastify__toast").response["violations"]
        assert not found, found
    look_again(page)
    expect(toast).to_have_count(1)  # it is not shown again
    toast.get_by_role("button", name="Keep for 10 min").click()
    expect(toast).to_have_count(0)
    until(lambda: f"kernel {kernel} is kept for 10 min" in (culling.root.parent / "server.log").read_text())
    # It is warned of again, used again, warned of, and shut down.
    facts = {"memory": None, "idle": 10, "left": 9, "gpus": ["GPU 0", "GPU 1", "GPU 2"]}
    answer = {"parks": parks, "after": "10 min", "kernels": {}, "ended": {}}
    now = answer.copy()
    page.route("**/gpu_magic/culling*", lambda route: route.fulfill(json=now))
    warning = answer | {"kernels": {kernel: facts}}
    for shown, told in (
        (0, answer),
        (1, warning),
        (0, answer),
        (1, warning),
        (1, answer | {"ended": {kernel: "a.ipynb"}}),
    ):
        now.update(told)
        look_again(page)
        expect(toast).to_have_count(shown)
        if told is warning:
            expect(toast).to_contain_text("is idle with ? GiB on 3 GPUs.")
    expect(toast).to_contain_text("was shut down, because it held GPU memory and was idle for 10 min.")
    expect(toast.get_by_role("button", name="Keep")).to_have_count(0)
    assert not culling.complaints
