"""`%%gpu_time`, `%gpu_time on` and `%gpu_time report`, in a real kernel on four A100s.

PyTorch's memory is the pretend accelerator's; the driver's figures are those of the pretend driver.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from tests.machine import CARDS, GIB, Driver

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel

MIB = 1 << 20


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return a kernel that works on GPU 2, which is the first that it sees."""
    kernel = start_kernel(CUDA_VISIBLE_DEVICES="2,0")
    work(kernel, kernel.pid)
    assert kernel.run("%load_ext gpu_magic").status == "ok"
    return kernel


@pytest.fixture
def torch_kernel(start_kernel: Callable[..., Kernel], pretend: dict[str, str]) -> Kernel:
    kernel = start_kernel(**pretend)
    assert kernel.run("%load_ext gpu_magic").status == "ok"
    kernel.run(
        f"import torch\nMIB = {MIB}\ndef take(size): return torch.empty(size, device='pretend', dtype=torch.uint8)"
    )
    return kernel


def work(kernel: Kernel, pid: int, **changes: object) -> None:
    """Have the kernel work on GPU 2, with others beside it where they are given."""
    card = replace(CARDS[2], energy=1000, util=80, milliwatts=300_000, processes=((pid, 6 * GIB, 70),))
    kernel.change_machine(Driver((*CARDS[:2], replace(card, **changes), CARDS[3])))  # type: ignore[arg-type]


def test_a_cell_is_measured(kernel: Kernel) -> None:
    reply = kernel.run("%%gpu_time\nimport time\ntime.sleep(1.1)\n6 * 7")
    line, _, value = reply.text.rpartition("J (whole GPU)")
    assert value == "42"
    pattern = (
        r"Wall 1\.\d+ s · CPU [\d.]+ .?s \(user [\d.]+ .?s, sys [\d.]+ .?s\) · cuda:0 = GPU 2: "
        r"80 % busy, idle for \d+ ms, peak about 6\.0 GiB \(driver\), nothing stayed, \d+ "
    )
    assert re.fullmatch(pattern, line), line
    assert "<svg" in reply.html
    assert "<path class='gm-memory'" in reply.html


def test_the_record_is_in_the_outputs_metadata_without_names_of_others(kernel: Kernel) -> None:
    work(kernel, kernel.pid, processes=((kernel.pid, GIB, 10), (1, GIB, 5)))
    reply = kernel.run("%%gpu_time\npass")
    found = reply.metadata["gpu_magic"]
    assert found["versions"]["driver"] == "580.65.06"
    assert [(gpu["name"], gpu["model"], gpu["others"]) for gpu in found["gpus"]] in (
        [("cuda:0", CARDS[2].name, 1)],
        [("cuda:0", CARDS[2].name, 0)],  # in a container nobody knows whose process that is
    )
    assert "pass" not in json.dumps(found)


def test_json_is_printed(kernel: Kernel) -> None:
    found = json.loads(kernel.run("%%gpu_time --json\nx = 1").stdout)
    assert [gpu["gpu"] for gpu in found["gpus"]] == ["GPU 2"]
    assert (found["code"], found["has_failed"]) == ("x = 1", False)
    assert kernel.run("x").text == "1"


def test_a_cell_is_otherwise_a_cell_like_any_other(kernel: Kernel) -> None:
    reply = kernel.run("%%gpu_time\nimport asyncio\nawait asyncio.sleep(0)\n'waited'")
    assert reply.text.endswith("'waited'")
    reply = kernel.run("%%gpu_time\nprint('before')\n1 / 0")
    assert (reply.status, reply.stdout) == ("error", "before\n")
    assert "cuda:0 = GPU 2" in reply.text
    assert reply.errors == ["division by zero"]
    assert "----> 3 1 / 0" in reply.traceback
    assert "gpu_magic" not in reply.traceback
    assert kernel.run("%%gpu_time\n1;").text.count("\n") == 0


def test_a_line_is_measured_and_its_value_is_shown(kernel: Kernel) -> None:
    reply = kernel.run("%gpu_time {'a': 1}['a'] + 1")
    assert reply.text.startswith("Wall ")
    assert reply.text.endswith("2")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("%gpu_time", "%gpu_time goes with on, off, report or code; %%gpu_time measures a cell."),
        ("%%gpu_time 3\nx = 5", "%%gpu_time takes no 3: the code stands below it."),
        ("%gpu_time --jason x", "There is no --jason; the option is --json. %gpu_time? explains it."),
        ("%gpu_time --json", "%gpu_time goes with on, off, report or code; %%gpu_time measures a cell."),
        (
            "%gpu_time await f()",
            "%gpu_time can't await in a line: write %%gpu_time above a cell that awaits.",
        ),
        ("%%gpu_time --jason\nx = 5", "There is no --jason; did you mean --json? %gpu_time? explains them."),
    ],
)
def test_a_line_that_is_not_understood_runs_nothing(kernel: Kernel, typed: str, said: str) -> None:
    reply = kernel.run(typed)
    assert (reply.status, reply.stderr) == ("error", f"UsageError: {said}\n")
    assert "NameError" in kernel.run("x").traceback


