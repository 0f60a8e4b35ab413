"""The machine is read while a page shows a panel, and not when none does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.panel import busy_machine, open_again, open_panel, opens_again

if TYPE_CHECKING:
    from tests.browser.lab import Lab, Notebook

THREADS = "import threading; print([t.name for t in threading.enumerate()].count('gpu_magic-panel'))"
HIDE = """hidden => {
    Object.defineProperty(document, 'visibilityState', {get: () => hidden ? 'hidden' : 'visible', configurable: true});
    document.dispatchEvent(new Event('visibilitychange'));
}"""

SCROLL_UP = """panel => {
    notebook.content.scrollToItem(0, 'start');
    return panel.getBoundingClientRect().top > window.innerHeight;
}"""


def has_threads(notebook: Notebook, count: int) -> bool:
    """Wait until so many threads read the machine, and longer than one goes on that nobody wants."""
    notebook.page.wait_for_timeout(1500)
    while threads(notebook) != count:
        notebook.page.wait_for_timeout(100)
    return True


def show_chip(notebook: Notebook, *, shown: bool) -> None:
    """Take the chip out of sight, or back: where it is in sight, it wants figures as a panel does."""
    notebook.page.evaluate(
        "place => { document.getElementById('jp-main-statusbar').style.transform = place; }",
        "" if shown else "translateY(500px)",
    )


def threads(notebook: Notebook) -> int:
    """Count the threads that read the machine, without a cell that would show anything."""
    answer: str = notebook.page.evaluate(
        """async code => {
            const kernel = notebook.sessionContext.session.kernel;
            const future = kernel.requestExecute({code, store_history: false});
            let text = '';
            future.onIOPub = message => { text += message.content.text ?? ''; };
            await future.done;
            return text;
        }""",
        THREADS,
    )
    return int(answer)


def test_a_page_that_is_hidden_wants_no_figures(lab: Lab) -> None:
    notebook = open_panel(lab)
    assert has_threads(notebook, 1)
    notebook.page.evaluate(HIDE, True)
    assert has_threads(notebook, 0)
    lab.change_machine(busy_machine(util=45))
    notebook.page.evaluate(HIDE, False)
    expect(notebook.row(0).locator(".gm-percent")).to_have_text("45 %")
    assert has_threads(notebook, 1)


def test_the_chart_has_a_gap_where_nothing_was_read(lab: Lab) -> None:
    notebook = open_panel(lab)
    chart = notebook.row(0).locator(".gm-chart-line")
    assert str(chart.get_attribute("d")).count("M") == 1
    notebook.page.evaluate(HIDE, True)
    assert has_threads(notebook, 0)
    notebook.page.wait_for_timeout(3000)
    notebook.page.evaluate(HIDE, False)
    notebook.page.wait_for_function(
        "document.querySelector('.gm-chart-line').getAttribute('d').match(/M/g).length > 1"
    )


def test_a_panel_that_is_scrolled_away_wants_none(lab: Lab) -> None:
    notebook = open_panel(lab, "from IPython.display import HTML; HTML('<div style=height:3000px>')")
    show_chip(notebook, shown=False)
    # JupyterLab scrolls to the active cell when it gets to that, on a slow page after this.
    notebook.page.evaluate("notebook.content.activeCellIndex = 0")
    notebook.page.wait_for_function(SCROLL_UP, arg=notebook.panel.element_handle())
    assert has_threads(notebook, 0)
    notebook.panel.scroll_into_view_if_needed()
    assert has_threads(notebook, 1)
    show_chip(notebook, shown=True)


def test_a_tab_behind_another_wants_none(lab: Lab) -> None:
    notebook = open_panel(lab)
    assert has_threads(notebook, 1)
    notebook.page.evaluate("jupyterapp.commands.execute('launcher:create')")
    assert has_threads(notebook, 0)
    notebook.page.evaluate("jupyterapp.shell.activateById(notebook.id)")
    assert has_threads(notebook, 1)


@opens_again
def test_a_closed_page_wants_none(lab: Lab) -> None:
    notebook = open_panel(lab, own_page=True)
    name = notebook.page.evaluate("notebook.context.path")
    notebook.save()
    notebook.page.goto("about:blank")
    again = open_again(lab, name)  # the kernel is the same, and so is the panel
    assert has_threads(again, 1)
    show_chip(again, shown=False)
    again.page.evaluate("jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    assert has_threads(again, 0)


def test_a_new_view_of_a_panel_shows_the_same(lab: Lab) -> None:
    notebook = open_panel(lab)
    notebook.row(3).click()
    notebook.page.evaluate("jupyterapp.commands.execute('notebook:create-output-view')")
    panels = notebook.page.locator(".gm-panel")
    expect(panels).to_have_count(2)
    expect(panels.nth(1).locator('[data-key="3"]')).to_have_attribute("aria-selected", "true")
    panels.nth(1).locator('[data-key="1"]').click()
    expect(panels.nth(0).locator(".gm-line code")).to_have_text("%gpus 3,1")
