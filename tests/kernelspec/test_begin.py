"""What a kernel that starts chooses, and what its first cell says."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from gpu_magic.errors import GpuMagicError
from gpu_magic.kernelspec.begin import begin, read_request
from gpu_magic.process.session import current
from gpu_magic.testing import Machine, simulate, start_cuda

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)


@pytest.fixture
def started(
    shell: InteractiveShell, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Return a way to start a kernel with what is typed; it returns what the first cell prints."""

    def start(typed: str, **options: bool) -> str:
        shell.parent_header = {}  # type: ignore[attr-defined] # as in a kernel before any cell
        begin(shell, typed, **options)
        shell.run_cell("first = 1", store_history=True)
        first = capsys.readouterr().out
        shell.run_cell("second = 2", store_history=True)
        assert capsys.readouterr().out == ""
        return first

    return start


def mask() -> str | None:
    return os.environ.get("CUDA_VISIBLE_DEVICES")


@pytest.mark.parametrize(
    ("typed", "chosen"),
    [
        ("auto", "1"),
        ("auto:2", "1,2"),
        ("3,0", "3,0"),
        ("none", ""),
        ("all", "0,1,2,3"),
        ("auto --min-free 60GB", "1"),
        ("0 --only-free", ""),
    ],
)
def test_a_kernel_starts_with_what_is_asked_for(
    started: Callable[..., str], machine: Machine, typed: str, chosen: str
) -> None:
    machine.gpus[0].run("train.py", "maria", 20 << 30)
    says = started(typed)
    assert mask() == chosen
    assert says.startswith("GPU 0 is in use by maria: train.py, 20.0 GiB\n" if "0" in chosen else "")
    assert bool(says) is ("0" in chosen or "--only-free" in typed)


def test_the_table_says_since_when(started: Callable[..., str], shell: InteractiveShell) -> None:
    started("auto:2")
    shown = repr(shell.run_cell("import gpu_magic; gpu_magic.gpus()").result)
    assert "=0,1 (CUDA_DEVICE_ORDER=PCI_BUS_ID), chosen when the kernel started" in shown
    shell.run_line_magic("gpus", "3")
    assert "chosen when" not in repr(shell.run_cell("gpu_magic.gpus()").result)


def test_without_a_free_gpu_there_is_none_and_the_first_cell_says_who_has_them(
    started: Callable[..., str], shell: InteractiveShell, machine: Machine
) -> None:
    for gpu in machine.gpus[1:]:
        gpu.run("train.py", "maria", 20 << 30)
    says = started("auto:2 --min-free 8GB --growth")
    assert mask() == ""
    assert says == (
        "This kernel started without a GPU. Not free: GPU 1, GPU 2 and GPU 3 (in use by maria). "
        "To wait: %gpus auto:2 --min-free 8GB --growth --wait 30m\n"
        "SIMULATED machine (4xA100-80GB): these GPUs do not exist\n"
    )
    machine.gpus[1].processes.clear()
    shell.run_cell(says.partition("To wait: ")[2].splitlines()[0])
    assert mask() == "0,1"


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("9", "There is no GPU 9"),
        ("auto:5", "can pick only 4 GPUs"),
        ("1,1", "names 1 twice"),
        ("auto --wait 3", "Omit it"),
        ("auto --min-free abc", "%gpus auto --min-free abc: --min-free abc is not a size. Try"),
        ("3 --only-free", "Not free: GPU 3 (in use by tom). To wait: %gpus 3 --wait 30m\n"),
    ],
)
def test_what_can_not_be_met_leaves_no_gpu(
    started: Callable[..., str], machine: Machine, typed: str, says: str
) -> None:
    machine.gpus[3].run("train.py", "tom", 20 << 30)
    assert says in started(typed)
    assert mask() == ""


