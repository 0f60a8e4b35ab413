"""`auto` in ranks: each takes its share, without asking the others."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gpu_magic.process.local_rank import local_rank
from tests.conftest import LIMIT, ROOT
from tests.machine import CARDS, Driver, clean_environment, environment

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({}, None),
        ({"LOCAL_RANK": "1"}, None),  # set by hand, for one process
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, None),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, (1, 4)),
        ({"LOCAL_RANK": "4", "LOCAL_WORLD_SIZE": "4"}, None),
        ({"LOCAL_RANK": "one", "LOCAL_WORLD_SIZE": "4"}, None),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "3"}, (2, 3)),
        ({"MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}, (0, 2)),
        ({"SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "1"}, None),
        ({"SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_NODEID": "2"}, (1, 2)),
        ({"SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_NODEID": "3"}, None),
        ({"SLURM_LOCALID": "3", "SLURM_STEP_TASKS_PER_NODE": "1,4", "SLURM_NODEID": "1"}, (3, 4)),
    ],
)
def test_what_launchers_say(variables: dict[str, str], rank: tuple[int, int] | None) -> None:
    assert local_rank(variables) == rank


SCRIPT = """
import os, sys
import gpu_magic
try:
    choice = gpu_magic.choose(sys.argv[1])
except gpu_magic.ChoiceError as error:
    line = str(error)
else:
    line = os.environ["CUDA_VISIBLE_DEVICES"]
with open(f"{sys.argv[2]}/{os.environ['RANK']}", "w") as file:
    file.write(line)
"""


def torchrun(native: Path, tmp_path: Path, asked: str, mask: str) -> list[str]:
    """Choose in each of two ranks of the real torchrun; return what each has, or its error."""
    Driver(CARDS).write(tmp_path / "machine")
    (tmp_path / "script.py").write_text(SCRIPT)
    variables = clean_environment() | environment(native, tmp_path / "machine") | {"PYTHONPATH": str(ROOT)}
    subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
            *(tmp_path / "script.py", asked, tmp_path),
        ],
        env=variables | {"CUDA_VISIBLE_DEVICES": mask, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        check=True,
        capture_output=True,
        timeout=LIMIT,
    )
    return [(tmp_path / str(rank)).read_text() for rank in range(2)]


def test_each_rank_of_torchrun_takes_its_share_in_the_order_of_the_launch(
    native: Path, tmp_path: Path
) -> None:
    assert torchrun(native, tmp_path, "auto", "3,0,2,1") == ["3", "0"]


def test_each_rank_takes_two(native: Path, tmp_path: Path) -> None:
    assert torchrun(native, tmp_path, "auto:2", "3,0,2,1") == ["3,0", "2,1"]


def test_too_few_for_all_ranks_is_one_line_in_each(native: Path, tmp_path: Path) -> None:
    line = "auto:2 in each of 2 ranks on this machine asks for 4 GPUs, and they were given 3."
    assert torchrun(native, tmp_path, "auto:2", "3,0,2") == [line, line]
