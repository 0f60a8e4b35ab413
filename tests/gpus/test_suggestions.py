"""What a refusal says to type is typed on the same machine, and works: it names no GPU that is not there."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from gpu_magic.errors import GpuMagicError
from gpu_magic.gpus.apply import apply
from gpu_magic.gpus.options import Options
from gpu_magic.launch.devices import pick
from gpu_magic.process.session import current
from gpu_magic.shell.arguments import read
from gpu_magic.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Typed

# Each a machine, and the CUDA_VISIBLE_DEVICES of its process, in which 1:0 is the UUID of that MIG instance.
MACHINES = [
    ("1xA100-80GB", None),
    ("2xA100-80GB", None),
    ("8xA100-80GB", "2,5"),
    ("8xA100-80GB", "7"),
    ("2xA100-80GB", ""),
    ("1xRTX-4090+1xT4", None),
    ("1xA100-80GB(3g.40gb,4g.40gb)", None),
    (f"1xA100-80GB({','.join(['1g.10gb'] * 7)})", "0:5,0:2"),
    ("1xA100-80GB(3g.40gb,4g.40gb)+1xA100-80GB", None),
    ("1xA100-80GB(3g.40gb,4g.40gb)+1xA100-80GB", "0:1"),
    ("1xA100-80GB(3g.40gb,4g.40gb)+1xA100-80GB", "1"),  # which CUDA may read in another way
    ("1xT4+1xA100-80GB(3g.40gb,4g.40gb)", None),
    ("2xA100-80GB(3g.40gb,4g.40gb)", "1:1"),
]
WRONG = [
    *("5", "0 5", "0 1", "0;1", "1,", "1,,0", ",", "0,0", "0:0,0:0", "1-0", "7-5", "0-9", "2.0", "[0, 0]"),
    *("auto:x", "auto:0", "auto:9", "auto:2", "auto 2", "auto2", "auot:3", "rset", "all,0", "0,auto"),
    *(
        "0",
        "1",
        "0:0",
        "0:1",
        "1:7",
        "0:0,0:1",
        "0:0,1",
        "0,0:1",
        "all",
        "GPU-0",
        "gpu0",
        "GPU-",
        "MIG-",
        "A100",
        "-1",
    ),
    *("0 --min-free 20GB", "0 --only-free", "all --model A100", "auto:3 --only-free", "auto --min-free 1TB"),
    *(
        "auto --model T4",
        "none --growth",
        "reset --memory-limit 8GB",
        "none --order pci",
        "0 --memory-limit 1TB",
    ),
]


@contextmanager
def process(profile: str, mask: str | None, *, busy: bool = False) -> Iterator[None]:
    """Be a process on a machine, on which other processes may use some GPUs."""
    with simulate(profile, clock=0.0) as machine:
        uuids = {
            f"{gpu.index}:{number}": part.uuid for gpu in machine.gpus for number, part in enumerate(gpu.mig)
        }
    mask = mask and ",".join(uuids.get(entry, entry) for entry in mask.split(","))
    with simulate(profile, mask=mask, clock=0.0) as machine:
        if busy:
            machine.gpus[0].run("train.py", "tom", 10 << 30)
            machine.gpus[-1].run("train.py", "maria", 10 << 30)
        yield


def choose(typed: str) -> None:
    options = vars(read("%gpus", typed))
    apply(current(), options.pop("request"), Options.of(options), dry_run=True)


def launch(typed: str, *, is_divided: bool = False) -> None:
    options = vars(read("%gpus", typed))
    session = current()
    pick(session, options.pop("request"), None, Options.of(options), is_divided=is_divided)


def engines(typed: str) -> None:
    launch(typed, is_divided=True)


def suggested(error: GpuMagicError) -> list[str]:
    """Return what the message says to type after `%gpus`."""
    text = str(error).replace("--gpus ", "").replace(", or add --wait 30m", "")
    found = re.search(r"Try (.*)", text)
    return found[1].split(" or ") if found else []


@pytest.mark.parametrize(
    ("use", "profile", "mask", "busy"),
    [
        *((choose, *there, busy) for there in MACHINES for busy in (False, True)),
        *((use, *there, True) for there in MACHINES[6:11] for use in (launch, engines)),
    ],
)
def test_each_suggestion_is_accepted(
    use: Callable[[str], None], profile: str, mask: str | None, busy: bool
) -> None:
    refused = 0
    with process(profile, mask, busy=busy):
        for typed in WRONG:
            try:
                use(typed)
            except GpuMagicError as refusal:
                refused += 1
                for way in suggested(refusal):
                    use(way)  # another refusal has the first as its context
                if "add --each" in str(refusal):
                    engines(typed)
    assert refused > len(WRONG) // 3


def test_numbers_that_are_separated_wrong_and_not_there_are_refused_for_what_is_not_there() -> None:
    with process("4xA100-80GB", None):
        with pytest.raises(GpuMagicError, match="There is no GPU 9"):
            choose("2 9")
        with pytest.raises(GpuMagicError, match="separate GPUs by commas"):
            choose("2 3")


@pytest.mark.parametrize("typed", WRONG)
def test_without_a_gpu_nothing_that_names_one_is_suggested(typed: str) -> None:
    """The machine of the tests has no GPU."""
    with pytest.raises(GpuMagicError) as caught:
        choose(typed)
    assert not re.search(r"Try .*(\d|auto|all)", str(caught.value))


LINES = [
    "%gpu_launch --gpus none true",
    "%gpu_launch --gpus reset -n 9 true",
    "%gpu_launch --gpus 0 1 true",
    "%gpu_launch 1 true",
    "%gpu_launch 0:0,0:1 true",
    "%gpu_launch --min-free 20GB true",
    "%gpu_cluster none",
    "%%on_gpu smi:0\n1",
    "%%on_gpu smi:1\n1",
    "%%on_gpu smi:1:1\n1",
    "!export CUDA_VISIBLE_DEVICES=7",
    "!export CUDA_VISIBLE_DEVICES=0",
    "import os; os.environ['CUDA_VISIBLE_DEVICES'] = '0'",
    "import os; os.environ['CUDA_VISIBLE_DEVICES'] = '9'",
    "%gpus",
]


@pytest.mark.parametrize(("profile", "mask"), MACHINES)
def test_what_other_magics_and_notes_name_can_be_chosen(typed: Typed, profile: str, mask: str | None) -> None:
    for line in LINES:
        with process(profile, mask):
            said = typed(line).text
            for way in re.findall(r"%gpus (?!shows)([^\s.]*[^\s.,])", said):
                choose(way)
            for way in re.findall(r"(?:--gpus|%gpu_cluster) (\d\S*)", said.partition("UsageError")[2]):
                engines(way)
