"""What a person waits for in a real JupyterLab: the panel's first paint, a click, 64 GPUs that scroll."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.machine import driver_libraries, sleepers
from benchmarks.report import Row, Table, calls
from benchmarks.timing import Skipped

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.lab import Lab

__all__ = ["run"]

ROUNDS = 9
FIRST_PAINT = 0.3  # seconds
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
# Scrolls up and down for some seconds; gives the longest wait for a frame, and the ticks that were shown: a
# chart that has changed between two frames in which its row was well in sight.
SCROLL = """async seconds => {
    const rows = document.querySelector('.gm-rows');
    const begun = performance.now();
    let longest = 0, before = begun, ticks = 0, drawn = new Map();
    while (performance.now() - begun < seconds * 1000) {
        rows.scrollTop += 40 * (Math.floor((performance.now() - begun) / 1500) % 2 ? -1 : 1);
        await new Promise(requestAnimationFrame);
        longest = Math.max(longest, performance.now() - before);
        before = performance.now();
        const {top, bottom} = rows.getBoundingClientRect();
        const now = new Map();
        for (const line of rows.querySelectorAll('.gm-row .gm-chart-line')) {
            const {y} = line.closest('.gm-row').getBoundingClientRect();
            if (y > top + 120 && y < bottom - 120) now.set(line, line.getAttribute('d'));
        }
        ticks += [...now].some(([line, path]) => drawn.has(line) && drawn.get(line) !== path);
        drawn = now;
    }
    return [longest, ticks];
}"""
HTML = """import gpu_magic, ipywidgets
ipywidgets.HTML(gpu_magic.gpus()._repr_html_())"""
SECONDS = 8


def run() -> list[Table]:
    if not (find_spec("playwright") and find_spec("jupyterlab")):
        raise Skipped("a page needs `pip install jupyterlab playwright`")
    from tests.browser.lab import NO_CHROMIUM, chromium, find_chromium, start_lab

    if find_chromium() is None:
        raise Skipped(NO_CHROMIUM)
    with (
        TemporaryDirectory() as home,
        sleepers() as pids,
        driver_libraries(pids) as variables,
        chromium() as browser,
        start_lab(Path(home), browser, {**variables, "INSTANT_MOVES": "1"}) as lab,
    ):
        return [*_times(lab), *_many(lab)]


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
    html = median(first["html"])
    paint, again = median(first["panel"]), median(first["again"])
    row, use = median(clicks["row"]), median(clicks["use"])
    return [
        Table(
            "From running the cell to the first paint, in JupyterLab",
            [
                Row("an HTML widget with the table", html),
                Row("%gpu_panel, the first of its kernel", paint),
                Row("%gpu_panel, another one", again, "300 ms", again < FIRST_PAINT),
            ],
            "an HTML widget with the table",
        ),
        Table(
            "From a click to what it does, painted, in an idle kernel",
            [
                Row("a row is marked", row, "150 ms", row < 0.15),
                Row('"Use these": the GPUs are chosen', use, "150 ms", use < 0.15),
            ],
        ),
    ]


def _many(lab: Lab) -> list[Table]:
    kernel = lab.add_kernel("many", GPU_MAGIC_SIMULATE="64xA100-80GB seed=7")
    notebook = lab.open("%load_ext gpu_magic", "%gpu_panel", kernel=kernel)
    for cell in (0, 1):
        notebook.run(cell)
    notebook.page.wait_for_selector(".gm-row")
    answer: list[Any] = notebook.page.evaluate(SCROLL, SECONDS)
    longest, ticks = answer
    rows = [
        Row("the longest wait for a frame, ms", longest, "1000", longest < 1000),
        Row(f"ticks painted in {SECONDS} s", ticks, f"{SECONDS - 1}", ticks >= SECONDS - 1),
    ]
    work = _work(notebook.page)
    bound = Row("script, style and layout", work, "20 ms", work < 0.02)
    return [
        Table("64 GPUs, scrolling", rows, write=calls),
        Table("64 GPUs, what their page works in a second", [bound]),
    ]


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
