"""How often a request reads the machine: once, or not at all; and what `gpu_free` does from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml
import pytest

import gpu_magic
from gpu_magic.testing import simulate
from tests.eight_gpus import COUNT, Array, EightGpus, registered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell


@pytest.fixture
def framework(tmp_path: Path) -> Iterator[EightGpus]:
    """Return the framework of the tests, on a machine with eight GPUs."""
    with simulate(f"{COUNT}xA100-80GB", clock=lambda: 0.0), registered(tmp_path) as framework:
        yield framework


@pytest.fixture
def run(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """Return a way to run a cell in a shell that has the extension; what it printed."""
    shell.run_cell("%load_ext gpu_magic")

    def run(cell: str) -> str:
        capsys.readouterr()
        result = shell.run_cell(cell, store_history=True)
        assert result.success, cell
        return capsys.readouterr().out

    return run


def reads() -> float:
    """Return how often the machine was read: each time every GPU is asked for its memory."""
    calls = pynvml.nvmlLib.calls
    return sum(count for name, count in calls.items() if name.startswith("nvmlDeviceGetMemoryInfo")) / COUNT


def test_gpu_free_reads_once_before_and_once_after(framework: EightGpus) -> None:
    framework.reserved = 1 << 20
    freed = gpu_magic.gpu_free()
    assert len(freed.before) == len(freed.labels) == COUNT
    assert reads() == 2


def test_a_dry_run_of_gpu_free_reads_once(framework: EightGpus) -> None:
    framework.reserved = 1 << 20
    gpu_magic.gpu_free(dry_run=True)
    assert reads() == 1


def test_gpu_free_without_memory_reads_nothing(framework: EightGpus) -> None:
    gpu_magic.gpu_free()
    assert reads() == 0


def test_where_reads_once_for_all_variables(
    framework: EightGpus, shell: InteractiveShell, run: Callable[[str], str]
) -> None:
    shell.push({f"x{number}": Array(number % COUNT) for number in range(12)})
    shown = run("%where")
    assert shown.count("\n") == 12
    assert "x11  cuda:3 = GPU 3 (SIMULATED NVIDIA A100-SXM4-80GB): 1.0 MiB\n" in shown
    assert reads() == 1


def test_where_reads_once_for_named_variables(
    framework: EightGpus, shell: InteractiveShell, run: Callable[[str], str]
) -> None:
    shell.push({"x": Array(1), "y": Array(2)})
    run("%where x y")
    assert reads() == 1


def test_where_reads_nothing_for_arrays_on_the_cpu(
    framework: EightGpus, shell: InteractiveShell, run: Callable[[str], str]
) -> None:
    shell.push({"x": Array(None), "y": [Array(None)]})
    assert run("%where") == "x  the CPU: 1.0 MiB\ny  the CPU: 1.0 MiB\n"
    assert reads() == 0


def test_devices_of_reads_once(framework: EightGpus) -> None:
    devices = gpu_magic.devices_of([Array(0), Array(1)], Array(None))
    assert repr(devices).count("GPU") == 2
    assert dict(devices) == {"cuda:0": 1 << 20, "cuda:1": 1 << 20, "cpu": 1 << 20}
    assert reads() == 1


def test_devices_of_reads_nothing_for_arrays_on_the_cpu(framework: EightGpus) -> None:
    assert repr(gpu_magic.devices_of(Array(None))) == "the CPU: 1.0 MiB"
    assert reads() == 0


@pytest.mark.parametrize("options", ["", "--device 3", "--device smi:3", "--dry-run", "--all"])
def test_to_gpu_reads_once(
    framework: EightGpus, shell: InteractiveShell, run: Callable[[str], str], options: str
) -> None:
    shell.push({"x": Array(None), "y": [Array(1)]})
    shown = run(f"%to_gpu {'' if options == '--all' else 'x y'} {options}")
    assert "SIMULATED NVIDIA A100-SXM4-80GB" in shown
    assert reads() == 1


def test_to_cpu_reads_nothing(
    framework: EightGpus, shell: InteractiveShell, run: Callable[[str], str]
) -> None:
    shell.push({"x": Array(1)})
    assert "1.0 MiB moved to the CPU." in run("%to_cpu x")
    assert reads() == 0


def test_the_function_to_gpu_reads_nothing_where_the_framework_knows(framework: EightGpus) -> None:
    framework.free = 1 << 30
    assert gpu_magic.to_gpu(Array(None), 2).ordinal == 2
    assert reads() == 0


def test_the_function_to_gpu_reads_once_else(framework: EightGpus) -> None:
    assert gpu_magic.to_gpu(Array(None), 2).ordinal == 2
    assert reads() == 1


def test_a_block_reads_once(framework: EightGpus) -> None:
    # Other tests of this process may have imported PyTorch, which has no GPU here.
    with gpu_magic.on_gpu("smi:3", only=framework.module):
        assert reads() == 1


def test_gpu_free_drops_what_the_magic_drops(
    framework: EightGpus, shell: InteractiveShell, run: Callable[[str], str]
) -> None:
    shell.push({"Array": Array})
    run("kept = Array(1)")
    run("Array(2)")
    number = shell.execution_count - 1
    would = "Would drop Out[{}] (1.0 MiB).\nStill held by kept (1.0 MiB).\n"
    assert run("%gpu_free --dry-run") == would.format(number)
    assert run("print(__import__('gpu_magic').gpu_free(dry_run=True))") == would.format(number)
    assert number in shell.user_ns["Out"]
    freed = gpu_magic.gpu_free()
    assert freed.dropped == {f"Out[{number}]": 1 << 20}
    assert freed.held == {"kept": 1 << 20}
    assert number not in shell.user_ns["Out"]
    assert repr(freed).startswith(f"Dropped Out[{number}] (1.0 MiB).\n")


def test_gpu_free_shows_what_the_magic_prints(
    framework: EightGpus, shell: InteractiveShell, run: Callable[[str], str]
) -> None:
    framework.reserved = 1 << 20
    shell.push({"kept": Array(1)})
    printed = run("%gpu_free")
    assert printed == f"{gpu_magic.gpu_free()!r}\n"
    assert "cuda:7 = GPU 7 (SIMULATED NVIDIA A100-SXM4-80GB): 1.0 MiB → 1.0 MiB in use\n" in printed
    assert "7.0 MiB more that no variable was seen to hold" in printed


def test_without_a_shell_no_variable_is_known(framework: EightGpus) -> None:
    framework.reserved = 1 << 20
    freed = gpu_magic.gpu_free()
    assert (freed.dropped, freed.held, freed.unnamed, freed.dry_run) == ({}, {}, 0, False)
    assert repr(freed).count("\n") == COUNT - 1
