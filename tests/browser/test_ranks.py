"""What the ranks of a command write, in a page: tabs while it runs, and folds that stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from tests.browser.panel import LOAD, PICTURES

if TYPE_CHECKING:
    from tests.browser.lab import Lab, Notebook

# What runs until there is a file. Three processes without a launcher: those take seconds to start.
SCRIPT = """
import os, pathlib, time
number = os.environ["GPU_MAGIC_INDEX"]
for done in range(0, 101, 20):
    print(f"\\r{{done}} %", end="")
print(f"\\nrank {{number}} says <b>hello</b> & \\x1b[31mgoodbye\\x1b[0m")
while not pathlib.Path("{go}").exists():
    time.sleep(0.05)
"""


def start(lab: Lab, script: str) -> Notebook:
    """Run a script for each of three GPUs in a cell, which is not waited for."""
    notebook = lab.open(LOAD, f"%%gpu_launch --each --gpus 0-2 python\n{script}")
    notebook.run(0)
    notebook.start(1)
    return notebook


def tabs_of(notebook: Notebook) -> Any:
    return notebook.page.locator(".jp-OutputArea .widget-tab")


def folds_of(notebook: Notebook) -> Any:
    return notebook.page.locator(".jp-OutputArea details")


def picture(notebook: Notebook, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    notebook.page.locator(".jp-Cell").nth(1).screenshot(path=PICTURES / f"{name}.png")


def test_a_tab_for_each_rank_while_it_runs_and_folds_that_stay(lab: Lab) -> None:
    go = lab.root / "go-on"
    notebook = start(lab, SCRIPT.format(go=go))
    tabs = tabs_of(notebook)
    expect(tabs.get_by_role("tab")).to_have_text(["Process 0", "Process 1", "Process 2"])
    expect(tabs.locator("pre").first).to_have_text("100 %\nrank 0 says <b>hello</b> & goodbye\n")
    tabs.get_by_role("tab").nth(2).click()
    expect(tabs.locator("pre").last).to_be_visible()
    picture(notebook, "ranks-tabs")
    go.touch()
    notebook.wait()
    expect(tabs).to_have_count(0)
    folds = folds_of(notebook)
    expect(folds.locator("summary")).to_have_text([f"Process {number} · 2 lines" for number in range(3)])
    expect(folds.locator("pre").first).to_have_text("100 %\nrank 0 says <b>hello</b> & goodbye\n")
    expect(folds.locator("pre").nth(1)).to_be_hidden()
    folds.locator("summary").nth(1).click()
    expect(folds.locator("pre").nth(1)).to_contain_text("rank 1 says")
    picture(notebook, "ranks-folds")
    # They are there in a notebook that was saved, and is not trusted: its text has no signature that the server knows.
    path = lab.root / notebook.page.evaluate("notebook.context.path")
    again = path.with_name("again.ipynb")
    while "rank 0 says" not in (text := path.read_text()):
        notebook.save()
        notebook.page.wait_for_timeout(100)
    again.write_text(text.replace("rank 0 says", "rank 0 still says"))
    other = lab.open_file(again.name)
    expect(folds_of(other).locator("pre").first).to_contain_text("rank 0 still says <b>hello</b>")
    expect(folds_of(other).locator("pre").nth(1)).to_be_hidden()


def test_the_end_of_a_long_output_is_in_sight_until_somebody_scrolls_up(lab: Lab) -> None:
    go = lab.root / "go-up"
    code = f"""
import pathlib, time
for line in range(200): print("line", line)
while not pathlib.Path("{go}").exists():
    time.sleep(0.05)
print("one more")
while pathlib.Path("{go}").exists():
    time.sleep(0.05)
"""
    notebook = start(lab, code)
    page = tabs_of(notebook).locator(".widget-html").first
    expect(page).to_contain_text("line 199")
    from_end = "element => Math.abs(element.scrollTop)"
    assert page.evaluate(from_end) < 2
    page.evaluate("element => element.scrollBy(0, -500)")
    assert page.evaluate(from_end) > 400
    before = page.evaluate("element => element.querySelector('pre').getBoundingClientRect().top")
    go.touch()
    expect(page).to_contain_text("one more")
    after = page.evaluate("element => element.querySelector('pre').getBoundingClientRect().top")
    assert abs(after - before) < 2  # what is read stays where it is
    go.unlink()
    notebook.wait()
