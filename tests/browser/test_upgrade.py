"""A reload shows an upgrade, and a change in a linked tree, although browsers keep the files of extensions for a year."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.lab import FLAGS, PATIENCE, TOKEN, find_chromium, make_environment, start_lab
from tests.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

BUILT_FROM = ("pyproject.toml", "LICENSE", "docs/package.md", "hatch_build.py", "gpu_magic")
MACHINE = {"GPU_MAGIC_SIMULATE": "4xA100-80GB clock=0"}


def copy_source(to: Path) -> Path:
    """Copy what a wheel is built from."""
    for name in BUILT_FROM:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, to / name)
    return to


def build(folder: Path, version: str) -> Path:
    """Build a wheel of a version whose page tells it; return the wheel."""
    copy_source(folder)
    package = folder / "gpu_magic/__init__.py"
    package.write_text(re.sub(r'(?m)^__version__ = ".*"$', f'__version__ = "{version}"', package.read_text()))
    script = folder / "gpu_magic/labextension/page/machine.js"
    script.write_text(f"window.seen = '{version}';\n{script.read_text()}")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


@pytest.mark.timeout(300)  # the browser starts twice, and loads JupyterLab and Notebook each time
def test_an_upgrade_is_seen_by_a_browser_that_keeps_its_cache(chromium: Browser, tmp_path: Path) -> None:
    old, new = (build(tmp_path / version, version) for version in ("0.9.0rc1", "0.9.0"))
    python = make_environment(tmp_path / "env")
    enabled = tmp_path / "env/etc/jupyter/jupyter_server_config.d"
    enabled.mkdir(parents=True)
    (enabled / "notebook.json").write_text('{"ServerApp": {"jpserver_extensions": {"notebook": true}}}')
    address = ""

    def install(wheel: Path) -> None:
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps"]
        subprocess.run([*pip, wheel], check=True, capture_output=True)

    @contextmanager
    def browse() -> Iterator[Page]:
        """Start a browser with the profile of the last one."""
        with chromium.browser_type.launch_persistent_context(
            tmp_path / "profile", executable_path=find_chromium(), args=FLAGS
        ) as context:
            context.set_default_timeout(PATIENCE)
            yield context.pages[0]

    def open_app(page: Page, app: str) -> str:
        """Return the version whose code runs in the page."""
        page.goto(f"{address}/{app}?token={TOKEN}")
        page.wait_for_function("window.seen")
        seen: str = page.evaluate("seen")
        return seen

    install(old)
    machine = MACHINE | {"PYTHONPATH": sysconfig.get_path("purelib")}
    with start_lab(tmp_path, chromium, machine, python=python, has_extension=False) as lab:
        address = lab.address
        with browse() as page:
            for app in ("lab", "tree"):
                with page.expect_response("**/machine.js") as found:
                    assert open_app(page, app) == "0.9.0rc1"
                # A browser won't ask for this address again.
                assert "immutable" in found.value.headers["cache-control"]
        install(new)
        with browse() as page:
            for app in ("lab", "tree"):
                assert open_app(page, app) == "0.9.0"


# What a page shows of a change in each file.
SCRIPT = "window['{0}'] = '{1}';", "window['{0}']"
STYLE = ":root {{ --{0}: {1}; }}", "getComputedStyle(document.body).getPropertyValue('--{0}')"
MARKS = {"machine.js": SCRIPT, "connection.js": SCRIPT, "machine.css": STYLE, "panel.css": STYLE}


@pytest.mark.timeout(300)  # it starts the applications
def test_a_reload_shows_a_change_in_a_linked_tree(chromium: Browser, tmp_path: Path) -> None:
    source = copy_source(tmp_path / "source")
    # As CONTRIBUTING.md says, except for the place of the link.
    option = "--DevelopLabExtensionApp"
    place = f"{option}.sys_prefix=False", f"{option}.labextensions_dir={tmp_path / 'data' / 'labextensions'}"
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["jupyter", "labextension", "develop", "--overwrite", *place, "."],
        cwd=source,
        env=os.environ | {"PATH": beside, "PYTHONPATH": str(source)},
        check=True,
    )
    page = chromium.new_page()
    page.set_default_timeout(PATIENCE)
    with start_lab(tmp_path, chromium, MACHINE, has_extension=False) as lab:
        for second, app in enumerate(("lab", "tree"), int(time.time())):
            page.goto(f"{lab.address}/{app}?token={TOKEN}")
            page.wait_for_function("document.getElementById('gpu-magic-style')?.textContent")
            for name, (mark, _) in MARKS.items():
                file = source / "gpu_magic" / "labextension" / "page" / name
                file.write_text(f"{file.read_text()}\n{mark.format(Path(name).stem, app)}")
                os.utime(file, (second, second))  # a browser asks whether it has changed since a second
            page.reload()
            for name, (_, seen) in MARKS.items():
                page.wait_for_function(f"{seen.format(Path(name).stem)} === '{app}'")
    page.close()
