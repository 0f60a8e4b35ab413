"""What a cell in the background leaves behind in its interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Fresh

# It begins, and its task is ended or ends in one of three ways; then a function runs as under a debugger.
PROGRAM = """
import contextlib, sys, time
from contextlib import nullcontext
from types import SimpleNamespace
from gpu_magic.on_gpu.background import ThreadTask

WAY = {way!r}

def work():
    if WAY == "ends":
        return "done"
    with contextlib.suppress(KeyboardInterrupt) if WAY == "ignores it" else nullcontext():
        while True:
            time.sleep(0.01)
    return "done"

scope = nullcontext(SimpleNamespace(devices=(), machine=None))
more = {{"cell": 1, "call": lambda run: run(), "at_begin": bool, "at_end": bool}}
task = ThreadTask("a", work, scope, **more)
task.start()
if WAY != "ends":
    task.stop()
assert task.join(60)
print(task.result, type(task.error).__name__)

sys.settrace(lambda frame, event, argument: None)
(lambda: None)()
sys.settrace(None)
print("traced")
"""


@pytest.mark.parametrize(
    ("way", "said"),
    [("ends", "done NoneType"), ("is stopped", "None KeyboardInterrupt"), ("ignores it", "done NoneType")],
)
def test_functions_can_be_traced_after_a_cell_in_the_background(fresh: Fresh, way: str, said: str) -> None:
    """A debugger does that; with a flag of CPython's left set, it would wait for ever in Python 3.11."""
    assert fresh(PROGRAM.format(way=way)).splitlines() == [said, "traced"]
