"""What claims say of cells: that one runs, or since when none does."""

from __future__ import annotations

import os
import stat
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpu_magic.claims.held import Claims
from gpu_magic.devices.model import UNKNOWN
from gpu_magic.devices.processes import read_process
from gpu_magic.kernelspec.begin import begin
from gpu_magic.processes.tasks import tasks
from tests.claims.holders import GPU, OTHER, holder, stranger
from tests.processes import until

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

pytestmark = pytest.mark.usefixtures("folder")

# The modes of files of claims.
NO_CELLS, AT_REST, AT_WORK = 0o644, 0o744, 0o754


@pytest.fixture
def notebook(shell: InteractiveShell, folder: Path, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    """Return a shell that has chosen a GPU; its cells can write down what the claim says."""
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "4xA100-80GB clock=0")
    shell.user_ns |= {"mode": lambda: mode(folder), "said": []}
    run(shell, "%load_ext gpu_magic\n%gpus 1\nsaid.append(mode())")
    return shell


def mode(folder: Path) -> int:
    (file,) = folder.iterdir()
    return stat.S_IMODE(file.stat().st_mode)


def run(shell: InteractiveShell, cell: str) -> None:
    shell.run_cell(cell).raise_error()


def test_what_is_chosen_next_says_the_same(notebook: InteractiveShell, folder: Path) -> None:
    run(notebook, "%gpus 1,2\n%gpus 2\nsaid.append(mode())")
    assert notebook.user_ns["said"] == [AT_WORK, AT_WORK]
    assert mode(folder) == AT_REST


def test_a_look_at_an_unchanged_name_does_not_start_the_idle_time_again(folder: Path) -> None:
    """It is the time since the last change of a claim's file."""
    claims = Claims()
    claims.hold([GPU, OTHER])
    before = {file: file.stat().st_ctime_ns for file in folder.iterdir()}
    assert len(before) == 2
    (published,) = {file.notebook for file in claims._files.values()}
    claims.rename(published)
    assert {file: file.stat().st_ctime_ns for file in folder.iterdir()} == before
    claims.rename("another.ipynb")
    assert not {*before} & {*folder.iterdir()}
    claims.release()


def test_a_script_says_nothing() -> None:
    with holder(GPU):
        assert Claims().others()[GPU][0].idle is UNKNOWN


def test_what_another_version_has_claimed_says_nothing(folder: Path) -> None:
    """It leaves the mode alone, with which the time of the last change is that of the claim."""
    with holder(GPU):
        assert mode(folder) == NO_CELLS


def test_a_cell_that_runs_is_told_and_its_end(notebook: InteractiveShell, folder: Path) -> None:
    assert notebook.user_ns["said"] == [AT_WORK]  # also by the cell that has loaded the extension
    assert mode(folder) == AT_REST
    run(notebook, "said.append(mode())")
    assert notebook.user_ns["said"] == [AT_WORK, AT_WORK]
    assert mode(folder) == AT_REST


