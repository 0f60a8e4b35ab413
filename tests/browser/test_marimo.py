"""In marimo there is no IPython: the functions, in an export without a page, and the panel in marimo's own page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from gpu_magic.claims.held import Claims
from gpu_magic.devices.notebooks import notebook_of
from gpu_magic.devices.processes import ProcessNames, read_process
from tests.browser.lab import free_port
from tests.browser.panel import Panels
from tests.conftest import LIMIT, ROOT
from tests.machine import clean_environment
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

NOTEBOOK = """
import marimo

app = marimo.App()


@app.cell
def _():
    import os
    import marimo as mo
    import gpu_magic
    return gpu_magic, mo, os


@app.cell
def _(choice, gpu_magic, os):
    print(os.environ["CUDA_VISIBLE_DEVICES"], choice.devices[0].index)
    gpu_magic.guard()
    return


@app.cell
def _(gpu_magic):
    gpu_magic.gpus()
    return


@app.cell
def _(gpu_magic):
    choice = gpu_magic.choose("0")
    choice
    return (choice,)


@app.cell
def _(choice, gpu_magic, mo):
    choice
    mo.ui.anywidget(gpu_magic.panel())
    return


if __name__ == "__main__":
    app.run()
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "notebook.py").write_text(NOTEBOOK)
    own = {"HOME": str(tmp_path), "MARIMO_SKIP_UPDATE_CHECK": "1", "PYTHONPATH": str(ROOT)}
    return clean_environment("XDG_") | own | {"GPU_MAGIC_SIMULATE": "4xA100-80GB clock=0"}


def test_an_export_without_a_page_has_the_table_the_choice_and_the_guard(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    words = [sys.executable, "-m", "marimo", "export", "html", "notebook.py", "-o", "out.html"]
    done = subprocess.run(
        words, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r'"session": (\{.*\}),$', (tmp_path / "out.html").read_text(), re.MULTILINE)
    assert found
    outputs = [next(iter(cell["outputs"][0]["data"].values())) for cell in json.loads(found[1])["cells"]]
    assert "CUDA not started: the choice can still change" in outputs[1]
    assert "SIMULATED machine (4xA100-80GB)" in outputs[2]
    shown = re.sub("</?span.*?>", "", outputs[3])  # which keeps figures with their units
    assert "cuda:0 = GPU 0 (SIMULATED NVIDIA A100-SXM4-80GB, 79 GiB free)" in shown
    assert "<marimo-anywidget" in outputs[4]


@pytest.fixture
def address(tmp_path: Path, environment: dict[str, str], request: pytest.FixtureRequest) -> Iterator[str]:
    """Start marimo, to edit or to run; return where its page is."""
    address, log = f"http://127.0.0.1:{(port := free_port())}", tmp_path / "marimo.log"
    words = [sys.executable, "-m", "marimo", request.param, "notebook.py", "--headless", "--no-token"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*words, "--port", str(port)], cwd=tmp_path, env=environment, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            with suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=LIMIT):
                break
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(LIMIT)


class Page(Panels):
    """A page of marimo with a panel."""

    def __init__(self, browser: Browser, address: str) -> None:
        super().__init__(browser.new_context(viewport={"width": 1240, "height": 1600}).new_page())
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(address)

    def choose(self, key: int, says: str) -> None:
        self.row(key).click()
        self.button("Use these").click()
        expect(self.said).to_contain_text(says)


@pytest.mark.parametrize("address", ["edit"], indirect=True)
def test_a_click_chooses_also_after_its_cell_has_run_again(chromium: Browser, address: str) -> None:
    page = Page(chromium, address)
    expect(page.page.get_by_text("gpu_magic.panel()")).to_be_visible()
    page.page.keyboard.press("Control+Shift+r")
    page.choose(3, "cuda:1 = GPU 3")
    old = page.panel.element_handle()
    page.page.get_by_text("gpu_magic.panel()").click()
    page.page.keyboard.press("Control+Enter")
    page.page.wait_for_function("old => !old.isConnected", arg=old)
    page.choose(1, "cuda:2 = GPU 1")
    assert page.errors == []
    page.page.context.close()


def claims() -> set[tuple[Any, str]]:
    """Return who claims GPUs: the process and its notebook."""
    return {(one.pid, one.notebook) for found in Claims().everybodys().values() for one in found}


@pytest.mark.parametrize("address", ["edit"], indirect=True)
def test_a_notebook_is_named_also_after_it_was_renamed(
    chromium: Browser, address: str, tmp_path: Path
) -> None:
    page, headers = Page(chromium, address), dict[str, str]()
    page.page.on("request", lambda request: headers.update(request.headers))  # with those of the session
    expect(page.page.get_by_text("gpu_magic.panel()")).to_be_visible()
    page.page.keyboard.press("Control+Shift+r")
    page.choose(3, "cuda:1 = GPU 3")
    ((pid, name),) = claims()
    found = read_process(pid)
    assert found.is_kernel
    assert (name, found.notebook, ProcessNames([found]).name(found)) == ("notebook.py",) * 3
    new = {"filename": str(tmp_path / "new.py")}
    assert page.page.request.post(f"{address}/api/kernel/rename", headers=headers, data=new).ok
    until(lambda: claims() == {(pid, "new.py")})
    (claim, *_) = next(iter(Claims().everybodys().values()))
    assert notebook_of(found, [claim]) == "new.py"
    page.page.context.close()


@pytest.mark.parametrize("address", ["run"], indirect=True)
def test_each_page_of_an_app_has_a_panel_and_all_have_one_choice(chromium: Browser, address: str) -> None:
    first = Page(chromium, address)
    first.choose(3, "cuda:1 = GPU 3")
    second = Page(chromium, address)
    expect(second.row(0).locator(".gm-badge")).to_have_text("cuda:0")
    second.choose(1, "cuda:1 = GPU 1")
    expect(first.row(1).locator(".gm-badge")).to_have_text("cuda:1")
    second.page.context.close()
    first.choose(2, "cuda:2 = GPU 2")
    first.page.context.close()