def test_on_says_it_after_each_cell_that_uses_a_gpu(torch_kernel: Kernel) -> None:
    said = torch_kernel.run("%gpu_time on").stdout
    assert said == "From the next cell on, each cell that uses a GPU says what it cost.\n"
    assert torch_kernel.run("1 + 1").text == "2"
    reply = torch_kernel.run("x = take(64 * MIB)")
    assert re.fullmatch(r"\[\d+\] [\d.]+ .?s · pretend:0: peak (about )?64 MiB", reply.text), reply.text
    assert reply.metadata["gpu_magic"]["versions"]["PyTorch"] == version("torch")
    assert torch_kernel.run("len(x)").text == str(64 * MIB)  # it has memory there, and touches nothing
    # What is made and given back leaves no trace but a count, where the peak was higher before.
    torch_kernel.run("y = take(MIB); del y")
    again = torch_kernel.run("y = take(MIB); del y")
    assert "pretend:0: peak about " in again.text
    # %%gpu_time says it itself, once.
    assert torch_kernel.run("%%gpu_time\ny = take(MIB)").text.count("pretend:0") == 1
    assert torch_kernel.run("%gpu_time off").stdout == "Cells are not measured any more.\n"
    assert torch_kernel.run("y = take(MIB)").text == ""
    report = torch_kernel.run("%gpu_time report")
    assert "x = take(64 * MIB)" in report.text
    assert "<table>" in report.html


def test_a_block_within_a_cell_does_not_silence_it(torch_kernel: Kernel) -> None:
    torch_kernel.run("%gpu_time on  # from here on")
    reply = torch_kernel.run("import gpu_magic\nwith gpu_magic.gpu_time(5): pass\nx = take(MIB)")
    assert reply.text.count("pretend:0") == 1


def test_after_the_extension_was_loaded_anew_the_same_is_said(kernel: Kernel) -> None:
    before = kernel.run("%%gpu_time\npass").text
    kernel.run("%unload_ext gpu_magic")
    kernel.run("%load_ext gpu_magic")
    assert "cuda:0 = GPU 2" in before
    assert "cuda:0 = GPU 2" in kernel.run("%%gpu_time\npass").text


def test_a_simulation_that_the_cell_describes_wrongly_is_one_line(kernel: Kernel) -> None:
    reply = kernel.run("%%gpu_time\n%env GPU_MAGIC_SIMULATE=bogus\n42")
    assert (reply.status, reply.text) == ("ok", "42")
    assert "The cell was not measured: 'bogus' is not a machine to simulate" in reply.stdout


def test_peaks_are_the_frameworks_own_and_those_of_the_cell(torch_kernel: Kernel) -> None:
    reply = torch_kernel.run("%%gpu_time\nx = take(64 * MIB)\ny = take(32 * MIB)\ndel y")
    assert "pretend:0: peak 96 MiB (PyTorch), 64 MiB stayed" in reply.text
    reply = torch_kernel.run("%%gpu_time\ny = take(8 * MIB)\ndel y")
    assert "pretend:0: peak 72 MiB (PyTorch), nothing stayed" in reply.text
    reply = torch_kernel.run("%%gpu_time\ndel x")
    assert "pretend:0: peak 64 MiB (PyTorch), 64 MiB given back" in reply.text


def test_on_leaves_the_frameworks_own_count_alone(torch_kernel: Kernel) -> None:
    torch_kernel.run("%gpu_time on")
    torch_kernel.run("x = take(64 * MIB); del x")
    reply = torch_kernel.run("y = take(MIB)\nprint(torch.accelerator.max_memory_allocated() // MIB)")
    assert reply.stdout == "64\n"
    assert "peak about 1.0 MiB" in reply.text  # what was counted is of an earlier cell


def test_a_block_within_a_cell_does_not_spoil_the_cells_peak(torch_kernel: Kernel) -> None:
    reply = torch_kernel.run(
        "%%gpu_time\nimport gpu_magic\nx = take(64 * MIB); del x\n"
        "with gpu_magic.gpu_time() as inner:\n    y = take(MIB)\nprint(inner.usage.gpus[0].peak // MIB)"
    )
    assert reply.stdout == "1\n"
    assert "peak 64 MiB (PyTorch)" in reply.text


def test_unloading_ends_it(torch_kernel: Kernel) -> None:
    torch_kernel.run("%gpu_time on")
    torch_kernel.run("%unload_ext gpu_magic")
    assert torch_kernel.run("x = take(MIB)").text == ""
    hooks = "[str(hook) for hooks in get_ipython().events.callbacks.values() for hook in hooks]"
    assert "gpu_magic" not in torch_kernel.run(hooks).text


def test_cells_that_run_others_are_measured_once(torch_kernel: Kernel) -> None:
    torch_kernel.run("%gpu_time on")
    reply = torch_kernel.run("get_ipython().run_cell('x = take(MIB)')\ny = take(MIB)")
    assert reply.text.count("pretend:0") == 1


def test_a_cell_that_awaits_and_is_interrupted(torch_kernel: Kernel) -> None:
    torch_kernel.run("%gpu_time on")
    cell = "import asyncio\nx = take(MIB)\ndisplay('now')\nawait asyncio.sleep(2)"
    reply = torch_kernel.run_and_interrupt(cell, lambda: "now" in torch_kernel.heard)
    assert reply.status == "error"
    assert "Error in callback" not in reply.stdout + reply.stderr
    assert torch_kernel.run("y = take(MIB)").text.count("pretend:0") == 1


def test_a_blank_cell_within_a_cell_does_not_end_it(torch_kernel: Kernel) -> None:
    torch_kernel.run("%gpu_time on")
    reply = torch_kernel.run("get_ipython().run_cell('')\nx = take(64 * MIB)")
    assert "peak 64 MiB" in reply.text


def test_on_gpu_within_gpu_time(torch_kernel: Kernel) -> None:
    reply = torch_kernel.run("%%gpu_time\n%%on_gpu 1\nx = torch.empty(MIB, dtype=torch.uint8)\nx.device")
    assert "pretend:1: peak 1.0 MiB (PyTorch), 1.0 MiB stayed" in reply.text
    assert reply.text.endswith("device(type='pretend', index=1)")
