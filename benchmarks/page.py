"""What a person waits for in a real JupyterLab: the panel's first paint, a click, 64 GPUs that scroll."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.machine import driver_libraries, sleepers
from benchmarks.measure import Table
from tests.browser.lab import chromium, start_lab

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.lab import Lab

ROUNDS = 9
# From the press of "run" to the first frame that has the rows.
PAINT = """async ([cell, selector]) => {
    const content = notebook.content;
    content.activeCellIndex = cell;
    content.deselectAll();
    const begun = performance.now();
    jupyterapp.commands.execute('notebook:run-cell');
    while (!content.widgets[cell].node.querySelector(selector)) await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    return performance.now() - begun;
}"""
# From a click to the frame that shows what became of it.
CLICK = """async ([what, selector, has]) => {
    const element = document.querySelector(what);
    const begun = performance.now();
    element.click();
    const shown = () => has.test(document.querySelector(selector).textContent);
    while (!shown()) await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    return performance.now() - begun;
}""".replace("has.test(", "new RegExp(has).test(")
HTML = """import gpu_magic, ipywidgets
ipywidgets.HTML(gpu_magic.gpus()._repr_html_())"""


def run() -> list[Table]:
    with (
        TemporaryDirectory() as home,
        sleepers() as pids,
        driver_libraries(pids) as variables,
        chromium() as browser,
        start_lab(Path(home), browser, {**variables, "INSTANT_MOVES": "1"}) as lab,
    ):
        return [*_times(lab), _many(lab)]


def _times(lab: Lab) -> list[Table]:
    cells = {"panel": (1, ".gm-row"), "again": (2, ".gm-row"), "html": (3, ".widget-html table")}
    first: dict[str, list[float]] = {"panel": [], "again": [], "html": []}
    clicks: dict[str, list[float]] = {"row": [], "use": []}
    for number in range(ROUNDS):
        notebook = lab.open("%load_ext gpu_magic", "%gpu_panel", "%gpu_panel", HTML)
        notebook.run(0)
        order = ("panel", "again", "html") if number % 2 else ("html", "panel", "again")
        for name in order:
            first[name].append(notebook.page.evaluate(PAINT, cells[name]) / 1000)
        gpu = f'.gm-row[data-key="{number % 8}"]'
        clicks["row"].append(notebook.page.evaluate(CLICK, [gpu, f"{gpu} .gm-badge", "cuda:0$"]) / 1000)
        notebook.page.wait_for_timeout(300)
        clicks["use"].append(notebook.page.evaluate(CLICK, [".gm-use", ".gm-said", "^cuda:0 = "]) / 1000)
        notebook.page.context.close()
    names = {"html": "an HTML widget", "panel": "%gpu_panel", "again": "%gpu_panel, another one"}
    paint = {what: median(first[name]) for name, what in names.items()}
    row, use = "a row is marked", '"Use these": the GPUs are chosen'
    click = {row: median(clicks["row"]), use: median(clicks["use"])}
    bounds = {names["panel"]: 2, names["again"]: 2}
    return [
        Table.of("From running the cell to the first paint, in JupyterLab", paint, bounds),
        Table.of("From a click to what it does, painted, in an idle kernel", click, {}),
    ]


def _many(lab: Lab) -> Table:
    kernel = lab.add_kernel("many", GPU_MAGIC_SIMULATE="64xA100-80GB seed=7")
    notebook = lab.open("%load_ext gpu_magic", "%gpu_panel", kernel=kernel)
    for cell in (0, 1):
        notebook.run(cell)
    notebook.page.wait_for_selector(".gm-row")
    table, work = Table("64 GPUs: what their page works in a second"), _work(notebook.page)
    table.add("script, style and layout", work, most=0.02)
    return table


def _work(page: Page) -> float:
    """Return the seconds of the page's main thread that script, style and layout take in a second."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    totals: list[float] = []
    for _ in range(ROUNDS + 1):
        found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
        totals.append(sum(found[f"{name}Duration"] for name in ("Script", "RecalcStyle", "Layout")))
        page.wait_for_timeout(3000)
    return median((after - before) / 3 for before, after in pairwise(totals))
