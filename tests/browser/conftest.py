"""Real JupyterLab and Notebook 7 in headless Chromium, on a machine whose driver libraries are the pretend ones."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

import pytest
from playwright.sync_api import sync_playwright

from tests.conftest import ROOT
from tests.machine import CARDS, Driver, environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, BrowserContext, Page

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# What a front end logs by itself, whatever a notebook holds: a restart ends the requests that were under way.
HARMLESS = ("favicon", "Canceled", "Kernel restarted", "WebSocket", "503")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.fail("Chromium is missing (Debian: apt-get install chromium; or its path in CHROMIUM)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Lab:
    """A Jupyter server with a folder of notebooks, and the machine beneath its kernels."""

    root: Path
    address: str
    state: Path
    browser: Browser
    contexts: list[BrowserContext] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def change_machine(self, driver: Driver) -> None:
        driver.write(self.state)

    def open(self, *cells: str, app: str = "lab", dark: bool = False, width: int = 1240) -> Notebook:
        """Open a new notebook with these cells; none of them is run."""
        name = f"{len(self.contexts)}.ipynb"
        write_notebook(self.root / name, cells)
        return self.open_file(name, app=app, dark=dark, width=width)

    def open_file(self, name: str, *, app: str = "lab", dark: bool = False, width: int = 1240) -> Notebook:
        context = self.browser.new_context(viewport={"width": width, "height": 900})
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=self.address)
        self.contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(f"page error: {error}"))
        page.on("request", self._see)
        place = f"lab/tree/{name}" if app == "lab" else f"notebooks/{name}"
        page.goto(f"{self.address}/{place}")
        notebook = Notebook(page, self)
        notebook.wait()
        if dark:
            notebook.make_dark()
        return notebook

    def _hear(self, message: Any) -> None:
        if message.type == "error" and not any(word in message.text for word in HARMLESS):
            self.complaints.append(f"console: {message.text}")

    def _see(self, request: Any) -> None:
        """Note every request to anything but this server; data and blobs never leave the page."""
        if not request.url.startswith((self.address, "data:", "blob:", self.address.replace("http", "ws"))):
            self.complaints.append(f"request: {urlparse(request.url).netloc}")


@dataclass
class Notebook:
    """A notebook in a page, driven by the application's own commands."""

    page: Page
    lab: Lab

    def wait(self) -> None:
        self.page.wait_for_function("window.jupyterapp")
        self.page.evaluate(
            """async () => {
                const app = window.jupyterapp;
                await app.restored;
                let found;
                for (;;) {
                    found = [...app.shell.widgets('main')].find(one => one.context && one.sessionContext);
                    if (found) break;
                    await new Promise(done => setTimeout(done, 50));
                }
                await found.context.ready;
                await found.sessionContext.ready;
                while (!found.sessionContext.session?.kernel) await new Promise(done => setTimeout(done, 50));
                await found.sessionContext.session.kernel.info;
                app.shell.activateById(found.id);
                window.notebook = found;
            }"""
        )

    def make_dark(self) -> None:
        self.page.evaluate("jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
        self.page.wait_for_selector("body[data-jp-theme-light=false]")

    def run(self, cell: int) -> None:
        """Run a cell to its end."""
        self.start(cell)
        self.page.evaluate("window.running")

    def start(self, cell: int) -> None:
        """Begin to run a cell."""
        self.page.evaluate(
            """cell => {
                const content = notebook.content;
                content.activeCellIndex = cell;
                content.deselectAll();
                window.running = jupyterapp.commands.execute('notebook:run-cell').then(() => true);
                window.running.catch(() => {});
            }""",
            cell,
        )

    def outputs(self, cell: int) -> str:
        """Return all that a cell has written, as text."""
        found: list[dict[str, Any]] = self.page.evaluate(
            "cell => notebook.content.widgets[cell].model.outputs.toJSON()", cell
        )
        texts = [
            one.get("text") or one.get("evalue") or one.get("data", {}).get("text/plain", "") for one in found
        ]
        return "\n".join(texts)

    def add(self, code: str) -> int:
        """Add a cell at the end; return its number."""
        return self.page.evaluate(
            """code => {
                const model = notebook.content.model.sharedModel;
                model.insertCell(model.cells.length, {cell_type: 'code', source: code});
                return model.cells.length - 1;
            }""",
            code,
        )

    def ask(self, code: str) -> str:
        """Run code in a cell of its own; return what it has written."""
        cell = self.add(code)
        self.run(cell)
        return self.outputs(cell).strip()

    def save(self) -> None:
        self.page.evaluate("notebook.context.save()")

    def kernel(self) -> str:
        found: str = self.page.evaluate("notebook.sessionContext.session.kernel.id")
        return found

    def restarted(self) -> None:
        """Wait until the kernel is back."""
        self.page.wait_for_function(
            "() => ['idle', 'busy'].includes(notebook.sessionContext.session.kernel.status)"
        )
        self.page.evaluate("notebook.sessionContext.session.kernel.info")

    def row(self, key: object) -> Any:
        return self.page.locator(f'.gm-panel .gm-row[data-key="{key}"]').first

    def button(self, text: str) -> Any:
        return self.page.locator(".gm-panel button", has_text=text).first

    @property
    def panel(self) -> Any:
        return self.page.locator(".gm-panel").first

    @property
    def said(self) -> Any:
        return self.page.locator(".gm-panel .gm-said").first

    @property
    def line(self) -> Any:
        return self.page.locator(".gm-panel .gm-line code").first

    def badges(self) -> dict[str, str]:
        """Return what each row's badge says, for those that have one."""
        rows: list[list[str]] = self.page.eval_on_selector_all(
            ".gm-panel:first-of-type .gm-row",
            "rows => rows.map(row => [row.dataset.key, row.querySelector('.gm-badge').textContent])",
        )
        return {key: badge for key, badge in rows if badge}


@pytest.fixture
def start_lab(native: Path, tmp_path: Path, chromium: Browser) -> Iterator[Callable[..., Lab]]:
    """Return a way to start Jupyter servers; after the test, no page has complained."""
    started: list[tuple[subprocess.Popen[bytes], Lab]] = []

    def start(driver: Driver | None = None, *, paths: str = "", **variables: str) -> Lab:
        root, home, state = tmp_path / "notebooks", tmp_path / "home", tmp_path / "machine"
        (driver or Driver(CARDS)).write(state)
        root.mkdir()
        home.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("CUDA_", "GPU_MAGIC", "JUPYTER"))
        }
        places = {
            "HOME": str(home),
            "JUPYTER_CONFIG_DIR": str(home / "config"),
            "JUPYTER_DATA_DIR": str(home / "data"),
            "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
            "IPYTHONDIR": str(home / "ipython"),
            "PYTHONPATH": os.pathsep.join(filter(None, [paths, str(ROOT), str(tmp_path)])),
        }
        command = [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"),
            *(
                f"--ServerApp.root_dir={root}",
                "--IdentityProvider.token=",
                "--LabApp.expose_app_in_browser=True",
            ),
            *("--JupyterNotebookApp.expose_app_in_browser=True", "--LabApp.news_url=''"),
        ]
        log = (tmp_path / "server.log").open("wb")
        server = subprocess.Popen(
            command, env=clean | environment(native, state) | places | variables, stdout=log, stderr=log
        )
        lab = Lab(root, f"http://127.0.0.1:{port}", state, chromium)
        started.append((server, lab))
        for _ in range(600):
            with suppress(OSError):
                urllib.request.urlopen(f"{lab.address}/api").close()
                return lab
            assert server.poll() is None, (tmp_path / "server.log").read_text()
            time.sleep(0.1)
        raise TimeoutError((tmp_path / "server.log").read_text())

    yield start
    for server, lab in started:
        for context in lab.contexts:
            context.close()
        server.terminate()
        server.wait(20)
        assert not lab.complaints, lab.complaints


@pytest.fixture
def lab(start_lab: Callable[..., Lab]) -> Lab:
    return start_lab()


def write_notebook(path: Path, cells: tuple[str, ...]) -> None:
    """Write a notebook that is trusted, as it has no outputs."""
    code = [
        {
            "cell_type": "code",
            "id": f"c{number}",
            "source": cell,
            "metadata": {},
            "outputs": [],
            "execution_count": None,
        }
        for number, cell in enumerate(cells)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path.write_text(
        json.dumps({"cells": code, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5})
    )
