"""What magics show is text in a terminal, and in a page HTML whose lines break between words."""

from __future__ import annotations

import html
import os
import re
from typing import TYPE_CHECKING

import pytest

from gpu_magic.shell.wrapping import fitted

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.testing import Machine
    from tests.conftest import Typed


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("%gpus 1", "cuda:0 = GPU 1 "),
        ("%gpus auto:2 --dry-run", "Dry run: would set"),
        ("%gpus none", "No GPU is visible"),
        ("%gpus reset", "Reset: "),
        ("display(gpu_magic.choose(1))", "cuda:0 = GPU 1 "),
        ("%where", "No variable"),
        ("%gpu_free", "No framework has memory"),
        ("%gpu_park", "Nothing"),
        ("%gpu_tasks", ""),  # of earlier tests
        ("%gpu_time on", "From now on each cell"),
        ("%gpu_launch --dry-run echo דוד/train.py --warmup-for 30 '5 GPU'", "--warmup-for 30 '5 GPU'"),
    ],
)
def test_a_page_gets_the_text_as_html(machine: Machine, typed: Typed, cell: str, says: str) -> None:
    typed("import gpu_magic")
    shown = typed(cell)
    assert says in shown.text
    data = typed.outputs[-1].data
    text = html.unescape(re.sub("<.*?>", "", data["text/html"]))
    assert text == data["text/plain"]  # also what is copied: no other spaces, no marks
    assert "white-space:pre-wrap;word-break:normal" in data["text/html"]


def test_a_refusal_in_a_terminal_that_reports_no_size(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, terminal = os.openpty()  # of 0 columns
    with os.fdopen(other), os.fdopen(terminal, "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        assert fitted(shell, "word, " * 13 + "word") == "word, " * 12 + "word,\nword"


def test_an_assigned_line_shows_the_choice_and_has_no_value(machine: Machine, typed: Typed) -> None:
    assert typed("x = %gpus 1").text.startswith("cuda:0 = GPU 1")
    assert typed("x is None").value is True


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("%gpus 1", "cuda:0 = GPU 1"),
        ("with gpu_magic.on_gpu(99, or_cpu=True): pass", "Running on the CPU: cuda:99 cannot be used"),
    ],
)
def test_what_captures_outputs_captures_what_is_said(
    machine: Machine, typed: Typed, shell: InteractiveShell, code: str, says: str
) -> None:
    assert typed(f"%%capture shown\nimport gpu_magic\n{code}").text == ""
    shown = shell.user_ns["shown"]
    assert (shown.stdout, shown.stderr) == ("", "")
    assert shown.outputs[0].data["text/plain"].startswith(says)
