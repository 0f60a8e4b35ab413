"""`%%gpu_time`, `%gpu_time on` and `%gpu_time report`, in a shell on a simulated machine."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest
from IPython.utils.capture import capture_output

import gpu_magic

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.testing import Machine
    from tests.conftest import Typed

GIB = 1 << 30

pytestmark = [pytest.mark.machine("2xA100-80GB", clock=time.monotonic), pytest.mark.usefixtures("machine")]


@pytest.fixture
def machine(machine: Machine) -> Machine:
    """Return a machine on whose GPU 0 this process works."""
    machine.gpus[0].run("ipykernel", "maria", 6 * GIB, pid=os.getpid(), work=60)
    return machine


def measured(typed: Typed, cell: str = "") -> str:
    """Return the text of what has been measured, of this cell or of the latest one."""
    if cell:
        typed(cell)
    shown = [one for one in typed.outputs if "gpu_magic" in one.metadata]
    return "\n".join(one.data["text/plain"] for one in shown)


def test_a_cell_is_measured_and_has_its_value(
    typed: Typed, shell: InteractiveShell, machine: Machine
) -> None:
    machine.gpus[0].run("train.py", "chen", GIB, work=5)
    cell = typed("%%gpu_time\n6 * 7")
    assert measured(typed).startswith("Wall ")
    assert "cuda:0 = SIMULATED GPU 0: " in measured(typed)
    assert cell.value == 42
    assert "<p>Wall " in typed.outputs[0].data["text/html"]
    found = typed.outputs[0].metadata["gpu_magic"]
    assert [gpu["name"] for gpu in found["gpus"]] == ["cuda:0"]
    assert "chen" not in json.dumps([found, typed.outputs[0].data])  # no names of other users
    assert typed("%gpu_time report").error is None
    assert gpu_magic.history()[-1].code == "6 * 7"
    found = json.loads(typed("%%gpu_time --json\nx = 1").text)
    assert [gpu["gpu"] for gpu in found["gpus"]] == ["GPU 0"]
    assert (found["code"], found["has_failed"], shell.user_ns["x"]) == ("x = 1", False, 1)
    assert '"code": "\'a  #1\'"' in typed("%gpu_time --json\t'a  #1'").text


def test_a_cell_is_otherwise_a_cell_like_any_other(typed: Typed) -> None:
    cell = typed("%%gpu_time\nimport asyncio\nawait asyncio.sleep(0)\n'waited'")
    assert (cell.value, measured(typed)[:5]) == ("waited", "Wall ")
    cell = typed("%%gpu_time\nprint('before')\n1 / 0")
    assert isinstance(cell.error, ZeroDivisionError)
    assert "before\n" in cell.text
    assert "gpu_magic" not in cell.text  # no frames of ours
    assert "cuda:0" in measured(typed)
    assert gpu_magic.history()[-1].has_failed


@pytest.mark.parametrize(
    "code", ["train()", "import os", "%env HOME", "train() # report", "-x", "(report := 1)"]
)
def test_a_line_is_measured(typed: Typed, shell: InteractiveShell, code: str) -> None:
    shell.user_ns |= {"train": lambda: 42, "x": 1}
    cell = typed(f"%gpu_time {code}")
    assert cell.error is None
    assert measured(typed).startswith("Wall ")


GOES_WITH = "UsageError: %gpu_time takes on, off, report or code"


@pytest.mark.parametrize(
    ("cell", "error"),
    [
        ("%gpu_time", GOES_WITH),
        ("%gpu_time --json", GOES_WITH),
        ("%gpu_time --jsonx", "UsageError: There is no --jsonx. The only option is --json"),
        ("%gpu_time --json --jason x", "UsageError: There is no --jason. The only option is --json"),
        ("%gpu_time await f()", "UsageError: %gpu_time cannot await in a line"),
        ("%%gpu_time 3\nx = 5", "UsageError: %%gpu_time takes no 3"),
        ("%%gpu_time --jason\nx = 5", "UsageError: There is no --jason. Did you mean --json?"),
        ("%gpu_time reprot", "UsageError: reprot is not defined. Did you mean %gpu_time report?"),
        ("%gpu_time trian", "NameError: name 'trian' is not defined"),
        ("%gpu_time onn", "UsageError: onn is not defined. Did you mean %gpu_time on?"),
        ("%gpu_time on off", "UsageError: 'on off' is not Python (invalid syntax). %gpu_time takes on,"),
        ("%gpu_time report x", "UsageError: 'report x' is not Python (invalid syntax)."),
        ("%gpu_time train(", "UsageError: 'train(' is not Python (incomplete input)."),
        ("%gpu_time 1/0", "ZeroDivisionError"),
    ],
)
def test_what_is_not_understood_runs_nothing(
    typed: Typed, shell: InteractiveShell, cell: str, error: str
) -> None:
    done = typed(cell)
    assert done.error is not None
    assert error in done.text
    assert "x" not in shell.user_ns


def test_on_prints_one_line_after_each_cell_that_uses_a_gpu(
    typed: Typed, shell: InteractiveShell, machine: Machine
) -> None:
    shell.user_ns["own"] = own = machine.gpus[0].processes[0]
    own.work = 0
    assert typed("%gpu_time on  # from here on").text
    assert measured(typed, "1 + 1") == ""  # it has memory there, and touches nothing
    typed(f"own.memory = {7 * GIB}")
    assert measured(typed).startswith(f"[{len(shell.history_manager.input_hist_parsed) - 1}] ")
    assert "cuda:0 = SIMULATED GPU 0: peak about 7.0 GiB" in measured(typed)
    for cell in (  # a cell that runs others, or none, is one; so is one with a block in it
        f"get_ipython().run_cell('own.memory = {8 * GIB}'); own.memory = {9 * GIB}",
        f"get_ipython().run_cell(''); own.memory = {8 * GIB}",
        f"import gpu_magic\nwith gpu_magic.gpu_time(5): pass\nown.memory = {9 * GIB}",
        f"%%gpu_time\nown.memory = {7 * GIB}",
        f"%gpu_time own.memory = {8 * GIB}\nwith gpu_magic.gpu_time(5): pass",
    ):
        assert measured(typed, cell).count("cuda:0") == 1
    typed(f"own.memory = {7 * GIB}; 1 / 0")
    assert gpu_magic.history()[-1].has_failed
    with capture_output() as captured:  # a subshell's
        thread = threading.Thread(target=shell.run_cell, args=(f"own.memory = {8 * GIB}",))
        thread.start()
        thread.join()
    assert not captured.outputs
    with capture_output() as captured:  # it has no number
        shell.run_cell(f"own.memory = {9 * GIB}")
    assert captured.outputs[0].data["text/plain"][0] != "["
    assert typed("%gpu_time off").text
    assert measured(typed, f"own.memory = {9 * GIB}") == ""


def test_unloading_ends_it_and_loading_finds_the_gpus_again(typed: Typed) -> None:
    typed("%gpu_time on")
    typed("%unload_ext gpu_magic")  # the fixture checks that no hook is left
    assert measured(typed, "1") == ""
    typed("%load_ext gpu_magic")
    assert "cuda:0" in measured(typed, "%%gpu_time\npass")
