"""What stands in a notebook's file beside a widget, for whoever opens it without the kernel that made it.

A page that shows the widget shows the widget alone: panel.js hides what stands beside a live one. JupyterLab
and Notebook 7 write "model not found" where the widget was (jupyterlab_widgets 3): that is hidden here.
"""

from __future__ import annotations

import time
from typing import Any

from IPython.display import display

__all__ = ["display_with"]

# The wait keeps it from flashing up before the widget is there.
_INSTEAD = """<div class="gm-instead" data-widget="{key}"><style>
@keyframes gm-wait{{from,to{{position:absolute;visibility:hidden}}}}
.gm-instead{{animation:gm-wait .6s}}
.jp-OutputArea-child:has(.gm-instead)+.jp-OutputArea-child>.jp-OutputArea-output:not(:has(*)){{display:none}}
</style>{html}<p>{still}</p></div>"""


def display_with(widget: Any, key: str, html: str, text: str) -> None:
    """Show a widget, and beside it what says the same without one.

    Parameters
    ----------
    widget
        An anywidget.
    key
        What the page finds the text by, to hide it.
    html, text
        The same twice.

    """
    still = time.strftime("As it was on %Y-%m-%d at %H:%M; it is live where its kernel runs.")
    display({"text/plain": text, "text/html": _INSTEAD.format(key=key, html=html, still=still)}, raw=True)
    view = widget._repr_mimebundle_()
    data, metadata = view if isinstance(view, tuple) else (view, {})
    display(
        {name: value for name, value in data.items() if name != "text/plain"}, metadata=metadata, raw=True
    )
