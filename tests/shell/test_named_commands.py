"""What a refusal says to type is typed: it is read, and not refused as another wrong line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from gpu_magic.testing import simulate

if TYPE_CHECKING:
    from tests.conftest import Typed

# Lines that are refused, and what their messages say to type: a whole line, options to add, or other GPUs.
LINES = {
    "%gpus auto:9": ["auto:8"],
    "%gpus auto:8 --only-free": ["auto:5 --only-free", "--wait 30m"],
    "%gpus 3 --only-free": ["--wait 30m"],
    "%gpus 0;2": ["0,2"],
    "%gpus 1,0-2": ["1,0,2"],
    "%gpus auto:0": ["auto:2"],
    "%gpus auto4": ["auto:4"],
    "%gpus auot": ["auto"],
    "%gpus 1,all": ["all"],
    "%gpus 3-1": ["1-3", "3,2,1"],
    "%gpus -1": ["none"],
    "%gpus 2:1": ["2"],
    "%gpus --restart": ["%gpus auto --restart"],
    "%gpus ''": ["%gpus auto --only-free"],
    "%gpus none --memory-limit 8GB": ["all --memory-limit 8GB"],
    "%gpus 0 --memory-limit 8iB": ["--memory-limit 8GB"],
    "%gpus 0 --memory-limit 1KB": ["--memory-limit 1GB"],
    "%gpus auto --min-free lots": ["--min-free 20GB"],
    "%gpus all --only-free": ["auto --only-free"],
    "%gpus none --wait 30m": ["auto --wait 30m"],
    "%gpus auto --wait": ["--wait 30m"],
    "%gpus --reset": ["%gpus reset"],
    "%gpus 1 --forcd": ["--force"],
    "%gpus 3,1 --in-process": ["%gpus 3,1"],
    "%gpus n": ["%gpus {n}"],
    "%gpu_panel 1": ["%gpus 1"],
    "%gpu_launch --gpus 2 0 true": ["--gpus 2,0"],
    "%gpu_launch --gpus none true": ["--gpus 0,1"],
    "%gpu_launch -n 9 true": ["-n 8"],
    "%gpu_launch -n many true": ["-n 1"],
    "%gpu_launch --min-free 1GB true": ["--gpus auto --min-free 1GB"],
    "%gpu_launch LR=1 true": ["%gpu_launch env LR=1 true"],
    "%gpus --none --dry-run": ["%gpus none --dry-run"],
    "%gpus --min-free 9GB auto:2 --dry-run": ["%gpus auto:2 --min-free 9GB --dry-run"],
    "%gpu_launch true > file": ["%gpu_launch bash -c '…'"],
    "%%on_gpu n": ["%%on_gpu {n}"],
    "%%on_gpu auto": ["%gpus auto"],
    "%to_gpu": ["%to_gpu model batch", "%to_gpu --all"],
}
# What a line is told that is not read.
NOT_READ = re.compile(
    r"There is no -|explains the options|needs a value|Did you mean|names no GPU|Expected|separate GPUs|goes with"
    r"|is not (?:a|an) (?:GPU|size|time|device|number|name)\b|cannot be read"
)


def completed(line: str, named: str) -> str:
    """Return a whole line, with what a message names in it; what would take long, or be set, is shortened."""
    magic, *words = line.split()
    if named.startswith("%"):
        typed = named
    elif magic == "%gpu_launch":
        typed = f"{magic} {named} true"
    elif named.startswith("-"):
        typed = " ".join([magic, words[0], *(word for word in words[1:] if word == "--only-free"), named])
    else:
        typed = f"{magic} {named}"
    typed = re.sub(r"--wait \d+m", "--wait 1s", typed)
    return typed.replace("%gpu_launch ", "%gpu_launch --dry-run ", 1)


@pytest.mark.parametrize("line", LINES)
def test_what_a_refusal_names_is_read_when_it_is_typed(typed: Typed, line: str) -> None:
    with simulate("8xA100-80GB", clock=lambda: 0.0) as machine:
        for number in (3, 5, 7):
            machine.gpus[number].run("train.py", "tom", 20 << 30)
        typed("n = 1")
        refused = typed(line + "\n1" * line.startswith("%%")).text
        assert refused.startswith("UsageError: ")
        for named in LINES[line]:
            assert named in refused
            following = completed(line, named)
            said = typed(following + "\n1" * following.startswith("%%")).text
            assert not NOT_READ.search(said), (following, said)
