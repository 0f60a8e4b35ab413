"""What is said of a cell that was measured, when it is sure, and once: in a real kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.machine import CARDS, GIB, Driver

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel

MIB = 1 << 20
BEGIN = f"""import time, torch
MIB = {MIB}
def take(size): return torch.empty(size, device="pretend", dtype=torch.uint8)
"""


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel], pretend: dict[str, str]) -> Kernel:
    kernel = start_kernel(**pretend)
    assert kernel.run("%load_ext gpu_magic").status == "ok"
    kernel.run(BEGIN)
    return kernel


def shared_processor(kernel: Kernel) -> bool:
    """Return whether others had the processor for more than half of the last cell's time."""
    last = "import gpu_magic; last = gpu_magic.history()[-1]; print(last.user + last.system < last.wall / 2)"
    return kernel.run(last).stdout == "True\n"


def hints(*outputs: str) -> list[str]:
    """Return the hints that were printed."""
    lines = "".join(outputs).splitlines()
    return [line.removeprefix("Hint: ") for line in lines if line.startswith("Hint: ")]


def test_a_variable_that_grows_from_run_to_run_is_named_once(kernel: Kernel) -> None:
    kernel.run("kept, other = [], take(MIB)")
    kernel.run("%gpu_time on")
    said = [kernel.run("kept.append(take(8 * MIB)); other.add_(1)").stdout for _ in range(5)]
    assert hints(*said[:2]) == []  # the first run makes what later ones use again
    assert hints(*said) == [
        "Memory on pretend:0 grows each time this cell runs, by 8.0 MiB now, and kept holds it."
    ]


def test_a_list_of_losses_that_keeps_their_graphs_is_named(kernel: Kernel) -> None:
    kernel.run("losses = []\nx = torch.ones(2 * MIB, device='pretend', requires_grad=True)")
    said = [kernel.run("%%gpu_time\nlosses.append(x.exp().sum())").stdout for _ in range(4)]
    (hint,) = hints(*said)
    assert "and losses keeps what its tensors were computed from: loss.item()" in hint


def test_what_is_made_anew_each_time_is_no_growth(kernel: Kernel) -> None:
    said = [kernel.run("%%gpu_time\nx = take(8 * MIB)").stdout for _ in range(4)]
    assert hints(*said) == []


def test_a_growth_that_several_variables_share_is_nobodys(kernel: Kernel) -> None:
    kernel.run("one, two = [], []")
    cell = "%%gpu_time\none.append(take(8 * MIB)); two.append(one[-1])"
    assert hints(*(kernel.run(cell).stdout for _ in range(4))) == []


def test_a_gpu_that_waits_for_a_loader(kernel: Kernel) -> None:
    pid = kernel.pid
    card = replace(CARDS[0], energy=0, util=6, processes=((pid, GIB, 6),))
    kernel.change_machine(Driver((card, *CARDS[1:])))
    kernel.run(
        "loader = torch.utils.data.DataLoader(range(8))\nready = torch.utils.data.DataLoader(range(8), num_workers=1)"
    )
    cell = "%%gpu_time\nfor batch in {}: time.sleep(0.64)"
    assert hints(kernel.run(cell.format("ready")).stdout) == []
    assert hints(kernel.run("%%gpu_time\nfor batch in loader: pass").stdout) == []  # nobody has waited
    assert hints(kernel.run("%%gpu_time\nlen(loader); time.sleep(5.1)").stdout) == []  # nothing was loaded
    (hint,) = hints(kernel.run(cell.format("loader")).stdout)
    assert hint.startswith("cuda:0 was idle for 94% of this cell, and loader loads each batch in between: ")
    assert hints(kernel.run(cell.format("loader")).stdout) == []  # it was said


def test_a_model_on_the_cpu_while_gpus_are_chosen(kernel: Kernel) -> None:
    # Sixteen threads get their share of processors where others work, too: more than half of one.
    kernel.run(
        "import threading\nmodel = torch.nn.Linear(512, 512)\ndef busy(seconds, model):\n"
        "    end = time.monotonic() + seconds\n    def work():\n"
        "        while time.monotonic() < end: model(torch.ones(512, 512))\n"
        "    threads = [threading.Thread(target=work) for _ in range(16)]\n"
        "    for thread in threads: thread.start()\n    for thread in threads: thread.join()"
    )
    assert hints(kernel.run("%%gpu_time\nbusy(5.1, model)").stdout) == []  # nobody has chosen GPUs
    kernel.run("%gpus 1")
    cell = "%%gpu_time\nbusy(5.1, model)"
    said = hints(kernel.run(cell).stdout)
    while shared_processor(kernel):
        assert said == []  # it may have waited for anything
        said = hints(kernel.run(cell).stdout)
    assert said == ["model is on the CPU, while GPUs are chosen: %to_gpu model moves it."]
