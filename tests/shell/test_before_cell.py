"""What runs before a cell, and can keep the cell from running."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from gpu_magic.errors import PlacementError
from gpu_magic.shell.before_cell import BeforeCell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell


class Before:
    """Raises an error before cells, if there is one; has the texts of the cells."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.hook = BeforeCell(shell, self.call)
        self.cells: list[str] = []
        self.error: BaseException | None = None

    def call(self, cell: str) -> None:
        self.cells.append(cell)
        if self.error is not None:
            raise self.error


@pytest.fixture
def before(shell: InteractiveShell) -> Iterator[Before]:
    """Return what is called before cells. Once it is removed, the shell is as before."""
    one = Before(shell)
    one.hook.add()
    one.hook.add()
    yield one
    one.hook.remove()
    one.hook.remove()


@pytest.mark.parametrize(
    "error", [PlacementError("no room"), KeyboardInterrupt(), ValueError("of a framework")]
)
def test_a_cell_before_which_it_fails_does_not_run_and_the_next_one_does(
    before: Before, shell: InteractiveShell, capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    before.error = error
    result = shell.run_cell("x = 1", store_history=True)
    assert not result.success
    assert "x" not in shell.user_ns
    assert capsys.readouterr().out == f"{type(error).__name__}: {error}\n"
    before.error = None
    assert shell.run_cell("x = 2; x", store_history=True).result == 2


def test_the_error_fits_a_page(
    before: Before, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "There is no room for what is parked on the CPU. This cell did not run, and its variables are there."
    )
    before.error = PlacementError(text)
    shell.kernel = None  # type: ignore[attr-defined] # ipykernel's shells have one
    shell.run_cell("x = 1", store_history=True)
    shown = capsys.readouterr().out
    assert " ".join(shown.split()) == f"PlacementError: {text}"
    assert max(map(len, shown.splitlines())) <= 70


def test_only_cells_that_a_user_sees_count(before: Before, shell: InteractiveShell) -> None:
    before.error = PlacementError("no room")
    shell.run_cell("x = 1", silent=True)
    shell.run_cell("y = 2")  # an editor's
    assert (shell.user_ns["x"], shell.user_ns["y"]) == (1, 2)
    before.error = None
    shell.run_cell("get_ipython().run_cell('z = 3')", store_history=True)
    assert shell.user_ns["z"] == 3
    assert before.cells == ["get_ipython().run_cell('z = 3')"]


def test_a_cell_that_is_no_python_leaves_nothing_for_the_next(
    before: Before, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    before.error = PlacementError("no room")
    shell.run_cell("x =", store_history=True)
    shell.run_cell("x = 1", silent=True)
    assert shell.user_ns["x"] == 1
    assert "no room" not in capsys.readouterr().out


def test_an_interrupt_comes_at_once_whatever_it_would_do_else(
    before: Before, shell: InteractiveShell
) -> None:
    """ipykernel delays it for a cell that awaits."""
    received: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        before.hook.remove()
        interrupted = BeforeCell(shell, lambda _: signal.raise_signal(signal.SIGINT))
        interrupted.add()
        shell.run_cell("x = 1", store_history=True)
        interrupted.remove()
        assert "x" not in shell.user_ns
        assert received == []
        signal.raise_signal(signal.SIGINT)
        assert received == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, handler)
