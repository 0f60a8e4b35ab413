"""The page's side of the panel: missing at the Jupyter server, or of another version than the kernel's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.diagnosis.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.diagnosis.facts import Facts

__all__ = ["check_front_end"]

_ABOUT = "panel"
_TABLE = "%gpu_panel shows a table that does not change. "


def check_front_end(facts: Facts) -> Iterator[Finding]:
    front, packages, kernel = facts.front_end, facts.packages, facts.kernel
    if front is UNKNOWN or packages is UNKNOWN or kernel is UNKNOWN or kernel.program != "kernel":
        return
    here = packages.version("anywidget")
    if front.is_known and not front.has_answered:  # a page that has answered has what it needs
        missing = "anywidget" * (not front.anywidget) or "ipywidgets" * (not front.manager)
        wanted = what = ""
        if missing:
            wanted = missing
            what = f"The Jupyter server's environment has no {missing}, which is the page's part of a panel."
        elif here and _series(here) != _series(front.anywidget):
            wanted = f"anywidget=={here}"
            what = (
                f"Pages have anywidget {front.anywidget} of the Jupyter server, and this kernel has {here}."
            )
        if wanted:
            mend = f"{front.prefix}/bin/python -m pip install {wanted}"
            meaning = f"{_TABLE}After this, load the page again:"
            yield Finding("worth knowing", _ABOUT, what, meaning, mend, public=what)
            return
    if front.panels and not front.has_answered:
        what = "A panel was shown, and no page has answered it."
        meaning = (
            f"{_TABLE}It does so until the page is loaded again, and for good where it has no anywidget:"
        )
        yield Finding("worth knowing", _ABOUT, what, meaning, "pip install anywidget")


def _series(version: str) -> str:
    """Return the part that has to be the same on both sides: `0.11`."""
    found = re.match(r"\d+\.\d+", version)
    return found[0] if found else version
