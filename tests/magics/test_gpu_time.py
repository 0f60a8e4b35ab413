"""What is typed behind `%gpu_time`: its words, words like them, and code, which is measured."""

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
    ("typed", "says"),
    [
        ("reprot", "There is no variable reprot to measure; did you mean %gpu_time report?"),
        ("of", "There is no variable of to measure; did you mean %gpu_time off?"),
        ("Reprot;", "There is no variable Reprot to measure; did you mean %gpu_time report?"),
        ("report()", "There is no variable report to measure; did you mean %gpu_time report?"),
        ("on off", "%gpu_time takes no on off; did you mean %gpu_time on?"),
        ("reprot all", "%gpu_time takes no reprot all; did you mean %gpu_time report?"),
        ("on --json", "There is no variable on to measure; did you mean %gpu_time on?"),
        ("--json off", "There is no variable off to measure; did you mean %gpu_time off?"),
        ("--report", "There is no --report; try %gpu_time report."),
        ("x y", "%gpu_time measures a line of Python, and x y is none: invalid syntax."),
        (
            'F("a  #1") X',
            '%gpu_time measures a line of Python, and F("a  #1") X is none: invalid syntax.',
        ),
        ("on, off", "There is no variable on to measure; did you mean %gpu_time on?"),
        ("status", "There is no variable status to measure; %gpu_time goes with on, off, report or code."),
    ],
)
def test_a_word_like_one_of_its_own_is_not_run(run: Run, typed: str, says: str) -> None:
    shown, wrong = run(f"%gpu_time {typed}")
    assert (shown, wrong) == ("", f"UsageError: {says}")


@pytest.mark.parametrize("typed", ["~" * 9000 + "1", "(" * 9000])
def test_a_line_of_very_many_levels_gets_one_line(run: Run, typed: str) -> None:
    shown, wrong = run(f"%gpu_time {typed}")
    assert shown == ""
    assert wrong.startswith("UsageError: %gpu_time measures a line of Python, and ")
    assert "\n" not in wrong


@pytest.mark.parametrize(
    "typed",
    [
        "train()",
        "train",
        "of",
        "Reprot",
        "of or 5",
        "one if True else 0",
        "report if False else 42",
        "reports[0]",
        "on_gpu.value",
        "(report := 42)",
        "report_of = 42",
        "off_by_one: int",
        "abs(-42)",
        "__name__",
        "None",
        "not of",
        "[report for report in (1, 2)]",
        "lambda: off",
        "import os",
        "%env HOME",
        "train() # reprot",
    ],
)
def test_code_that_python_can_run_is_measured(run: Run, shell: InteractiveShell, typed: str) -> None:
    shell.user_ns |= {
        "train": lambda: 42,
        "of": 42,
        "Reprot": 42,
        "one": 42,
        "reports": [42],
        "on_gpu": type("Some", (), {"value": 42}),
    }
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
        ("trian(1)", "NameError"),
        ("nothing.here", "NameError"),
        (
            "print)",
            "is none: unmatched ')'",
        ),  # an open one is incomplete input to IPython, from Python 3.13 on
        ("1/0", "ZeroDivision"),
    ],
)
def test_other_code_fails_as_it_does_in_a_cell(run: Run, typed: str, error: str) -> None:
    shown, wrong = run(f"%gpu_time {typed}")
    assert error in shown + wrong
    assert "to measure" not in shown + wrong
