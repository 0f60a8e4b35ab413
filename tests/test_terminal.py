"""IPython in a real terminal: the same table as text, and Tab."""

from __future__ import annotations

import re
import signal
import sys
from typing import TYPE_CHECKING

import pexpect
import pytest

from tests.conftest import LIMIT, ROOT
from tests.machine import CARDS, Driver, clean_environment, environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\r")


@pytest.fixture
def terminal(native: Path, tmp_path: Path) -> Iterator[pexpect.spawn]:
    Driver(CARDS).write(tmp_path / "machine")
    clean = clean_environment()
    variables = clean | environment(native, tmp_path / "machine")
    variables |= {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path), "TERM": "xterm"}
    arguments = ["-m", "IPython", "--no-banner", "--no-confirm-exit", "--colors=NoColor"]
    child = pexpect.spawn(
        sys.executable, arguments, env=variables, dimensions=(60, 200), encoding="utf-8", timeout=LIMIT
    )
    child.expect(r"In \[1\]:")
    yield child
    if child.isalive():
        child.kill(signal.SIGKILL)  # `close` gives a process a tenth of a second to end
        child.wait()
    child.close()


def say(terminal: pexpect.spawn, line: str, until: str) -> str:
    terminal.send(f"{line}\r")
    terminal.expect(until)
    return ANSI.sub("", terminal.before + terminal.after)


def test_show_choose_and_tab_in_a_terminal(terminal: pexpect.spawn) -> None:
    say(terminal, "%load_ext gpu_magic", r"In \[2\]:")
    shown = say(terminal, "%gpus", "the choice can still change")
    assert "GPU  Name" in shown
    assert "3  NVIDIA A100-SXM4-80GB" in shown
    assert "cuda:3" in shown
    shown = say(terminal, "%gpus 3,1", r"cuda:1 = GPU 1 \(NVIDIA A100-SXM4-80GB, 79 GiB free\)")
    assert "cuda:0 = GPU 3" in shown
    terminal.expect(r"In \[4\]:")
    shown = say(terminal, "%gpus 9", "There is no GPU 9. This machine has GPUs 0 to 3")
    assert "Traceback" not in shown
    terminal.send("%gpus GPU-2\t")
    terminal.expect(CARDS[2].uuid)


def test_a_refusal_breaks_between_sentences_in_a_narrow_terminal(terminal: pexpect.spawn) -> None:
    terminal.setwinsize(60, 60)
    say(terminal, "%load_ext gpu_magic", r"In \[2\]:")
    shown = say(terminal, "%gpus auto:5 --only-free", r"In \[3\]:")
    assert "UsageError: auto:5 --only-free can pick only 4 GPUs.\nTry auto:4 --only-free" in shown


@pytest.mark.nightly
def test_a_map_has_a_bar_in_a_terminal(terminal: pexpect.spawn) -> None:
    say(terminal, "import gpu_magic, time; gpu_magic.cluster(count=1)", r"In \[2\]:")
    shown = say(
        terminal, "gpu_magic.map(lambda x: (print('here'), time.sleep(1), x)[2], [5, 6])", r"Out.*\[5, 6\]"
    )
    assert "[0] here" in shown
    assert "/2 [" in shown
    assert "2/2 [" in shown


@pytest.mark.nightly
def test_a_cell_in_the_background_prints_into_a_terminal(terminal: pexpect.spawn) -> None:
    say(terminal, "%load_ext gpu_magic", r"In \[2\]:")
    cell = r"print('pri' + 'nted')\n6 * 7\n1 / 0"
    run = f"get_ipython().run_cell_magic('on_gpu', 'cpu --background eval', \"{cell}\")"
    say(terminal, run, "eval: running on the CPU")
    terminal.expect("printed")
    terminal.expect("ZeroDivisionError: division by zero")
    say(terminal, "%gpu_tasks", "eval: failed: ZeroDivisionError: division by zero")


@pytest.mark.parametrize("ends_first", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_the_value_of_a_cell_in_the_background_is_shown_once(
    terminal: pexpect.spawn, tmp_path: Path, ends_first: bool
) -> None:
    say(terminal, "%load_ext gpu_magic", r"In \[2\]:")
    go = tmp_path / "go"
    cell = (
        rf"import pathlib, time\nwhile not pathlib.Path('{go}').exists(): time.sleep(0.01)\n'forty' + '-two'"
    )
    say(terminal, f"get_ipython().run_cell_magic('on_gpu', 'cpu --background a', \"{cell}\")", r"In \[3\]:")
    if ends_first:
        go.touch()
        terminal.expect("forty-two")
        waited = say(terminal, "%gpu_tasks wait a", "a: done")
        assert "forty-two" not in waited
    else:
        terminal.send("%gpu_tasks wait a\r")
        go.touch()
        terminal.expect("forty-two.*a: done")
    assert "forty-two" not in say(terminal, "", r"In \[4\]:")
    assert "forty-two" in say(terminal, "%gpu_tasks a", r"In \[5\]:")  # what is asked for
