"""What the tests of the panel share: how it is opened, and the pictures they leave."""

from __future__ import annotations

import os
import warnings
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.machine import CARDS, GIB, Driver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Locator, Page

    from tests.browser.lab import Lab, Notebook

LOAD = "%load_ext gpu_magic"
MASK = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"
PANELS = (  # that the kernel has
    "from ipywidgets.widgets import widget\n"
    "print(sum(type(one).__name__ == 'Panel' for one in widget._instances.values()))"
)
HIDE = """hidden => {
    Object.defineProperty(document, 'visibilityState', {get: () => hidden ? 'hidden' : 'visible', configurable: true});
    document.dispatchEvent(new Event('visibilitychange'));
}"""
PICTURES = Path(os.environ.get("GPU_MAGIC_PICTURES", ".pytest_cache/d/panel"))


# Notebook 7 beside JupyterLab: what can't differ between them is tried in it at night.
APPS = pytest.mark.parametrize("app", ["lab", pytest.param("notebook", marks=pytest.mark.nightly)])
# Versions of ipykernel: that of the environment, and those whose clicks come on another thread or at another time.
VERSIONS = [
    "",
    *(pytest.param(version, marks=pytest.mark.nightly) for version in ("6.30.1", "7.3.0", "7.4.0")),
]


class Panels:
    """A page with panels; what is looked for is looked for in its first one."""

    def __init__(self, page: Page) -> None:
        self.page = page

    @property
    def panel(self) -> Locator:
        return self.page.locator(".gm-panel").first

    @property
    def said(self) -> Locator:
        return self.panel.locator(".gm-said")

    @property
    def line(self) -> Locator:
        return self.panel.locator(".gm-line code")

    @property
    def cuda(self) -> Locator:
        """What is said of CUDA."""
        return self.panel.locator(".gm-state")

    @property
    def chip(self) -> Locator:
        return self.page.locator(".gm-chip")

    def row(self, key: object) -> Locator:
        return self.panel.locator(f'.gm-row[data-key="{key}"]')

    def open(self, key: object) -> Locator:
        """Click the chevron of a row; return what that opens."""
        self.row(key).locator(".gm-chevron").click()
        return self.detail(key)

    def detail(self, key: object) -> Locator:
        return self.panel.locator(f'.gm-detail[data-key="{key}"]')

    def button(self, text: str) -> Locator:
        return self.panel.locator("button", has_text=text).first

    def badges(self) -> dict[str, str]:
        """Return what each row's badge says, for those that have one."""
        rows: list[list[str]] = self.panel.locator(".gm-row").evaluate_all(
            "rows => rows.map(row => [row.dataset.key, row.querySelector('.gm-badge').textContent])"
        )
        return {key: badge for key, badge in rows if badge}

    def picture(self, name: str) -> None:
        """Write a picture for whoever changes the panel to look at."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.panel.screenshot(path=PICTURES / f"{name}.png")


def open_panel(lab: Lab, *cells: str, **how: Any) -> Notebook:
    """Open a notebook with a panel, below other cells."""
    notebook = lab.open(LOAD, *cells, "%gpu_panel", **how)
    for cell in range(len(cells) + 2):
        notebook.run(cell)
    expect(notebook.panel).to_be_visible()
    return notebook


def restart(notebook: Notebook) -> None:
    """Restart the kernel as the page's menu does, and wait until its panel has learned of it."""
    notebook.page.evaluate("notebook.sessionContext.session.kernel.restart()")
    expect(notebook.said).to_contain_text("continue this panel")


@contextmanager
def unanswered(notebook: Notebook) -> Iterator[None]:
    """Leave requests of the page unanswered, as a kernel that is being started does at times."""
    kernel = "notebook.sessionContext.session.kernel"
    notebook.page.evaluate(f"() => {{ {kernel}.requestCommInfo = () => new Promise(() => {{}}) }}")
    yield
    notebook.page.evaluate(f"delete {kernel}.requestCommInfo")


def restart_and_use(notebook: Notebook) -> None:
    """Let the panel restart the kernel for what was clicked."""
    notebook.button("Restart kernel and use these").click()
    notebook.panel.get_by_role("button", name="Restart", exact=True).click()


opens_again = pytest.mark.timeout(240)  # for tests with `open_again`: it may try for 150 s


def open_again(lab: Lab, name: str, panels: int = 1) -> Notebook:
    """Open a notebook whose panels its kernel has already.

    Once more, with a warning, where the page has to do without an answer: JupyterLab gives up on a kernel after 4 s.
    """
    for _ in range(5):
        notebook = lab.open_file(name)
        with suppress(AssertionError):
            expect(notebook.page.locator(".gm-panel:visible")).to_have_count(panels, timeout=30_000)
            return notebook
        warnings.warn("A page is opened again: its panels did not come", stacklevel=2)
        notebook.page.close()
        lab.complaints.clear()
    raise TimeoutError


def busy_machine(**first: Any) -> Driver:
    """Return four A100s, the second of them in use, and the first with other figures."""
    busy: dict[str, Any] = {"used": 60 * GIB, "util": 97, "temperature": 71, "milliwatts": 391_000}
    second = replace(CARDS[1], processes=((1, 59 * GIB),), **busy)
    return Driver((replace(CARDS[0], **first), second, *CARDS[2:]))
