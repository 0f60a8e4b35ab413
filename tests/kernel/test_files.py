"""The files that a kernel writes are those of the reference page, with the modes that stand there, whatever the umask."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import ROOT
from tests.kernel.test_restart import START_CUDA
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel

PAGE = ROOT / "docs" / "reference" / "variables-and-files.md"
RANDOM = r"\.[0-9a-f]{16}"
# For each row of the page: what stands in it, and where such files are in this test.
ROWS = {
    "| the folder of claims |": r"claims",
    "a claim: the GPU": rf"claims/GPU-[\w-]+{RANDOM}",
    "the choice that [`--restart`]": r"runtime/gpu_magic(/kernel-[\w-]+\.json)?",
    "output of ranks": r"tmp/gpu_magic-\w+",
}


def modes_of(row: str) -> set[int]:
    """Return the modes that stand in a row of the page, but for that of files which are being written."""
    text = PAGE.read_text(encoding="utf-8")
    (line,) = [line for line in text.split("\n") if line.startswith("| ") and row in line]
    *_, modes = line.removesuffix(" |").split(" | ")
    return {
        int(mode, 8)
        for mode in re.findall(r"`(\d{4})`", modes.replace("`0600` while gpu_magic writes the file", ""))
    }


def written(place: Path) -> dict[str, int]:
    """Return the modes of gpu_magic's files below a folder, as far down as the page goes."""
    found = {}
    for path in place.rglob("*"):
        name = str(path.relative_to(place))
        # What ipykernel and IPython write themselves, and what is inside of a command's own folder.
        if not re.match(
            r"(home/\.?ipython|runtime/kernel-|tmp/(ipykernel|gpu_magic-\w+/))|(home|runtime|tmp)$", name
        ):
            found[name] = path.lstat().st_mode & 0o7777
    return found


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_what_is_written_is_what_the_page_lists(
    start_kernel: Callable[..., Kernel], tmp_path: Path, umask: int
) -> None:
    place = tmp_path / "all"
    for name in ("home", "tmp", "runtime"):
        (place / name).mkdir(parents=True)
    kernel = start_kernel(
        connection_file=place / "runtime" / "kernel-1.json",
        HOME=str(place / "home"),
        IPYTHONDIR=str(place / "home" / "ipython"),
        JUPYTER_RUNTIME_DIR=str(place / "runtime"),
        TMPDIR=str(place / "tmp"),
        GPU_MAGIC_CLAIMS=str(place / "claims"),
    )
    seen: defaultdict[str, set[int]] = defaultdict(set)

    def run(cell: str) -> str:
        reply = kernel.run(cell)
        for name, mode in written(place).items():
            seen[name].add(mode)
        return reply.stdout + reply.stderr + reply.text

    run(f"import os; os.umask({umask})")
    run("%load_ext gpu_magic")
    run("%gpus")
    assert seen == {}
    run("%gpus 1,0")
    run("%gpu_launch --gpus 2 --background sleeping sleep 600")
    run(START_CUDA)
    run(
        "from gpu_magic.gpus.apply import apply\nfrom gpu_magic.process.session import current\n"
        "from gpu_magic.restart.saved import save\nlate = apply(current(), '3').too_late; save(late.request, late.devices, late.options.to_save)"
    )
    during = run(
        "print({one.name: one.stat().st_mode & 0o7777 for one in os.scandir(os.environ['GPU_MAGIC_CLAIMS'])})"
    )
    for name, mode in ast.literal_eval(during).items():
        seen[f"claims/{name}"].add(mode)
    for row, pattern in ROWS.items():
        of_row = [seen.pop(name) for name in list(seen) if re.fullmatch(pattern, name)]
        assert of_row, row
        assert set().union(*of_row) == modes_of(row), row
    assert seen == {}
    # All of it ends with the kernel, but for the folder, and a choice that a restart is to apply.
    kernel.end()
    until(lambda: not list((place / "tmp").glob("gpu_magic-*")))
    assert {Path(name).parts[0] for name in written(place)} <= {"claims", "runtime"}
    assert {path.name for path in (place / "home").iterdir()} <= {"ipython"}
