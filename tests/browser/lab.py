"""A real JupyterLab, with Notebook 7, in headless Chromium: for the tests, the benchmarks and the pictures."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import zipfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

from playwright.sync_api import expect, sync_playwright

from tests.browser.panel import Panels
from tests.conftest import LIMIT, ROOT
from tests.machine import clean_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize

    from tests.machine import Driver

FLAGS = [f"--{flag}" for flag in ("no-sandbox", "disable-gpu", "no-first-run", "disable-sync")]
FLAGS += ["--disable-background-networking", "--disable-component-update"]
TOKEN = "0123456789"
# What a front end says by itself, whatever a notebook holds: patterns of whole lines. A restart ends the requests that
# were under way.
HARMLESS = (
    r"(page error|console): (Error: |Could not restore the debugger state: )?"
    r"Canceled future for \w+ message before replies were done",
    r"console: WebSocket connection to '\S+' failed: .*",
    r"console: Failed to load resource: the server responded with a status of 503 \(Service Unavailable\)",
)
# What it says of some tests: a page asks for widgets that a new kernel, or none, does not have.
NO_COMM = r"console: Comm not found for comm id [\w-]+"
NO_MODEL = "console: Error: widget model not found"
NO_CHUNK = r"(page error|console): .*\bChunkLoadError: Loading chunk .*"  # its clock was turned meanwhile
NO_CHROMIUM = "Chromium is missing (Debian: apt-get install chromium; or its path in CHROMIUM)"


def find_chromium() -> str | None:
    """Return the path of Debian's Chromium, or of the one that CHROMIUM names."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium")


# Waits until a notebook that is found somehow can be used, and is in front.
WAIT_FOR = """async () => {
    const pause = () => new Promise(done => setTimeout(done, 50));
    const found = await (async () => { FIND })();
    await found.context.ready;
    await found.sessionContext.ready;
    while (!found.sessionContext.session?.kernel) await pause();
    await found.sessionContext.session.kernel.info;
    window.notebook = found;
    while (jupyterapp.shell.currentWidget !== found) {
        jupyterapp.shell.activateById(found.id);
        await pause();
    }
}"""


