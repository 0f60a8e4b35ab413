"""`%gpu_doctor` in a real kernel: a variable that a cell has set, and the panel's page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.kernel.test_panel import Page

if TYPE_CHECKING:
    from tests.kernel.conftest import Kernel

MASK = "CUDA_VISIBLE_DEVICES"
# The driver's answer: what PyTorch would see once CUDA is started.
SEEN = (
    "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); cuda.cuInit(0); n = ctypes.c_int(); "
    "cuda.cuDeviceGetCount(ctypes.byref(n)); print(n.value)"
)


def findings(kernel: Kernel, about: str) -> list[dict[str, Any]]:
    """Return what is found about something."""
    found = json.loads(kernel.run("%gpu_doctor --json").stdout)["findings"]
    return [one for one in found if one["about"] == about]


def test_a_variable_that_a_cell_has_set_and_a_panel_that_no_page_has_answered(kernel: Kernel) -> None:
    assert "<pre" in kernel.run("%gpu_doctor").html
    for value in ('"2,0"', ""):
        kernel.run(f"import os; os.environ['{MASK}'] = {value!r}")
        (found,) = findings(kernel, MASK)
        assert kernel.run(found["mend"]).status == "ok"
        assert findings(kernel, MASK) == []
    assert kernel.run(SEEN).stdout == "4\n"
    page = Page(kernel)
    (found,) = findings(kernel, "panel")
    assert found["what"] == "A panel was shown, and no page has answered it."
    page.do(type="set_visibility", view="v", visibility="watched")
    assert page.hear() != {}
    assert findings(kernel, "panel") == []
