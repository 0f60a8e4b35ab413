"""Every fault with every face: no traceback of ours, no wrong choice, no lost variable, no environment in between."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.reliability.fault import HEALTHY
from tests.reliability.faults import FAULTS
from tests.reliability.matrix import try_fault
from tests.reliability.table import FOUND, draw, line_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel
    from tests.reliability.fault import Fault


# One that a GPU has, one that the driver has and one of the system; the others pass the same doors (test_door.py).
BEFORE_EACH_PUSH = ("lost-before", "permission", "read-only")
ROWS = [
    pytest.param(fault, id=fault.name, marks=() if fault.name in BEFORE_EACH_PUSH else pytest.mark.nightly)
    for fault in FAULTS
]


@pytest.mark.timeout(600)  # all that users type, in one kernel
@pytest.mark.parametrize("fault", ROWS)
def test_a_fault(fault: Fault, start_kernel: Callable[..., Kernel], pretend: dict[str, str]) -> None:
    def start() -> Kernel:
        without = {} if fault.has_driver else {"LD_LIBRARY_PATH": ""}
        return start_kernel(HEALTHY, imported=("torch", "torch._dynamo"), **pretend, **without)

    found = try_fault(fault, start)
    found["line"] = line_of(found.pop("said"))
    if folder := os.environ.get("GPU_MAGIC_TEST_RECORD"):
        (Path(folder) / f"{fault.name}.json").write_text(json.dumps(found), encoding="utf-8")
    else:
        recorded = json.loads(FOUND.read_text(encoding="utf-8"))
        assert found["cells"] == recorded[fault.name]["cells"], "renew found.md: python -m tests.reliability"


def test_every_fault_was_tried_and_is_on_the_page() -> None:
    found = json.loads(FOUND.read_text(encoding="utf-8"))
    page = draw(found)
    assert list(found) == [fault.name for fault in FAULTS]
    assert all(f"\n| {fault.title} | " in page for fault in FAULTS)
