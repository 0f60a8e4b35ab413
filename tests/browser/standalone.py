"""The panel in an empty page, in JupyterLab's colors: without a server, and with the kernel's part in this process."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_magic.panel import script as panel_script
from gpu_magic.panel import style as panel_style
from gpu_magic.panel.state import PanelState
from gpu_magic.testing import Machine, simulate
from tests.browser.panel import Panels

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Browser, Page

THEMES = Path(sys.prefix, "share/jupyter/lab/themes/@jupyterlab")
# `hear` is what the kernel's messages come in by, `sent` are the page's own, and `lose` is what the widget manager says
# without a kernel. `show` shows the panel once more.
SHOW = """async ([script, state]) => {
    const url = URL.createObjectURL(new Blob([script], {type: 'text/javascript'}));
    const widget = (await import(url)).default();
    const heard = {};
    const get = name => name === 'full_state' ? state : '';
    window.sent = [];
    const send = message => sent.push(message);
    widget.initialize({model: {get, on(name, act) { heard[name] = act; }, send}});
    window.hear = message => heard['msg:custom'](message);
    window.lose = () => heard['comm_live_update']();
    window.show = () => {
        const el = document.querySelector('main').appendChild(document.createElement('div'));
        widget.render({el});
        return el;
    };
    window.box = show();
}"""


class BarePages:
    """Opens panels, all in one page of Chromium; `complaints` are the errors of their scripts."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.complaints: list[str] = []
        self._others: list[Page] = []
        self._page = self._new_page()

    def _new_page(self) -> Page:
        page = self._browser.new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        return page

    def __call__(
        self,
        state: dict[str, Any],
        *,
        theme: str = "",
        font: str = "",
        width: int = 1400,
        forced_colors: str = "none",
        is_live: bool = True,
        has_clock: bool = False,
    ) -> Page:
        """Open a page with a panel, in place of the one before.

        The theme is `light`, `dark` or no JupyterLab's. Where it `is_live`, a kernel has sent it its state, and not
        only the notebook's file. One that `has_clock`, which the test turns, is a page of its own.
        """
        page = self._page
        if has_clock:
            self._others.append(page := self._new_page())
            page.clock.install()
        page.goto("about:blank")
        page.set_viewport_size({"width": width, "height": 900})
        scheme: Any = "dark" if theme == "dark" else "light"
        page.emulate_media(forced_colors=forced_colors, color_scheme=scheme)
        colors = (THEMES / f"theme-{theme}-extension/index.css").read_text() if theme else ""
        page.set_content(
            f"<!doctype html><html lang=en><title>GPUs</title><style>{colors}</style>"
            f"<style>body {{ background: var(--jp-layout-color0); font-family: {font or 'var(--jp-ui-font-family)'} }}</style>"
            f"<style>{panel_style()}</style><main></main>"
        )
        page.mouse.move(0, 0)
        page.evaluate(SHOW, [panel_script(), state])
        if is_live:
            tell(page, state)
        return page

    def close(self) -> None:
        """Close the pages that tests had of their own."""
        for page in self._others:
            page.close()
        self._others.clear()


class LivePanel(Panels):
    """A panel in a bare page, and what a kernel has beneath it: `PanelState`, on a simulated machine."""

    is_widget = True

    def __init__(self, pages: BarePages, machine: Machine, **how: Any) -> None:
        self.machine = machine
        self._heard: list[dict[str, Any]] = []
        self.kernel = PanelState()
        self.kernel.add(self, None)
        super().__init__(pages(self.state, **how))
        self.exchange("sent.length")

    @property
    def state(self) -> dict[str, Any]:
        """What a page gets now."""
        state: dict[str, Any] = json.loads(json.dumps(self.kernel.state(self, with_history=True)))
        return state

    def tell(self, message: dict[str, Any]) -> None:
        """Keep a message for the page."""
        self._heard.append(message)

    def exchange(self, when: str = "true") -> LivePanel:
        """Wait for something in the page; then each side hears the other, no cell runs, and the machine is read."""
        self.page.wait_for_function(when)
        for message in self.page.evaluate("sent.splice(0)"):
            self.kernel.receive(self, message)
        self.kernel._when_idle(before_cell=False)
        self.kernel.read()
        heard, self._heard = self._heard, []
        self.page.evaluate("all => all.forEach(hear)", heard)
        return self

    def click(self, *rows: object) -> None:
        for key in rows:
            self.row(key).click(force=True)  # Playwright itself waits for what is disabled

    def use(self, text: str = "Use these") -> str:
        """Apply what was clicked; return what is said of it."""
        self.button(text).click()
        return self.exchange().said.inner_text()

    def close(self) -> None:
        self.kernel.pause()


