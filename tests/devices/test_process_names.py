"""What processes are called in the table: one's own by their notebooks, all with their age where it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_magic
from gpu_magic.devices.process_names import ProcessNames
from gpu_magic.devices.status import GpuProcess
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.testing import Machine, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

GIB = 1 << 30


@pytest.fixture
def machine() -> Iterator[Machine]:
    with simulate("4xA100-80GB", clock=lambda: 0.0) as there:
        yield there


def run_notebook(machine: Machine, gpu: int, notebook: str) -> None:
    machine.gpus[gpu].run("ipykernel", "maria", 12 * GIB, age=11_000, is_own=True, notebook=notebook)


def used_by() -> list[str]:
    """Return the last column of the table, of GPUs that are in use."""
    shown = repr(gpu_magic.gpus()).split("\n\n")[0]
    return [line.rpartition("  ")[2] for line in shown.split("\n")[2:] if not line.endswith("free")]


def test_a_kernel_of_ones_own_is_called_by_its_notebook(machine: Machine) -> None:
    run_notebook(machine, 0, "/home/maria/work/train.ipynb")
    assert used_by() == ["you: train.ipynb, 12.0 GiB, for 3 h"]


def test_a_program_of_ones_own_is_called_by_its_script(machine: Machine) -> None:
    machine.gpus[0].run("train.py", "maria", GIB, age=60, is_own=True, notebook="/home/maria/train.ipynb")
    assert used_by() == ["you: train.py, 1.0 GiB, for 1 min"]


def test_a_process_of_somebody_else_has_its_age_and_no_notebook(machine: Machine) -> None:
    machine.gpus[0].run("ipykernel", "tom", GIB, age=200_000, notebook="/home/tom/secret.ipynb")
    assert used_by() == ["tom: ipykernel, 1.0 GiB, for 2 days"]


def test_an_age_that_is_not_known_is_left_out(machine: Machine) -> None:
    machine.gpus[0].run("train.py", "tom", GIB)
    assert used_by() == ["tom: train.py, 1.0 GiB"]


def test_notebooks_of_one_name_have_their_folders(machine: Machine) -> None:
    run_notebook(machine, 0, "/home/maria/old/train.ipynb")
    run_notebook(machine, 1, "/home/maria/new/train.ipynb")
    run_notebook(machine, 2, "/home/maria/new/eval.ipynb")
    assert [line.split(",")[0] for line in used_by()] == [
        "you: old/train.ipynb",
        "you: new/train.ipynb",
        "you: eval.ipynb",
    ]


def test_one_notebook_on_two_gpus_needs_no_folder(machine: Machine) -> None:
    run_notebook(machine, 0, "/home/maria/train.ipynb")
    run_notebook(machine, 1, "/home/maria/train.ipynb")
    assert {line.split(",")[0] for line in used_by()} == {"you: train.ipynb"}


def test_the_page_says_what_the_text_says(machine: Machine) -> None:
    run_notebook(machine, 0, "/home/maria/<b>train.ipynb")
    assert "you: &lt;b&gt;train.ipynb, 12.0 GiB, for 3 h" in gpu_magic.gpus()._repr_html_()


def test_a_choice_names_the_notebook_that_is_there(machine: Machine) -> None:
    run_notebook(machine, 0, "/home/maria/train.ipynb")
    said = repr(gpu_magic.choose("0")).split("\n")
    assert "GPU 0 is in use by you: train.ipynb, 12.0 GiB, for 3 h" in said


def test_what_auto_says_of_ones_own_is_not_told_of_somebody_else(machine: Machine) -> None:
    run_notebook(machine, 0, "/home/maria/train.ipynb")
    assert "GPU 0 (in use by you for 3 h)" in repr(gpu_magic.choose("auto"))


@given(st.lists(st.text(alphabet="ab/", min_size=1, max_size=9), min_size=1, max_size=6, unique=True))
def test_notebooks_are_told_apart(paths: list[str]) -> None:
    processes = [
        GpuProcess(number, "ipykernel", "maria", UNKNOWN, is_own=True, notebook=path)
        for number, path in enumerate(paths)
    ]
    names = ProcessNames(processes)
    assert len({names.name(process) for process in processes}) == len(paths)


@given(st.text(min_size=1, max_size=90))
def test_hostile_notebooks_stay_one_line(notebook: str) -> None:
    process = GpuProcess(7, "ipykernel", "maria", UNKNOWN, is_own=True, notebook=notebook)
    line = ProcessNames([process]).line(process)
    assert line.isprintable()
    assert len(line) < 60
