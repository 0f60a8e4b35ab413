"""A simulated machine of eight A100s, and commands that are launched on it from this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from gpu_magic.launch.task import Task
from gpu_magic.processes.tasks import tasks
from gpu_magic.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    """Work in a folder of the test's own, on the simulated machine; return the folder."""
    before = os.getcwd()  # noqa: PTH109
    os.chdir(tmp_path)
    try:
        with simulate("8xA100-80GB"):
            yield tmp_path
    finally:
        os.chdir(before)


@pytest.fixture
def run(
    machine: Path, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[str], str]]:
    """Type a cell in a terminal's IPython, and return what was shown and what went wrong."""

    def run(cell: str) -> str:
        capsys.readouterr()
        shell.run_cell(cell)
        shown = capsys.readouterr()
        return shown.out + shown.err

    tasks._tasks.clear()  # other tests' in this process
    run("%load_ext gpu_magic")
    yield run
    for task in tasks:
        if isinstance(task, Task):
            task.stop()
    shell.extension_manager.unload_extension("gpu_magic")
    tasks._tasks.clear()
