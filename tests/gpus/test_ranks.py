"""`auto` in ranks: each gets GPUs of its own, as it claims them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.conftest import LIMIT, ROOT
from tests.machine import CARDS, Driver, clean_environment, environment

if TYPE_CHECKING:
    from pathlib import Path


SCRIPT = """
import os, sys, time
import gpu_magic
try:
    choice = gpu_magic.choose(sys.argv[1])
except gpu_magic.ChoiceError as error:
    line = str(error)
else:
    line = os.environ["CUDA_VISIBLE_DEVICES"]
with open(f"{sys.argv[2]}/{os.environ['RANK']}", "w") as file:
    file.write(line)
while len(os.listdir(sys.argv[2])) < 2:
    time.sleep(0.05)
"""


def torchrun(native: Path, tmp_path: Path, asked: str, mask: str) -> list[str]:
    """Choose in each of two ranks of the real torchrun; return what each has, or its error."""
    Driver(CARDS).write(tmp_path / "machine")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "found").mkdir()
    variables = clean_environment() | environment(native, tmp_path / "machine") | {"PYTHONPATH": str(ROOT)}
    subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
            *(tmp_path / "script.py", asked, tmp_path / "found"),
        ],
        env=variables | {"CUDA_VISIBLE_DEVICES": mask, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        check=True,
        capture_output=True,
        timeout=LIMIT,
    )
    return [(tmp_path / "found" / str(rank)).read_text() for rank in range(2)]


def test_each_rank_of_torchrun_gets_its_own_among_those_of_the_launch(native: Path, tmp_path: Path) -> None:
    assert sorted(torchrun(native, tmp_path, "auto", "3,1")) == ["1", "3"]


def test_too_few_for_all_ranks_is_one_line_in_the_one_that_gets_none(native: Path, tmp_path: Path) -> None:
    found = torchrun(native, tmp_path, "auto:2", "3,0,2")
    assert "3,0" in found or "0,2" in found or "0,3" in found
    assert any("auto:2 asks for 2, and only 1 can be picked" in line for line in found), found
