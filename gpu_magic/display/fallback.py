"""The static fallback in a notebook's file beside a widget, for pages that don't have the widget's kernel.

A page with a live widget hides the fallback (`hideFallback` in panel.js). Where the kernel is gone,
JupyterLab and Notebook 7 write "model not found" in place of the widget (jupyterlab_widgets 3): the style
here hides that.
"""

from __future__ import annotations

import time
from typing import Any

from IPython.display import display

__all__ = ["display_with_fallback"]

# It is invisible for a moment, so that it does not flash before a live widget appears.
_FALLBACK = """<div class="gm-fallback" data-widget="{key}"><style>
@keyframes gm-wait{{from,to{{position:absolute;visibility:hidden}}}}
.gm-fallback{{animation:gm-wait .6s}}
.jp-OutputArea-child:has(.gm-fallback)+.jp-OutputArea-child>.jp-OutputArea-output:not(:has(*)){{display:none}}
</style>{html}<p>{note}</p></div>"""
# The page's part comes with anywidget from the Jupyter server, whose environment can be another one.
_NOTE = (
    "As it was on %Y-%m-%d at %H:%M; it is live where its kernel runs. If this table stays there: "
    "<code>pip install anywidget</code> where the Jupyter server is installed, and load the page again."
)


def display_with_fallback(widget: Any, key: str, html: str, text: str) -> None:
    """Display a widget, and before it a static fallback with the time.

    Parameters
    ----------
    widget
        An anywidget.
    key
        The name by which the page finds the fallback, to hide it.
    html, text
        The fallback, for notebooks and for what shows no HTML.

    """
    note = time.strftime(_NOTE)
    display({"text/plain": text, "text/html": _FALLBACK.format(key=key, html=html, note=note)}, raw=True)
    bundle = widget._repr_mimebundle_()
    data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
    # Without the widget's own text: the fallback has one.
    without_text = {mime: value for mime, value in data.items() if mime != "text/plain"}
    display(without_text, metadata=metadata, raw=True)
