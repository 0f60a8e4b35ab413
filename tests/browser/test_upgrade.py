"""A reload shows an upgrade, and a change in a linked tree, although browsers keep the files of extensions for a year."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.lab import PATIENCE, TOKEN, install_extension, start_lab
from tests.conftest import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BUILT_FROM = ("pyproject.toml", "LICENSE", "docs/package.md", "hatch_build.py", "gpu_magic")


MACHINE = {"GPU_MAGIC_SIMULATE": "4xA100-80GB clock=0"}


def copy_source(to: Path) -> Path:
    """Copy what a wheel is built from."""
    for name in BUILT_FROM:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, to / name)
    return to


@pytest.mark.timeout(300)  # the applications start twice each
def test_a_reload_shows_the_new_version(chromium: Browser, tmp_path: Path) -> None:
    source, data = copy_source(tmp_path / "source"), tmp_path / "data"
    script = source / "gpu_magic" / "labextension" / "page" / "machine.js"
    text = script.read_text()

    def install(version: str) -> None:
        script.write_text(f"window.seen = '{version}';\n{text}")
        install_extension(data, source)

    page = chromium.new_page()
    page.set_default_timeout(PATIENCE)
    with start_lab(tmp_path, chromium, MACHINE, has_extension=False) as lab:
        for app in ("lab", "tree"):
            install("old")
            with page.expect_response("**/machine.js") as found:
                page.goto(f"{lab.address}/{app}?token={TOKEN}")
            assert (
                "immutable" in found.value.headers["cache-control"]
            )  # a browser won't ask for this address again
            page.wait_for_function("window.seen")
            assert page.evaluate("seen") == "old"
            install("new")  # beside the old files, which an upgrade could leave
            page.reload()
            page.wait_for_function("window.seen")
            assert page.evaluate("seen") == "new"
    page.close()


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
