"""What the ranks of a command write, in a page: folds that stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from tests.browser.panel import LOAD, PICTURES

if TYPE_CHECKING:
    from tests.browser.lab import Lab, Notebook

# Three processes without a launcher: those take seconds to start.
CELL = """%%gpu_launch --each --gpus 0-2 python
import os
number = os.environ["GPU_MAGIC_INDEX"]
for done in range(0, 101, 20):
    print(f"\\r{done} %", end="")
print(f"\\nrank {number} says <b>hello</b> & \\x1b[31mgoodbye\\x1b[0m")
"""


def folds_of(notebook: Notebook) -> Any:
    return notebook.page.locator(".jp-OutputArea details")


def test_rank_0_in_lines_and_folds_of_the_others_that_stay(lab: Lab) -> None:
    notebook = lab.open(LOAD, CELL)
    notebook.run(0)
    notebook.run(1)
    folds = folds_of(notebook)
    expect(notebook.page.locator(".jp-OutputArea").nth(1)).to_contain_text(
        "[0] rank 0 says <b>hello</b> & goodbye"
    )
    expect(folds.locator("summary")).to_have_text(["Process 1 · 2 lines", "Process 2 · 2 lines"])
    expect(folds.locator("pre").nth(1)).to_be_hidden()
    folds.locator("summary").nth(1).click()
    expect(folds.locator("pre").nth(1)).to_have_text("100 %\nrank 2 says <b>hello</b> & goodbye\n")
    PICTURES.mkdir(parents=True, exist_ok=True)
    notebook.page.locator(".jp-Cell").nth(1).screenshot(path=PICTURES / "ranks-folds.png")
    # They are there in a notebook that was saved, and is not trusted: its text has no signature that the server knows.
    path = lab.root / notebook.page.evaluate("notebook.context.path")
    again = path.with_name("again.ipynb")
    while "rank 1 says" not in (text := path.read_text()):
        notebook.save()
        notebook.page.wait_for_timeout(100)
    again.write_text(text.replace("rank 1 says", "rank 1 still says"))
    other = lab.open_file(again.name)
    expect(folds_of(other).locator("pre").first).to_contain_text("rank 1 still says <b>hello</b>")
    expect(folds_of(other).locator("pre").first).to_be_hidden()
