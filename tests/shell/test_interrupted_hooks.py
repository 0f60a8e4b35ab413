"""Interrupts that come in what gpu_magic does before and after a cell: they are the cell's, and come a moment later."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gpu_magic
from tests.processes import until
from tests.reliability.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from IPython.core.interactiveshell import InteractiveShell

# An interrupt can come before anything holds it back.
DOORS = {
    "_explain_failure",
    "_transform",
    "visit",
    "_before_cell",
    "_after_cell",
    "_cell_has_ended",
    "_before",
    "_after",
    "find_spec",
}
OURS = (*map(str, Path(gpu_magic.__file__).parent.rglob("*.py")), "/contextlib.py", "/os.py")
HOLD = {"postponed_interrupts", "defer_interrupts", "in_background"}
MOST = 100  # moments of a cell
CELLS = ("x = 1", "%%gpu_time\nx = 1", "%%on_gpu cpu\nx = 1", "%gpu_time on", "%gpu_time off")


pytestmark = [pytest.mark.machine("2xA100-80GB"), pytest.mark.usefixtures("machine")]


@pytest.fixture
def loaded(shell: InteractiveShell) -> Iterator[InteractiveShell]:
    shell.run_line_magic("load_ext", "gpu_magic")
    shell.run_line_magic("gpus", "1")
    yield shell
    shell.run_line_magic("unload_ext", "gpu_magic")


@pytest.fixture
def arrived() -> Iterator[list[int]]:
    """Return the interrupts that arrive, which raise nothing here: one that is late can come anywhere."""
    numbers: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGINT, handler)


def is_within_a_hook() -> bool:
    """Return whether an interrupt comes in a hook, behind what holds it back."""
    names: list[str] = []
    frame: FrameType | None = sys._getframe(3)
    assert frame is not None
    if frame.f_code.co_filename.endswith("/contextlib.py"):  # it begins to hold it back, or has held it
        return False
    while frame is not None and frame.f_code.co_filename.endswith(OURS):
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return len(names) > 1 and not DOORS.isdisjoint(names[-2:]) and HOLD.isdisjoint(names)


def test_the_functions_that_are_named_here_are_there() -> None:
    package = "".join(
        file.read_text(encoding="utf-8") for file in Path(gpu_magic.__file__).parent.rglob("*.py")
    )
    assert [name for name in DOORS | HOLD if f"def {name}(" not in package] == []


@pytest.mark.parametrize("cell", CELLS)
def test_an_interrupt_in_a_hook_comes_after_it(
    loaded: InteractiveShell, arrived: list[int], cell: str
) -> None:
    shell, counter, tried = loaded, Steps(), 0
    for _ in range(3):  # what is loaded when it is first used
        shell.run_cell(cell)
    with counter.counted():
        shell.run_cell(cell)
    for moment in range(1, counter.count + 1, 1 + counter.count // MOST):
        at_once: list[bool] = []

        def interrupt(at_once: list[bool] = at_once) -> None:
            if is_within_a_hook():
                signal.raise_signal(signal.SIGINT)  # whatever handles it is called before this returns
                at_once.append(bool(arrived))

        with Steps(moment, interrupt).counted():
            shell.run_cell(cell)
        if at_once:
            tried += 1
            assert at_once == [False], moment
            until(lambda: arrived)
            assert len(arrived) == 1
            arrived.clear()
    assert tried
