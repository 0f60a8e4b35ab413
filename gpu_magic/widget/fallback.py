"""The static fallback in a notebook's file beside a widget, for pages that don't have the widget's kernel.

A page with a live widget hides the fallback (`hideFallback` in panel.js). In place of a widget that is not
live, JupyterLab and Notebook 7 (jupyterlab_widgets 3) write "model not found" where the kernel is gone, and
"Click to show javascript error" where the page can't load anywidget: the style here hides both.
"""

from __future__ import annotations

import html
import time
from typing import Any

from IPython.display import display

__all__ = ["display_with_fallback"]

# It is invisible for a moment, so that it does not flash before a live widget appears.
_FALLBACK = """<div class="gm-fallback" data-widget="{key}"><style>
@keyframes gm-wait{{from,to{{position:absolute;visibility:hidden}}}}
.gm-fallback{{animation:gm-wait .6s}}
.jp-OutputArea-child:has(.gm-fallback)+.jp-OutputArea-child>.jp-OutputArea-output:not(:has(*)),
.jp-OutputArea-child:has(.gm-fallback)+.jp-OutputArea-child:has(.jupyter-widgets-error-widget){{display:none}}
</style>{table}<p>{note}</p></div>"""
_WHEN = "As it was on %Y-%m-%d at %H:%M; it is live where its kernel runs. "
# The page's part comes with anywidget from the Jupyter server, whose environment can be another one.
_MEND = (
    "If this table stays there: <code>pip install anywidget</code> where the Jupyter server is installed, "
    "and load the page again."
)


def display_with_fallback(
    widget: Any, key: str, table: str, text: str, *, problem: str = "", mend: str = ""
) -> None:
    """Display a widget, and before it a static fallback with the time.

    Parameters
    ----------
    widget
        An anywidget.
    key
        The name by which the page finds the fallback, to hide it.
    table, text
        The fallback, for notebooks, as HTML, and for what shows no HTML.
    problem, mend
        Why pages can't show the widget, as a sentence, and the command that mends it, where that is known.

    """
    note = time.strftime(_WHEN)
    if problem:
        note += f"{html.escape(problem)} <code>{html.escape(mend)}</code> adds it; then load the page again."
    else:
        note += _MEND
    display({"text/plain": text, "text/html": _FALLBACK.format(key=key, table=table, note=note)}, raw=True)
    bundle = widget._repr_mimebundle_()
    data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
    # Without the widget's own text: the fallback has one.
    without_text = {mime: value for mime, value in data.items() if mime != "text/plain"}
    display(without_text, metadata=metadata, raw=True)