# How long pages are waited for, in milliseconds: they hang then, however slow the machine is.
PATIENCE = 120_000
expect.set_options(timeout=PATIENCE)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
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
    # The page in which `open` opens notebooks, where it is to be one page: loading JupyterLab takes seconds.
    shares_page: bool = False
    shared: Page | None = None
    complaints: list[str] = field(default_factory=list)
    harmless: list[str] = field(default_factory=list)

    def change_machine(self, driver: Driver) -> None:
        driver.write(self.state)

    def write_settings(self, plugin: str, **values: object) -> None:
        """Write the user's settings of a plugin, which pages read when they are loaded."""
        file = self.root.parent / "config" / "lab" / "user-settings" / plugin.replace(":", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.with_name(f"{file.name}.jupyterlab-settings").write_text(json.dumps(values))

    def add_kernel(
        self, name: str, paths: str = "", *, module: str = "ipykernel_launcher", **variables: str
    ) -> str:
        """Add a kind of kernel: with folders before all others on its path, and variables."""
        spec = self.root.parent / "data" / "kernels" / name
        spec.mkdir(parents=True, exist_ok=True)
        argv = [sys.executable, "-m", module, "-f", "{connection_file}"]
        given = {"PYTHONPATH": os.pathsep.join(filter(None, [paths, str(ROOT)])), **variables}
        kind = {"argv": argv, "display_name": name, "language": "python", "env": given}
        (spec / "kernel.json").write_text(json.dumps(kind))
        return name

    def request(self, path: str, method: str = "GET") -> str:
        headers = {"Authorization": f"token {TOKEN}"}
        call = urllib.request.Request(f"{self.address}/{path}", method=method, headers=headers)
        with urllib.request.urlopen(call, timeout=LIMIT) as reply:
            text: str = reply.read().decode()
            return text

    def open(self, *cells: str, kernel: str = "python3", own_page: bool = False, **how: Any) -> Notebook:
        """Open a new notebook with these cells; none of them is run.

        It has a page of its own where it is to be `own_page`, or `how` says what only such a one can: see `open_file`.
        """
        name = f"{secrets.token_hex(4)}.ipynb"
        write_notebook(self.root / name, cells, kernel)
        if own_page or how not in ({}, {"app": "lab"}) or not self.shares_page:
            return self.open_file(name, **how)
        if self.shared is None:
            opened = self.open_file(name)
            self.shared = opened.page
            self.contexts.remove(self.shared.context)
            return opened
        notebook = Notebook(self.shared, self)
        notebook.show(name)
        return notebook

    def open_file(
        self, name: str, *, app: str = "lab", dark: bool = False, width: int = 1240, scale: float = 1
    ) -> Notebook:
        """Open a notebook in a page of its own."""
        view: ViewportSize = {"width": width, "height": 900}
        context = self.browser.new_context(viewport=view, device_scale_factor=scale)
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=self.address)
        self.contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self._complain(f"page error: {error}"))
        page.on("request", self._see)
        # A workspace of its own: the default one opens what an earlier test had open.
        place = f"lab/workspaces/{secrets.token_hex(4)}/tree/{name}" if app == "lab" else f"notebooks/{name}"
        page.goto(f"{self.address}/{place}?token={TOKEN}")
        notebook = Notebook(page, self)
        notebook.wait()
        self.complaints.clear()  # about the application's own start: Notebook 7.6 has some
        if dark:
            notebook.make_dark()
        return notebook

    def close_pages(self, *, keep_shared: bool) -> None:
        """Close what tests have opened: of the page that they share, if it can be kept, the notebooks."""
        for context in self.contexts:
            for page in context.pages:
                page.unroute_all(behavior="ignoreErrors")
            context.close()
        self.contexts.clear()
        if self.shared and not (keep_shared and self._clear(self.shared)):
            self.shared.context.close()
            self.shared = None

    @staticmethod
    def _clear(page: Page) -> bool:
        """Close all that is open in a page; return whether nothing is left."""
        page.unroute_all(behavior="ignoreErrors")
        left: str = page.evaluate(
            """() => {
                for (const one of [...jupyterapp.shell.widgets('main')]) {
                    if (one.context) one.context.model.dirty = false;
                    one.dispose();
                }
                return document.querySelector('.jp-Notebook, .jp-Dialog, .gm-panel')?.outerHTML ?? '';
            }"""
        )
        return not left

    def _hear(self, message: Any) -> None:
        if message.type == "error":
            self._complain(f"console: {message.text}")

    def _complain(self, text: str) -> None:
        first = text.partition("\n")[0]  # a stack can follow
        if not any(re.fullmatch(one, first) for one in self.harmless):
            self.complaints.append(text)

    def _see(self, request: Any) -> None:
        """Note every request to anything but this server; data and blobs never leave the page."""
        if not request.url.startswith((self.address, "data:", "blob:", self.address.replace("http", "ws"))):
            self.complaints.append(f"request: {urlparse(request.url).netloc}")


