from __future__ import annotations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.browser.conftest import Lab


def test_first(lab: Lab) -> None:
    notebook = lab.open("%load_ext gpu_magic", "%gpu_panel")
    notebook.run(0)
    notebook.run(1)
    notebook.panel.wait_for()
    notebook.page.wait_for_timeout(2500)
    notebook.page.screenshot(path="/tmp/p1.png")
    notebook.row(2).click()
    notebook.row(0).click()
    notebook.page.screenshot(path="/tmp/p2.png")
    notebook.button("Use these").click()
    notebook.page.wait_for_timeout(1000)
    notebook.page.screenshot(path="/tmp/p3.png")
    print(notebook.ask("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"))
