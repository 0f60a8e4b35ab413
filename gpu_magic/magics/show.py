"""Shows a refusal as one readable block."""

from __future__ import annotations

import html
import warnings

from IPython.display import display

from gpu_magic.errors import CudaInitializedWarning

__all__ = ["show_refusal"]

_STYLE = (
    "border-left:4px solid var(--jp-warn-color0,#c77f1a);padding:6px 12px;margin:4px 0;"
    "white-space:pre-wrap;font-family:inherit;background:none;color:inherit"
)


class _Refusal:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"CudaInitializedWarning: {self.text}"

    def _repr_html_(self) -> str:
        return f"<pre style='{_STYLE}'><b>Too late for this choice.</b>\n{html.escape(self.text)}</pre>"


def show_refusal(text: str) -> None:
    """Warn with `CudaInitializedWarning`, and show it as a block instead of Python's one-line format.

    The user's warning filters decide, as for any warning: "ignore" silences it, "error" raises it.
    """
    with warnings.catch_warnings(record=True) as caught:
        # Without a registry Python shows it each time, and not once for each place.
        warnings.warn_explicit(
            CudaInitializedWarning(text), CudaInitializedWarning, "%gpus", 1, module="gpu_magic"
        )
    if caught:
        display(_Refusal(text))
