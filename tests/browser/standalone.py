"""The panel's front end in an empty page, in JupyterLab's colors: no server and no kernel are needed."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_magic.panel import script as panel_script
from gpu_magic.panel import style as panel_style
from gpu_magic.panel.state import PanelState
from gpu_magic.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page

    from gpu_magic.testing import Machine

THEMES = Path(sys.prefix, "share/jupyter/lab/themes/@jupyterlab")
# `hear` is what the kernel's messages come in by, `sent` are the page's own, and `lose` is what the widget manager says
# without a kernel.
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
    window.box = document.querySelector('main').appendChild(document.createElement('div'));
    widget.render({el: box});
}"""


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


def row_of(state: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the row of a device."""
    row: dict[str, Any] = next(row for row in state["rows"] if row["key"] == key)
    return row


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
    other = {
        "pid": 4243,
        "title": "train.py",
        "whose": "",
        "folder": "",
        "notebook": "~/other.ipynb",
        "step": "end",
    }
    processes = [
        process,
        process | other,
        process | other | {"pid": 4244, "title": "eval.py", "step": "kill"},
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


def tell(page: Page, state: dict[str, Any], **parts: Any) -> None:
    """Have the page hear a state, with some parts of it changed."""
    page.evaluate("state => hear({type: 'state', state})", {**state, **parts})


def said(state: dict[str, Any], text: str, kind: str, *warnings: str) -> dict[str, Any]:
    """Return what is said anew."""
    return {"number": state["said"]["number"] + 1, "text": text, "kind": kind, "warnings": warnings}


@contextmanager
def panel_page(
    browser: Browser,
    state: dict[str, Any],
    *,
    theme: str = "",
    style: str = "",
    is_live: bool = True,
    **how: Any,
) -> Iterator[Page]:
    """Open a page with a panel.

    The theme is `light`, `dark` or no JupyterLab's. Where it `is_live`, a kernel has sent it its state, and not only
    the notebook's file. `how` is of Playwright's context.
    """
    context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **how})
    page = context.new_page()
    colors = (THEMES / f"theme-{theme}-extension/index.css").read_text() if theme else ""
    page.set_content(
        f"<!doctype html><html lang=en><title>GPUs</title><style>{colors}</style>"
        f"<style>body {{ background: var(--jp-layout-color0); font-family: var(--jp-ui-font-family) }} {style}</style>"
        f"<style>{panel_style()}</style><main></main>"
    )
    page.evaluate(SHOW, [panel_script(), state])
    if is_live:
        tell(page, state)
    yield page
    context.close()
