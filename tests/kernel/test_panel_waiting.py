"""A wait that is begun in a panel ends with its kernel; `tests/panel` has when it chooses, and what ends it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.claims.holders import stranger
from tests.kernel.test_panel import Page
from tests.machine import CARDS
from tests.processes import until

if TYPE_CHECKING:
    from tests.kernel.conftest import Kernel

HELD = r"Waiting for GPU 3, \d+ s: claimed by \w+, since .+\. Next look in \d+ s\."


def test_a_kernel_that_ends_ends_it(kernel: Kernel) -> None:
    page = Page(kernel)
    with stranger() as other:
        other.run(f"claims.hold({[CARDS[3].uuid]!r})")
        page.send({"type": "wait", "request": "3"})
        page.state(lambda state: re.fullmatch(HELD, state["waiting"]))
        kernel.client.shutdown()
        until(lambda: not kernel.is_alive())
