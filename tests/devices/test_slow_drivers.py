"""A driver that takes its time to start, as without persistence mode: who waits for it, and what they are told."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pynvml
import pytest

import gpu_magic
from gpu_magic.devices.nvml import Nvml
from gpu_magic.interrupts import postponed_interrupts
from gpu_magic.testing import simulate
from gpu_magic.widget.page_viewer import PageViewer
from gpu_magic.widget.state import panel_state
from tests.conftest import IMPATIENT, LIMIT, ROOT
from tests.machine import CARDS, Driver, clean_environment, environment
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.devices.inventory import Inventory
    from tests.conftest import Fresh

WAITS = "gpu_magic is waiting for the NVIDIA driver"
OPEN, FIND = "nvmlInitWithFlags", "nvmlDeviceGetHandleByIndex_v2"  # NVML starts GPUs in the second


class Stderr(io.StringIO):
    """Does something when it is first written to."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def write(self, text: str) -> int:
        if not self.getvalue():
            self._act()
        return super().write(text)


def read(
    monkeypatch: pytest.MonkeyPatch, nvml: Nvml, when_told: Callable[[], object]
) -> tuple[Inventory, str]:
    """Read the machine, and do something as soon as the wait is told of; return what was told, too."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stderr := Stderr(when_told))
        inventory = nvml.inventory()
    return inventory, stderr.getvalue()


@pytest.fixture
def hurried() -> Iterator[Nvml]:
    """Return a reader that tells of a wait soon, and waits as long as any."""
    reader = Nvml(timeout=IMPATIENT)
    yield reader
    reader.close()


@pytest.mark.parametrize(("call", "gpu"), [(OPEN, None), (FIND, 1)])
def test_a_driver_that_starts_is_waited_for_and_one_line_says_so(
    hurried: Nvml, monkeypatch: pytest.MonkeyPatch, call: str, gpu: int | None
) -> None:
    with simulate("4xA100-80GB") as machine:
        comes_back = machine.hang(call, gpu)
        inventory, told = read(monkeypatch, hurried, comes_back.set)
        assert [one.problem for one in inventory] == [""] * 4
        assert told.startswith(WAITS)
        assert told.count("\n") == 1
        assert len(told) <= 120
        assert pynvml._nvmlLib_refcount == 1  # what was opened late is what is used, and closed
        assert read(monkeypatch, hurried, lambda: None)[1] == ""


def test_library_and_gpus_that_both_take_their_time_are_told_of_once(
    hurried: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    with simulate("2xA100-80GB") as machine:
        opened, found = machine.hang(OPEN), machine.hang(FIND, 0)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stderr := Stderr(opened.set))
            reading = threading.Thread(target=hurried.inventory)
            reading.start()
            until(lambda: pynvml.nvmlLib.calls[FIND] or not reading.is_alive())
            found.set()
            reading.join()
        assert stderr.getvalue().count(WAITS) == 1


def test_a_driver_that_never_starts_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml(timeout=0.05, starting=IMPATIENT)
    with simulate("4xA100-80GB") as machine:
        comes_back = machine.hang(OPEN)
        inventory, told = read(monkeypatch, nvml, lambda: None)
        assert "did not come back" in inventory.problem
        assert told.count(WAITS) == 1
        again, told = read(monkeypatch, nvml, lambda: None)  # as long as it hangs, nobody waits again
        assert ("did not come back" in again.problem, told) == (True, "")
        comes_back.set()
        until(lambda: len(nvml.inventory()) == 4)
        nvml.close()


def test_a_gpu_that_was_found_before_is_not_waited_for(
    hurried: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    with simulate("2xA100-80GB") as machine:
        hurried.inventory()
        machine.gpus[1].lose()
        hurried.inventory()  # its handle is to be found again
        machine.gpus[1].recover()
        comes_back = machine.hang(FIND, 1)
        inventory, told = read(monkeypatch, hurried, lambda: None)
        assert ("did not come back" in inventory[1].problem, told) == (True, "")
        comes_back.set()


def test_an_interrupt_ends_the_wait_in_one_line_and_the_driver_goes_on_starting(
    hurried: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with simulate("2xA100-80GB") as machine:
            comes_back = machine.hang(OPEN)
            interrupt = threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT])
            with pytest.raises(KeyboardInterrupt) as interrupted:
                read(monkeypatch, hurried, interrupt.start)
            (line,) = interrupted.value._render_traceback_()  # type: ignore[attr-defined] # IPython's protocol
            assert line == "KeyboardInterrupt: the NVIDIA driver is still starting."
            # The next one waits for the same call.
            inventory, told = read(monkeypatch, hurried, comes_back.set)
            assert (len(inventory), told.count(WAITS)) == (2, 1)
            assert pynvml.nvmlLib.calls[OPEN] == 1
    finally:
        signal.signal(signal.SIGINT, handler)


def test_who_did_not_ask_is_not_kept_waiting(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    with simulate("2xA100-80GB") as machine:
        comes_back = machine.hang(OPEN)
        shell.run_line_magic("load_ext", "gpu_magic")
        assert "1" not in shell.complete("%gpus ", "%gpus ", 6)[1]  # Tab
        page = PageViewer(lambda message: None)
        page.receive({"type": "attach", "page": "p"})
        page.receive(
            {"type": "set_visibility", "page": "p", "view": "v", "visibility": "watched", "version": -1}
        )
        assert panel_state().tick()  # a panel's thread
        with postponed_interrupts():  # a hook before or after a cell
            assert "did not come back" in gpu_magic.gpus().problem
        assert capsys.readouterr().err == ""
        comes_back.set()
        assert len(gpu_magic.gpus()) == 2  # who asks waits for it
        assert "1" in shell.complete("%gpus ", "%gpus ", 6)[1]
        page.close()


def test_an_interrupt_ends_the_wait_of_the_command_line(native: Path, tmp_path: Path) -> None:
    Driver(CARDS, hangs=((OPEN, -1, float(LIMIT)),)).write(tmp_path / "machine")
    process = subprocess.Popen(
        [sys.executable, "-m", "gpu_magic"],
        env=clean_environment() | environment(native, tmp_path / "machine"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - ours can be ignored
    )
    assert process.stderr
    assert process.stderr.readline().startswith(WAITS)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=LIMIT) == ("", "")
    assert process.returncode == 128 + signal.SIGINT


@pytest.mark.parametrize("slow", [(OPEN, -1, 3.0), (FIND, 0, 12.0)])
def test_a_real_library_that_takes_seconds(
    fresh: Fresh, native: Path, tmp_path: Path, slow: tuple[str, int, float]
) -> None:
    Driver(CARDS, hangs=(slow,)).write(tmp_path / "machine")
    code = """
        import contextlib, io
        import gpu_magic
        with contextlib.redirect_stderr(io.StringIO()) as told:
            print([gpu.problem for gpu in gpu_magic.gpus()])
        print(told.getvalue(), end="")
    """
    problems, *told = fresh(code, **environment(native, tmp_path / "machine")).splitlines()
    assert problems == "['', '', '', '']"
    (line,) = told
    assert line.startswith(WAITS)
