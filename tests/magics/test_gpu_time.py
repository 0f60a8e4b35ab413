"""What is typed behind `%gpu_time`: its words, and code, which is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpu_magic.testing import simulate
from tests.magics.test_gpus import Run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell


@pytest.fixture
def run(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    with simulate("1xT4", clock=lambda: 0.0):
        yield Run(shell, capsys)
        shell.extension_manager.unload_extension("gpu_magic")


@pytest.mark.parametrize(
    "typed",
    [
        "train()",
        "train",
        "import os",
        "%env HOME",
        "train() # report",
    ],
)
def test_code_that_python_can_run_is_measured(run: Run, shell: InteractiveShell, typed: str) -> None:
    shell.user_ns["train"] = lambda: 42
    shown, wrong = run(f"%gpu_time {typed}")
    assert wrong == ""
    assert "Wall " in shown


def test_an_option_can_end_with_a_tab(run: Run) -> None:
    shown, wrong = run("%gpu_time --json\t'a  #1'")
    assert wrong == ""
    assert '"code": "\'a  #1\'"' in shown


@pytest.mark.parametrize(
    ("typed", "error"),
    [
        ("reprot", "NameError"),
        ("trian(1)", "NameError"),
        ("x y", "SyntaxError"),
        ("print)", "SyntaxError"),
        ("1/0", "ZeroDivision"),
        ("--jason x", "UsageError: There is no --jason; the option is --json"),
    ],
)
def test_other_code_fails_as_it_does_in_a_cell(run: Run, typed: str, error: str) -> None:
    shown, wrong = run(f"%gpu_time {typed}")
    assert error in shown + wrong