def test_a_kernel_that_has_run_no_cell_is_at_rest(
    shell: InteractiveShell, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configuration loads the extension before any cell, as a kernel that starts with GPUs does."""
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "4xA100-80GB clock=0")
    begin(shell, "1")
    assert mode(folder) == AT_REST
    shell.user_ns |= {"mode": lambda: mode(folder), "said": []}
    run(shell, "said.append(mode())")
    assert shell.user_ns["said"] == [AT_WORK]
    assert mode(folder) == AT_REST


def test_a_cell_in_a_cell_does_not_end_it(notebook: InteractiveShell) -> None:
    run(notebook, "get_ipython().run_cell('1'); get_ipython().run_cell(' '); said.append(mode())")
    assert notebook.user_ns["said"] == [AT_WORK, AT_WORK]


def test_a_cell_that_fails_has_ended(notebook: InteractiveShell, folder: Path) -> None:
    notebook.run_cell("1 / 0")
    assert mode(folder) == AT_REST


def test_a_cell_in_the_background_is_work(notebook: InteractiveShell, folder: Path) -> None:
    go_on = notebook.user_ns["go_on"] = threading.Event()
    run(notebook, "%%on_gpu cpu --background one\ngo_on.wait()")
    run(notebook, "pass")
    assert mode(folder) == AT_WORK
    go_on.set()
    until(lambda: mode(folder) == AT_REST)


@pytest.mark.parametrize("gpus", ["--gpus 2", ""])
def test_a_command_in_the_background_is_work(notebook: InteractiveShell, folder: Path, gpus: str) -> None:
    (own,) = folder.iterdir()
    run(notebook, f"%gpu_launch {gpus} --background one sleep 600")
    (of_command,) = set(folder.iterdir()) - {own}
    assert stat.S_IMODE(of_command.stat().st_mode) == AT_WORK
    rests_since = own.stat().st_ctime_ns
    tasks.find("one").stop()
    assert list(folder.iterdir()) == [own]
    assert mode(folder) == AT_REST
    assert own.stat().st_ctime_ns > rests_since


@pytest.mark.parametrize("first", ["kernel", "command"])
def test_a_process_is_at_work_if_one_of_its_claims_says_so(folder: Path, first: str) -> None:
    with stranger() as one:
        one.run("globals().update(kernel=Claims(is_at_work=lambda: False))")
        one.run("globals().update(command=Claims('sleep 600', is_at_work=lambda: True))")
        holds = {"kernel": f"kernel.hold([{GPU!r}])", "command": f"command.hold([{OTHER!r}])"}
        one.run(holds.pop(first))
        one.run(*holds.values())
        (at_rest,) = folder.glob(f"{GPU}.*")
        until(lambda: time.time() - at_rest.stat().st_ctime > 1)
        assert [claim.idle for (claim,) in Claims().others().values()] == [0, 0]


def test_once_it_is_unloaded_nothing_is_told(notebook: InteractiveShell, folder: Path) -> None:
    run(notebook, "%unload_ext gpu_magic")
    assert not list(folder.iterdir())
    claims = Claims()
    claims.hold([GPU])
    run(notebook, "pass")
    assert mode(folder) == NO_CELLS


def test_claims_can_be_off_by_configuration(notebook: InteractiveShell, folder: Path) -> None:
    launch = "%gpu_launch --gpus 1 --background quiet sleep 600"
    for cell in "%config GpuMagics.claims = False", "%gpus 2", launch:
        run(notebook, cell)
        assert not list(folder.iterdir())
    run(notebook, "%gpu_tasks stop quiet")
    run(notebook, "%config GpuMagics.claims = True\n%gpus 2")
    assert mode(folder) == AT_REST


def test_a_descriptor_that_a_cell_has_closed_is_left_alone(
    notebook: InteractiveShell, folder: Path, tmp_path: Path
) -> None:
    """The number of the descriptor can be that of a file of the user's by then."""
    (claim,) = folder.iterdir()
    theirs = tmp_path / "theirs"
    theirs.touch(0o600)
    (number,) = [int(one.name) for one in Path("/proc/self/fd").iterdir() if one.resolve() == claim]
    file = os.open(theirs, os.O_RDONLY)
    os.dup2(file, number)
    os.close(file)
    run(notebook, "pass")
    assert stat.S_IMODE(theirs.stat().st_mode) == 0o600
    run(notebook, "%gpus none")
    os.close(number)  # it is still theirs


def test_since_when_others_see() -> None:
    with stranger() as one:
        one.run("globals().update(kernel=Claims(is_at_work=lambda: False))")
        one.run(f"kernel.hold([{GPU!r}, {OTHER!r}])")
        made = time.time()
        (claim,) = Claims().others()[GPU]
        assert abs(claim.since - made) < 60
        assert claim.idle != UNKNOWN
        assert Claims().others()[OTHER][0].idle != UNKNOWN
        one.run("kernel.publish_activity()")
        assert Claims().others()[GPU][0].since == claim.since


@pytest.mark.parametrize("when", [0, 2**33])
def test_a_time_that_an_owner_makes_up_is_not_believed(folder: Path, when: int) -> None:
    """In the future, or before its process was there."""
    with holder(GPU) as pid:
        (file,) = folder.iterdir()
        os.utime(file, (when, when))
        (claim,) = Claims().others()[GPU]
        age = read_process(pid).age
        assert age is not UNKNOWN
        assert time.time() - age - 2 <= claim.since <= time.time()
