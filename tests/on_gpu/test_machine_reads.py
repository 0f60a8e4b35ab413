"""How often a request reads the machine: once, or not at all."""

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


@pytest.mark.parametrize("free", [1 << 30, None])
def test_the_function_to_gpu_reads_once_unless_the_framework_knows(
    framework: EightGpus, free: int | None
) -> None:
    framework.free = free
    assert gpu_magic.to_gpu(Array(None), 2).ordinal == 2
    assert reads() == (free is None)


def test_a_block_reads_once(framework: EightGpus) -> None:
    # Other tests of this process may have imported PyTorch, which has no GPU here.
    with gpu_magic.on_gpu("smi:3", only=framework.module):
        assert reads() == 1


@pytest.mark.parametrize("options", ["-v", "--background b"])
def test_a_cell_reads_once(framework: EightGpus, run: Callable[[str], str], options: str) -> None:
    assert "SIMULATED NVIDIA A100-SXM4-80GB" in run(f"%%on_gpu smi:3 --only {framework.module} {options}\n1")
    assert reads() == 1