def state_of(
    profile: str, prepare: Callable[[Machine], object] = lambda _machine: None, *, mask: str | None = None
) -> dict[str, Any]:
    """Return what a page gets of a simulated machine."""
    with simulate(profile, mask=mask) as machine:
        prepare(machine)
        panel = PanelState()
        panel.read()
        state: dict[str, Any] = json.loads(json.dumps(panel.state(with_history=True)))
    return state


def with_people(machine: Machine) -> None:
    """Let somebody work on GPU 1, and four people on GPU 2."""
    machine.gpus[1].run("train.py", "maria", 60 << 30, work=97)
    for owner in ("chen", "tom", "aisha", "maria"):
        machine.gpus[2].run("eval.py", owner, 9 << 30, work=12)


def busy(machine: Machine) -> None:
    """Let somebody work on the last GPU, and lose one."""
    machine.gpus[-1].run("train.py --config everything.yaml", "a-rather-long-name", 60 << 30, work=97)
    if len(machine.gpus) > 2:
        machine.gpus[2].lose()


def row_of(state: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the row of a device."""
    row: dict[str, Any] = next(row for row in state["rows"] if row["key"] == key)
    return row


def fill(state: dict[str, Any], percent: int = 50) -> dict[str, Any]:
    """Let the charts of utilization be full."""
    for samples in state["history"].values():
        samples[:] = [percent] * 180
    return state


def detail_of(**parts: Any) -> dict[str, Any]:
    """Return the detail of a row: a GPU that is much used, by whom it can be seen."""
    process = {
        "pid": 4242,
        "started": 1,
        "title": "a-notebook-with-a-name-that-is-longer-than-most-others.ipynb",
        "folder": "~/projects/vision/notebooks",
        "notebook": "",
        "whose": "this kernel",
        "owner": "maria",
        "age": "3 h",
        "memory": "31.2 GiB",
        "step": "",
    }
    other = process | {
        "pid": 4243,
        "title": "train.py",
        "whose": "",
        "folder": "",
        "notebook": "~/other.ipynb",
    }
    processes = [
        process,
        other | {"step": "end"},
        other | {"pid": 4244, "title": "eval.py", "step": "kill"},
    ]
    variables = {"largest": [["model", "12.1 GiB"], ["x" * 40, "96 MiB"]], "more": 3, "unfinished": True}
    detail = {
        "memory": [None if 60 <= second < 80 else 400 + second for second in range(180)],
        "power_limit": 400,
        "slowdowns": ["power limit", "heat"],
        "processes": processes,
        "is_listed": True,
        "variables": variables,
    }
    return detail | parts


def open_rows(page: Page, state: dict[str, Any], *keys: str) -> None:
    """Open rows, each with much in it."""
    for key in keys:
        page.locator(f'.gm-row[data-key="{key}"] .gm-chevron').click()
    tell(page, state, details={key: detail_of() for key in keys})


def tell(page: Page, state: dict[str, Any], **parts: Any) -> None:
    """Have the page hear a state, with some parts of it changed."""
    page.evaluate("state => hear({type: 'state', state})", {**state, **parts})


def said(state: dict[str, Any], text: str, kind: str, *warnings: str) -> dict[str, Any]:
    """Return what is said anew."""
    return {"number": state["said"]["number"] + 1, "text": text, "kind": kind, "warnings": warnings}
