"""`%gpu_doctor` in a real kernel: what it says of the panel's page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.kernel.test_panel import Page

if TYPE_CHECKING:
    from tests.kernel.conftest import Kernel


def findings(kernel: Kernel, about: str) -> list[dict[str, Any]]:
    """Return what is found about something."""
    found = json.loads(kernel.run("%gpu_doctor --json").stdout)["findings"]
    return [one for one in found if one["about"] == about]


def test_a_panel_that_no_page_has_answered(kernel: Kernel) -> None:
    assert "<pre" in kernel.run("%gpu_doctor").html
    page = Page(kernel)
    (found,) = findings(kernel, "panel")
    assert found["problem"] == "A panel was shown, but no page has answered."
    page.look()
    page.state(lambda state: "history" in state)
    assert findings(kernel, "panel") == []
