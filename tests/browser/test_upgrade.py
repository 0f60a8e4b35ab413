"""An upgrade is seen after a reload, although browsers keep the files of an extension for a year."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.browser.lab import PATIENCE, TOKEN, install_extension, start_lab
from tests.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

BUILT_FROM = ("pyproject.toml", "LICENSE", "docs/package.md", "hatch_build.py", "gpu_magic")


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
    script = source / "gpu_magic" / "labextension" / "static" / "machine.js"
    text = script.read_text()

    def install(version: str) -> None:
        script.write_text(f"window.seen = '{version}';\n{text}")
        install_extension(data, source)

    page = chromium.new_page()
    page.set_default_timeout(PATIENCE)
    machine = {"GPU_MAGIC_SIMULATE": "4xA100-80GB clock=0"}
    with start_lab(tmp_path, chromium, machine, has_extension=False) as lab:
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
