"""The panel as a widget, with a table for pages that can't show it."""

from __future__ import annotations

import logging
import secrets
import time
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets
from IPython.core.getipython import get_ipython
from IPython.display import display

from gpu_magic.errors import KernelRestarting
from gpu_magic.frameworks.private import private_of
from gpu_magic.gpus.table import as_html, as_text
from gpu_magic.panel import script, style
from gpu_magic.panel.front_end import hear_every_page, missing_there, read_front_end
from gpu_magic.panel.messages import NotUnderstoodError
from gpu_magic.panel.state import panel_state
from gpu_magic.process.environment import launch_environment
from gpu_magic.process.session import current
from gpu_magic.public import public
from gpu_magic.restart.saved import save
from gpu_magic.text import escaped, listed, printable

if TYPE_CHECKING:
    from gpu_magic.gpus.choice import TooLate
    from gpu_magic.panel.front_end import Missing

__all__ = ["Panel", "fallback", "panel", "restart_with_choice"]

_log = logging.getLogger("gpu_magic.panel")

# A page with a live panel hides the table (`hideFallback` in panel.js). Instead of a widget that is not live,
# JupyterLab and Notebook 7 (jupyterlab_widgets 3) show "model not found" if the kernel has ended, and "Click
# to show javascript error" if the page can't load anywidget. The style hides both. The table is invisible for
# a moment, so that it does not flash before a live panel appears.
_FALLBACK = """<div class="gm-fallback" data-widget="{key}" data-place="{place}"><style>
@keyframes gm-wait{{from,to{{position:absolute;visibility:hidden}}}}
.gm-fallback{{animation:gm-wait .6s}}
.jp-OutputArea-child:has(.gm-fallback)+.jp-OutputArea-child>.jp-OutputArea-output:not(:has(*)),
.jp-OutputArea-child:has(.gm-fallback)+.jp-OutputArea-child:has(.jupyter-widgets-error-widget){{display:none}}
</style>{table}<p>{note}</p></div>"""
_WHEN = "State of %Y-%m-%d %H:%M. It is live while its kernel runs. "
# Pages load anywidget from the Jupyter server, which can be in another environment.
_INSTALL = (
    "If only this table appears, run <code>pip install anywidget</code> where the Jupyter server is "
    "installed, then reload the page."
)


def fallback(key: str, place: str, table: str, missing: Missing | None) -> str:
    """Return the HTML for pages that can't show this panel: a table, and a note on what the page lacks."""
    note = time.strftime(_WHEN)
    if missing:
        problem, fix = map(escaped, missing)
        note += f"{problem} Run <code>{fix}</code>, then reload the page."
    else:
        note += _INSTALL
    return _FALLBACK.format(key=key, place=place, table=table, note=note)


class Panel(anywidget.AnyWidget):
    """A live panel; see `gpu_magic.panel`."""

    is_widget = True
    _esm = script()
    _css = style()
    key = traitlets.Unicode().tag(sync=True)  # with which a page finds the tables of this panel
    # The value is not stored: a page that asks for it gets the current state.
    full_state = traitlets.Any().tag(sync=True, to_json=lambda _, panel: panel.state.state(with_history=True))

    def __init__(self) -> None:
        self.state = panel_state()
        self.state.add(self, get_ipython())
        super().__init__(key=secrets.token_hex(8))
        hear_every_page(self.comm)
        self.on_msg(lambda _widget, message, _buffers: self.state.receive(self, message))

    @property
    def is_open(self) -> bool:
        """Whether pages can show the panel. marimo closes the comm when its cell runs again."""
        return self.comm is not None and not private_of(self.comm, "comm.base_comm:BaseComm._closed")

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message to the pages that have this panel."""
        if self.is_open:
            self.send(message)
        else:
            self.state.remove(self)

    def close(self) -> None:
        """Close the panel in all its pages."""
        self.state.remove(self)
        super().close()

    def __repr__(self) -> str:
        return as_text(self.state.read())

    def _ipython_display_(self, **_: Any) -> None:
        """Show a table and then the panel. A page that can show the panel hides the table."""
        snapshot = self.state.add(self, get_ipython())
        missing = missing_there(read_front_end(launch_environment()), anywidget.__version__)
        if self.state.pages()[1]:  # a page has answered
            missing = None
        if missing:
            _log.info("A panel was shown as a table. %s", printable(missing.problem))
        table = fallback(self.key, secrets.token_hex(8), as_html(snapshot), missing)
        display({"text/plain": as_text(snapshot), "text/html": table}, raw=True)
        bundle: Any = self._repr_mimebundle_()
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        data.pop("text/plain", None)  # the table has one
        display(data, metadata=metadata, raw=True)

    def set_state(self, _sync_data: dict[str, Any]) -> None:
        """Refuse: pages send messages and don't set the state."""
        self.state.say(str(NotUnderstoodError()), "error")

    def _handle_msg(self, msg: dict[str, Any]) -> None:
        # ipywidgets prints a traceback for a message that is not as its own page sends it.
        data = msg["content"].get("data")
        is_request = isinstance(data, dict) and data.get("method") == "request_state"
        if is_request or (isinstance(data, dict) and data.get("method") == "custom" and "content" in data):
            super()._handle_msg(msg)
        else:
            self.set_state({})


_panel: Panel | None = None


@public
def panel() -> Panel:
    """Return the live panel of the GPUs. If the call is the last line of a cell, the cell shows the panel.

    Returns
    -------
    Panel
        A widget. A kernel has one panel. marimo has one panel for each cell. One thread reads the machine
        while a page shows the panel.

    """
    global _panel  # noqa: PLW0603 - a process has one
    if _panel is None or not _panel.is_open or get_ipython() is None:
        _panel = Panel()
    return _panel


def restart_with_choice(choice: TooLate, *, dry_run: bool) -> None:
    """Save a choice that came too late, and restart the kernel to apply it. In a dry run, do neither.

    Raises
    ------
    ChoiceError
        There is no kernel to restart. Nothing was changed. Also raised in a dry run.
    KernelRestarting
        The choice is saved, and the kernel is about to be restarted.

    """
    save(choice.request, choice.devices, choice.options.to_save, dry_run=dry_run)
    if dry_run:
        return
    devices = listed((device.label for device in choice.devices), "no GPU")
    starts_with_gpus = current().begun_with is not None  # such a kernel needs no %load_ext
    then = (
        f"It starts with {devices}" if starts_with_gpus else f"The next %load_ext gpu_magic chooses {devices}"
    )
    text = f"Restarting the kernel. {then}." if choice.request else "Restarting the kernel to reset it."
    panel().state.restart()  # each page of the kernel has the widget, even if it shows none
    raise KernelRestarting(text)
