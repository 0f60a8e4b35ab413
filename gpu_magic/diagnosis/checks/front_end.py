"""The page's side of the panel: missing at the Jupyter server, or of another version than the kernel's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.diagnosis.finding import Finding
from gpu_magic.diagnosis.front_end import missing_there

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
    missing = missing_there(front, packages.version("anywidget"))
    if missing and not front.has_answered:  # a page that has answered has what it needs
        meaning = f"{_TABLE}After this, load the page again:"
        yield Finding("worth knowing", _ABOUT, missing.what, meaning, missing.mend, public=missing.what)
        return
    if front.panels and not front.has_answered:
        what = "A panel was shown, and no page has answered it."
        meaning = (
            f"{_TABLE}It does so until the page is loaded again, and for good where it has no anywidget:"
        )
        yield Finding("worth knowing", _ABOUT, what, meaning, "pip install anywidget")
