"""Takes the README's pictures: the table in a real JupyterLab, light and dark.

Needs the demo extra, `pip install playwright`, and a Chromium whose path is in CHROMIUM (/usr/bin/chromium).

Usage: python docs/pictures.py [FOLDER]      (docs, where none is given)
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

MACHINE = "8xA100-80GB seed=7 clock=0"
CELLS = ["%load_ext gpu_magic", "%gpus 2,0", "%gpus"]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def main(folder: Path) -> None:
    """Write table-light.png and table-dark.png."""
    with tempfile.TemporaryDirectory() as home:
        root = Path(home)
        _write_notebook(root / "gpus.ipynb", CELLS)
        address, server = _start_lab(root)
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=FLAGS
                )
                for theme in ("Light", "Dark"):
                    page = browser.new_page(viewport={"width": 1240, "height": 900}, device_scale_factor=2)
                    _run_all(page, f"{address}/lab/tree/gpus.ipynb", theme)
                    output = page.locator(".gpu-magic").last
                    output.evaluate(
                        "element => Object.assign(element.style, {display: 'inline-block', padding: '8px'})"
                    )
                    output.screenshot(path=folder / f"table-{theme.lower()}.png")
                    page.screenshot(path=folder / f"lab-{theme.lower()}.png") if "-v" in sys.argv else None
                    page.close()
        finally:
            server.terminate()
            server.wait()


def _write_notebook(path: Path, cells: list[str]) -> None:
    entries = [
        {
            "cell_type": "code",
            "id": f"c{n}",
            "metadata": {},
            "source": cell,
            "outputs": [],
            "execution_count": None,
        }
        for n, cell in enumerate(cells)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path.write_text(json.dumps({"cells": entries, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))


def _start_lab(root: Path) -> tuple[str, subprocess.Popen[bytes]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    private = {
        name: str(root / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    options = [
        "--no-browser",
        "--allow-root",
        f"--port={port}",
        "--IdentityProvider.token=",
        "--ServerApp.password=",
    ]
    server = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "jupyterlab",
            *options,
            "--LabApp.expose_app_in_browser=True",
            f"--notebook-dir={root}",
        ],
        env=os.environ | private | {"IPYTHONDIR": str(root / "ipython"), "GPU_MAGIC_SIMULATE": MACHINE},
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    for _ in range(120):
        try:
            urllib.request.urlopen(f"{address}/api", timeout=1).close()
        except OSError:
            time.sleep(0.5)
        else:
            break
    return address, server


def _run_all(page: Page, address: str, theme: str) -> None:
    page.goto(address)
    page.wait_for_function("window.jupyterapp && window.jupyterapp.restored")
    page.evaluate(
        f"window.jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {theme}'}})"
    )
    page.wait_for_function("window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.info")
    page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_selector(".gpu-magic .gm-facts")
    page.wait_for_timeout(1500)  # the theme's colours fade in


if __name__ == "__main__":
    main(Path(next((argument for argument in sys.argv[1:] if argument != "-v"), "docs")))
