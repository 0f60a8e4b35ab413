"""`auto` in ranks: each gets GPUs of its own, as it claims them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.conftest import LIMIT, ROOT
from tests.machine import CARDS, Driver, clean_environment, environment

if TYPE_CHECKING:
    from pathlib import Path

# Each rank chooses one GPU, then two, when the other has chosen; and writes what it has, or its error.
SCRIPT = """
import os, sys, time
import gpu_magic
for turn, asked in enumerate(("auto", "auto:2")):
    try:
        choice = gpu_magic.choose(asked)
    except gpu_magic.ChoiceError as error:
        line = str(error)
    else:
        line = os.environ["CUDA_VISIBLE_DEVICES"]
    with open(f"{sys.argv[1]}/{turn} {os.environ['RANK']}", "w") as file:
        file.write(line)
    while len(os.listdir(sys.argv[1])) < 2 * (turn + 1):
        time.sleep(0.02)
"""


def test_each_rank_of_torchrun_gets_its_own_and_too_few_is_one_line_in_the_one_that_gets_none(
    native: Path, tmp_path: Path
) -> None:
    Driver(CARDS).write(tmp_path / "machine")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "found").mkdir()
    variables = clean_environment() | environment(native, tmp_path / "machine") | {"PYTHONPATH": str(ROOT)}
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    subprocess.run(
        [*torchrun, tmp_path / "script.py", tmp_path / "found"],
        env=variables | {"CUDA_VISIBLE_DEVICES": "3,1,0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        check=True,
        capture_output=True,
        timeout=LIMIT,
    )
    first, second = (
        [(tmp_path / "found" / f"{turn} {rank}").read_text() for rank in range(2)] for turn in range(2)
    )
    assert len(set(first)) == 2
    assert set(first) <= {"0", "1", "3"}
    assert any(len(set(line.split(",")) & {"0", "1", "3"}) == 2 for line in second), second
    assert any("auto:2 can pick only 1 GPU" in line for line in second), second