class Notebook(Panels):
    """A notebook in a page, driven by the application's own commands."""

    def __init__(self, page: Page, lab: Lab) -> None:
        super().__init__(page)
        self.lab = lab

    def wait(self) -> None:
        """Wait until the notebook that the page was opened with can be used."""
        self.page.wait_for_function("window.jupyterapp")
        self._find(
            """await jupyterapp.restored;
            for (;;) {
                const found = [...jupyterapp.shell.widgets('main')].find(one => one.context && one.sessionContext);
                if (found) return found;
                await pause();
            }"""
        )

    def show(self, name: str) -> None:
        """Open a notebook besides what the page has open, and wait until it can be used."""
        self._find(
            f"""await jupyterapp.serviceManager.kernelspecs.refreshSpecs();
            return jupyterapp.commands.execute('docmanager:open', {{path: {name!r}, factory: 'Notebook'}});"""
        )

    def _find(self, script: str) -> None:
        """Wait until the notebook that a script returns can be used, and is in front."""
        self.page.evaluate(WAIT_FOR.replace("FIND", script))

    def make_dark(self) -> None:
        self.page.evaluate("jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
        self.page.wait_for_selector("body[data-jp-theme-light=false]", state="attached")

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

    def sources(self) -> list[str]:
        """Return what is written in each cell."""
        found: list[str] = self.page.evaluate(
            "notebook.content.widgets.map(cell => cell.model.sharedModel.getSource())"
        )
        return found

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
        number: int = self.page.evaluate(
            """code => {
                const model = notebook.content.model.sharedModel;
                model.insertCell(model.cells.length, {cell_type: 'code', source: code});
                return model.cells.length - 1;
            }""",
            code,
        )
        return number

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


def install_extension(data: Path) -> None:
    """Put the prebuilt extension where a server with this folder of data finds it: out of the wheel."""
    with TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
        subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as opened:
            for name in opened.namelist():
                _, is_shared, place = name.partition(".data/data/share/jupyter/")
                if is_shared:
                    (data / place).parent.mkdir(parents=True, exist_ok=True)
                    (data / place).write_bytes(opened.read(name))


def make_environment(folder: Path, *extensions: str) -> str:
    """Make an environment with JupyterLab and these of our extensions; return its Python.

    Packages are ours where a server's PYTHONPATH has our site-packages.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    ours, theirs = Path(sys.prefix, "share/jupyter"), folder / "share/jupyter"
    (theirs / "labextensions").mkdir(parents=True)
    for name in ("lab", *extensions):
        (theirs / name).symlink_to(ours / name)
    return str(folder / "bin/python")


@contextmanager
def start_lab(
    home: Path,
    browser: Browser,
    variables: Mapping[str, str],
    *options: str,
    python: str = sys.executable,
    has_extension: bool = True,
) -> Iterator[Lab]:
    """Start a Jupyter server, with its own configuration and nothing else's, whose pages the browser opens.

    All that it writes is in the folder `home`, where its machine stands, if it is a pretended one, in `home/machine`.
    The variables are laid over its environment, and so over its kernels'; the options are of its command line.
    """
    lab = Lab(home / "notebooks", f"http://127.0.0.1:{free_port()}", home / "machine", browser)
    lab.root.mkdir()
    clean = clean_environment("JUPYTER")
    places = {
        "HOME": str(home),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTER_PREFER_ENV_PATH": "no",  # an extension that was installed with the package can be an older one
        "IPYTHONDIR": str(home / "ipython"),
        "PYTHONPATH": str(ROOT),
    }
    command = [
        *(python, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        *(f"--ServerApp.root_dir={lab.root}", f"--port={urlparse(lab.address).port}"),
        *(f"--IdentityProvider.token={TOKEN}", "--LabApp.expose_app_in_browser=True"),
        *("--JupyterNotebookApp.expose_app_in_browser=True", *options),
    ]
    lab.write_settings(
        "@jupyterlab/apputils-extension:notification", fetchNews="false", checkForUpdates=False
    )
    if has_extension:
        install_extension(home / "data")
    log = home / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=clean | places | dict(variables), stdout=output, stderr=output
        )
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        with suppress(OSError):
            lab.request("api")
            break
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    try:
        yield lab
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:  # it can wait for ever for a thread of its own (anyio's)
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def write_notebook(path: Path, cells: tuple[str, ...], kernel: str) -> None:
    """Write a notebook that is trusted, as it has no outputs."""
    spec = {"name": kernel, "display_name": kernel, "language": "python"}
    code = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    content = {
        "cells": [{**code, "id": f"c{number}", "source": cell} for number, cell in enumerate(cells)],
        "metadata": {"kernelspec": spec},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.write_text(json.dumps(content))
