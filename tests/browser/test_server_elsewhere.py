"""A Jupyter server in another environment than the kernels, as on a JupyterHub: what is shown where it lacks anywidget."""

from __future__ import annotations

import json
import os
import sysconfig
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.lab import make_environment, start_lab
from tests.browser.panel import LOAD
from tests.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.browser.lab import Lab, Notebook

MANAGER = "labextensions/@jupyter-widgets"
LOG = (
    "import io, logging; log = io.StringIO()\n"
    "logging.getLogger('gpu_magic').addHandler(logging.StreamHandler(log))\n"
    "logging.getLogger('gpu_magic').setLevel(logging.INFO)"
)
# What jupyterlab_widgets says to the browser's console of a widget that it can't load.
UNLOADED = "console: Error: No version of module anywidget is registered"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, chromium: Browser) -> Iterator[Lab]:
    """Return a server whose environment has ipywidgets, and neither anywidget nor gpu_magic."""
    home = tmp_path_factory.mktemp("hub")
    variables = {
        "GPU_MAGIC_SIMULATE": "4xA100-80GB clock=0",
        "PYTHONPATH": os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")]),
    }
    python = make_environment(home / "env", MANAGER)
    with start_lab(home, chromium, variables, python=python, has_extension=False) as lab:
        lab.add_kernel("users")
        yield lab
        lab.close_pages(keep_shared=False)
        assert not lab.complaints


def open_panel(lab: Lab, kernel: str = "python3") -> Notebook:
    lab.harmless.append(UNLOADED)
    notebook = lab.open(LOAD, LOG, "%gpu_panel", "%gpus 2,0", kernel=kernel, own_page=True)
    for cell in range(4):
        notebook.run(cell)
    return notebook


def test_the_table_says_what_the_server_lacks(hub: Lab) -> None:
    notebook = open_panel(hub, "users")
    output = notebook.page.locator(".jp-Cell").nth(2).locator(".jp-OutputArea")
    expect(output).to_contain_text("State of ")
    expect(output).to_contain_text(
        "The Jupyter server's environment has no anywidget, which the panel needs in the page. "
        f"Run {hub.root.parent}/env/bin/python -m pip install anywidget, then reload the page."
    )
    expect(output.locator(".gm-fallback table").first).to_be_visible()
    # JupyterLab's own box is there, and not shown.
    box = output.locator(".jupyter-widgets-error-widget")
    box.wait_for(state="attached")
    expect(box).to_be_hidden()
    assert "cuda:0 = GPU 2" in notebook.outputs(3)
    assert notebook.ask("print(log.getvalue())").startswith(
        "A panel was shown as a table. The Jupyter server's"
    )
    assert f"{hub.root.parent}/env/bin/python -m pip install anywidget" in notebook.ask("%gpu_doctor")
    assert notebook.chip.count() == 0


@pytest.mark.nightly
def test_a_server_that_does_not_load_what_it_has_leaves_the_table_and_what_may_help(
    tmp_path: Path, chromium: Browser
) -> None:
    """Beside it the chip works, and its page says nothing of anywidget's."""
    (tmp_path / "config/labconfig").mkdir(parents=True)
    (tmp_path / "config/labconfig/page_config.json").write_text(
        json.dumps({"disabledExtensions": {"anywidget": True}})
    )
    with start_lab(tmp_path, chromium, {"GPU_MAGIC_SIMULATE": "4xA100-80GB clock=0"}) as lab:
        notebook = open_panel(lab)
        output = notebook.page.locator(".jp-Cell").nth(2).locator(".jp-OutputArea")
        expect(output).to_contain_text(
            "If only this table appears, run pip install anywidget where the Jupyter"
        )
        expect(notebook.chip).to_contain_text("GPUs 2,0")
        assert "A panel was shown, but no page has answered." in notebook.ask("%gpu_doctor")
        notebook.chip.click()
        notebook.row(3).click()
        expect(notebook.line).to_have_text("%gpus 2,0,3")
        assert not lab.complaints
        lab.close_pages(keep_shared=False)
