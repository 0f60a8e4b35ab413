"""`%%gpu_time`, `%gpu_time on` and `%gpu_time report`, in a shell on a simulated machine."""

from __future__ import annotations

import json
import os
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest
from IPython.utils.capture import capture_output

import gpu_magic
from gpu_magic.testing import Machine, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell

GIB = 1 << 30


class Typed:
    """What a cell has shown: its text, what it has printed, and the outputs themselves."""

    def __init__(self, shell: InteractiveShell, cell: str) -> None:
        with capture_output() as captured:
            self.result: Any = shell.run_cell(cell, store_history=True)
        self.outputs = [one for one in captured.outputs if "gpu_magic" in one.metadata]
        self.text = "\n".join(one.data["text/plain"] for one in self.outputs)
        self.printed = re.sub(r"\x1b\[[0-9;]*m", "", captured.stdout + captured.stderr)


@pytest.fixture
def machine() -> Iterator[Machine]:
    with simulate("2xA100-80GB") as machine:
        machine.gpus[0].run("ipykernel", "maria", 6 * GIB, pid=os.getpid(), work=60)
        yield machine


@pytest.fixture
def loaded(shell: InteractiveShell, machine: Machine) -> Iterator[InteractiveShell]:
    shell.run_line_magic("load_ext", "gpu_magic")
    yield shell
    shell.run_line_magic("unload_ext", "gpu_magic")


def test_a_cell_is_measured_and_has_its_value(loaded: InteractiveShell, machine: Machine) -> None:
    machine.gpus[0].run("train.py", "chen", GIB, work=5)
    typed = Typed(loaded, "%%gpu_time\n6 * 7")
    assert typed.text.startswith("Wall ")
    assert "cuda:0 = SIMULATED GPU 0: " in typed.text
    assert typed.result.result == 42
    assert "<p>Wall " in typed.outputs[0].data["text/html"]
    found = typed.outputs[0].metadata["gpu_magic"]
    assert [gpu["name"] for gpu in found["gpus"]] == ["cuda:0"]
    assert "chen" not in json.dumps([found, typed.outputs[0].data])  # no names of other users
    assert Typed(loaded, "%gpu_time report").result.success
    assert gpu_magic.history()[-1].code == "6 * 7"
    found = json.loads(Typed(loaded, "%%gpu_time --json\nx = 1").printed)
    assert [gpu["gpu"] for gpu in found["gpus"]] == ["GPU 0"]
    assert (found["code"], found["has_failed"], loaded.user_ns["x"]) == ("x = 1", False, 1)
    assert '"code": "\'a  #1\'"' in Typed(loaded, "%gpu_time --json\t'a  #1'").printed


def test_a_cell_is_otherwise_a_cell_like_any_other(loaded: InteractiveShell) -> None:
    typed = Typed(loaded, "%%gpu_time\nimport asyncio\nawait asyncio.sleep(0)\n'waited'")
    assert (typed.result.result, typed.text[:5]) == ("waited", "Wall ")
    typed = Typed(loaded, "%%gpu_time\nprint('before')\n1 / 0")
    assert isinstance(typed.result.error_in_exec, ZeroDivisionError)
    assert "before\n" in typed.printed
    assert "gpu_magic" not in typed.printed  # no frames of ours
    assert "cuda:0" in typed.text
    assert gpu_magic.history()[-1].has_failed


@pytest.mark.parametrize(
    "code", ["train()", "import os", "%env HOME", "train() # report", "-x", "(report := 1)"]
)
def test_a_line_is_measured(loaded: InteractiveShell, code: str) -> None:
    loaded.user_ns |= {"train": lambda: 42, "x": 1}
    typed = Typed(loaded, f"%gpu_time {code}")
    assert typed.result.success
    assert typed.text.startswith("Wall ")


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
        ("%gpu_time reprot", "NameError: name 'reprot' is not defined"),
        ("%gpu_time on off", "UsageError: 'on off' is not Python (invalid syntax). %gpu_time takes on,"),
        ("%gpu_time report x", "UsageError: 'report x' is not Python (invalid syntax)."),
        ("%gpu_time train(", "UsageError: 'train(' is not Python (incomplete input)."),
        ("%gpu_time 1/0", "ZeroDivisionError"),
    ],
)
def test_what_is_not_understood_runs_nothing(loaded: InteractiveShell, cell: str, error: str) -> None:
    typed = Typed(loaded, cell)
    assert not typed.result.success
    assert error in typed.printed
    assert "x" not in loaded.user_ns


def test_on_prints_one_line_after_each_cell_that_uses_a_gpu(
    loaded: InteractiveShell, machine: Machine
) -> None:
    loaded.user_ns["own"] = own = machine.gpus[0].processes[0]
    own.work = 0
    assert Typed(loaded, "%gpu_time on  # from here on").printed
    assert Typed(loaded, "1 + 1").text == ""  # it has memory there, and touches nothing
    typed = Typed(loaded, f"own.memory = {7 * GIB}")
    assert typed.text.startswith(f"[{len(loaded.history_manager.input_hist_parsed) - 1}] ")
    assert "cuda:0 = SIMULATED GPU 0: peak about 7.0 GiB" in typed.text
    for cell in (  # a cell that runs others, or none, is one; so is one with a block in it
        f"get_ipython().run_cell('own.memory = {8 * GIB}'); own.memory = {9 * GIB}",
        f"get_ipython().run_cell(''); own.memory = {8 * GIB}",
        f"import gpu_magic\nwith gpu_magic.gpu_time(5): pass\nown.memory = {9 * GIB}",
        f"%%gpu_time\nown.memory = {7 * GIB}",
        f"%gpu_time own.memory = {8 * GIB}\nwith gpu_magic.gpu_time(5): pass",
    ):
        assert Typed(loaded, cell).text.count("cuda:0") == 1
    Typed(loaded, f"own.memory = {7 * GIB}; 1 / 0")
    assert gpu_magic.history()[-1].has_failed
    with capture_output() as captured:  # a subshell's
        thread = threading.Thread(target=loaded.run_cell, args=(f"own.memory = {8 * GIB}",))
        thread.start()
        thread.join()
    assert not captured.outputs
    with capture_output() as captured:  # it has no number
        loaded.run_cell(f"own.memory = {9 * GIB}")
    assert captured.outputs[0].data["text/plain"][0] != "["
    assert Typed(loaded, "%gpu_time off").printed
    assert Typed(loaded, f"own.memory = {9 * GIB}").text == ""


def test_unloading_ends_it_and_loading_finds_the_gpus_again(loaded: InteractiveShell) -> None:
    Typed(loaded, "%gpu_time on")
    Typed(loaded, "%unload_ext gpu_magic")  # the fixture checks that no hook is left
    assert Typed(loaded, "1").text == ""
    Typed(loaded, "%load_ext gpu_magic")
    assert "cuda:0" in Typed(loaded, "%%gpu_time\npass").text


def test_a_simulation_that_is_described_wrongly(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "1xT4")
    shell.run_line_magic("load_ext", "gpu_magic")
    typed = Typed(shell, "%%gpu_time\n%env GPU_MAGIC_SIMULATE=bogus\n42")
    assert typed.result.result == 42
    assert "The cell was not measured: 'bogus' is not a machine" in typed.printed
    typed = Typed(shell, "%%gpu_time\nx = 1")
    assert "The cell did not run." in typed.printed
    assert "x" not in shell.user_ns