def test_cells_of_an_editor_are_not_the_first(
    shell: InteractiveShell, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.parent_header = {}  # type: ignore[attr-defined]
    begin(shell, "9")
    shell.run_cell("1", store_history=False)
    shell.run_cell("2", silent=True)
    assert "no GPU 9" not in capsys.readouterr().out
    shell.run_cell("3", store_history=True)
    assert "no GPU 9" in capsys.readouterr().out


def test_plain_loads_no_extension(started: Callable[..., str], shell: InteractiveShell) -> None:
    assert started("auto", is_plain=True) == ""
    assert mask() == "0"
    assert shell.find_line_magic("gpus") is None
    current().unload()


def test_a_bad_configuration_keeps_no_kernel_from_its_gpu(
    started: Callable[..., str], shell: InteractiveShell
) -> None:
    shell.config.GpuMagics.on_frozen = "explode"
    assert started("auto").startswith("gpu_magic is not loaded: The 'on_frozen' trait")
    assert mask() == "0"
    current().unload()


def test_after_cuda_has_started_the_first_cell_says_so(started: Callable[..., str]) -> None:
    start_cuda()
    assert started("2").startswith("Too late: ")
    assert mask() is None


def test_without_a_driver_a_kernel_starts_all_the_same(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    with simulate("0xA100-80GB") as machine:
        assert not machine.gpus
        begin(shell, "auto")
        shell.run_cell("1", store_history=True)
        assert capsys.readouterr().out.startswith("This kernel started without a GPU. ")
        assert mask() == ""


def test_where_no_such_machine_can_be_simulated_a_kernel_starts_all_the_same(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "8xZ9")
    begin(shell, "auto")
    shell.run_cell("1", store_history=True)
    says = "This kernel started without a GPU. %gpus auto: GPU_MAGIC_SIMULATE: '8xZ9' is not a machine to simulate. "
    assert capsys.readouterr().out.startswith(says)
    assert mask() == ""


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine) -> Callable[[Any], Path]:
    """Return a way to write the notebook of this kernel, given its metadata."""

    def write(asked: Any) -> Path:
        file = tmp_path / "train.ipynb"
        file.write_text(asked if isinstance(asked, str) else json.dumps({"cells": [], "metadata": asked}))
        monkeypatch.setenv("JPY_SESSION_NAME", str(file))
        return file

    return write


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ({"gpus": "auto:2", "min_free": "60GB"}, "0,1"),
        ({"gpus": 2}, "2"),
        ({"gpus": [2, 0], "only_free": True}, "2,0"),
        ({"gpus": "none"}, ""),
        ({"min_free": "60GB", "growth": True, "only_free": False}, "0"),
    ],
)
def test_a_notebook_asks_in_its_metadata(
    started: Callable[..., str], notebook: Callable[[Any], Path], asked: object, chosen: str
) -> None:
    notebook({"gpu_magic": asked})
    assert started("3") == ""
    assert mask() == chosen


@pytest.mark.parametrize("metadata", [{}, {"kernelspec": {}}, {"gpu_magic": None}])
def test_a_notebook_that_asks_for_nothing_has_what_the_kernelspec_says(
    started: Callable[..., str], notebook: Callable[[Any], Path], metadata: object
) -> None:
    notebook(metadata)
    assert started("3") == ""
    assert mask() == "3"


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ('{"gpu_magic": ', "the notebook is not valid JSON"),
        ('["gpu_magic"]', "the notebook is not valid JSON"),
        ('{"metadata": ["gpu_magic"]}', "the notebook is not valid JSON"),
        ('{"gpu_magic": ' + "[" * 60_000, "the notebook is not valid JSON"),
        ({"gpu_magic": "auto:2"}, 'write "gpu_magic" as {"gpus": "auto:1", "min_free": "20GB"}'),
        ({"gpu_magic": {"gpus": {"0": 1}}}, '"gpus" is {"0": 1}. Write "auto:1" or [2, 0]'),
        ({"gpu_magic": {"gpus": True}}, '"gpus" is true. Write'),
        ({"gpu_magic": {"gpus": "reset"}}, "Try auto or all or none"),
        ({"gpu_magic": {"gpus": "2", "min_free": "8GB"}}, "--min-free 8GB goes with auto"),
        ({"gpu_magic": {"min_free": 20}}, '"min_free" is 20. Write "20GB"'),
        ({"gpu_magic": {"gpus": "2,0", "growth": 1}}, '"growth" is 1. Write true'),
        ({"gpu_magic": {"only_free": "no"}}, '"only_free" is "no". Write true'),
        ({"gpu_magic": {"gpus": "auto", "minfree": "2GB"}}, 'no "minfree". Did you mean "min_free"?'),
        ({"gpu_magic": {"gpus": "auto", "wait": "2h"}}, 'no "wait". It has gpus, only_free, '),
    ],
)
def test_metadata_that_can_not_be_read_is_named_and_not_used(
    started: Callable[..., str], notebook: Callable[[Any], Path], metadata: object, says: str
) -> None:
    notebook(metadata)
    first = started("3")
    assert first.startswith("Ignored the notebook's metadata: ")
    assert says in first
    assert mask() == "3"


def test_a_notebook_that_was_renamed_since_the_kernel_started_is_named(
    started: Callable[..., str], notebook: Callable[[Any], Path]
) -> None:
    """A server with jupyter_client before 8.5 keeps the old name for a restart of the kernel."""
    notebook({"gpu_magic": {"gpus": "2"}}).rename(notebook({}).with_name("new.ipynb"))
    assert started("3").startswith("Ignored the notebook's metadata: there is no train.ipynb any more.")
    assert mask() == "3"


@pytest.mark.parametrize("name", ["pipe.ipynb", "huge.ipynb", "script.py", f"{'x' * 300}.ipynb"])
def test_what_is_no_notebook_is_not_read(
    started: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file = tmp_path / name
    if name == "pipe.ipynb":
        os.mkfifo(file)
    elif len(name) < 256:
        file.write_text('{"metadata": {"gpu_magic": {"gpus": "0"}}}')
        if name == "huge.ipynb":
            os.truncate(file, (64 << 20) + 1)
    monkeypatch.setenv("JPY_SESSION_NAME", str(file))
    assert started("3") == ""
    assert mask() == "3"


@pytest.mark.parametrize(
    "typed",
    ["auto:x", "", "--growth", "auto --strict", "auto --nonsense", "auto --min-free", "auto --min-free=-3GB"],
)
def test_a_request_that_can_not_be_read_is_refused(typed: str) -> None:
    with pytest.raises(GpuMagicError):
        read_request(typed)
