"""Inputs shaped by the grammars, by Hypothesis: what atheris needs minutes to find is written down here."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_magic.gpus.options import Options
from gpu_magic.process.mask import NAMES
from tests.fuzzing.machines import MACHINES
from tests.fuzzing.targets import TARGETS
from tests.fuzzing.targets.claims import OURS, THEIRS
from tests.fuzzing.targets.kept import CHOICE

UUIDS = sorted({str(device.uuid) for there in MACHINES for device in there.devices})
# What stands between and within words: whatever a terminal, a page or a file can be given.
ODD = st.sampled_from(
    ["", " ", "  ", ",", "-", ":", "=", "'", '"', "#", "\x1b[31m", "\u202e", "\x00", "\udc80", "٣", "9" * 40]
)
NUMBERS = st.integers(-1, 7).map(str)
PREFIXES = st.builds(lambda uuid, length: uuid[:length], st.sampled_from(UUIDS), st.integers(4, 40))
DEVICES = st.one_of(
    NUMBERS,
    PREFIXES,
    PREFIXES.map(lambda prefix: prefix.swapcase()),
    st.builds("{}-{}".format, NUMBERS, NUMBERS),
    st.builds("{}:{}".format, NUMBERS, NUMBERS),
    st.builds("{}{}".format, st.sampled_from(["amd:", "smi:", "amd:auto:", "auto:", "cuda:"]), NUMBERS),
    st.sampled_from(["auto", "all", "none", "reset", "amd:all"]),
    ODD,
)
LISTS = st.builds(
    lambda devices, comma: comma.join(devices),
    st.lists(DEVICES, max_size=4),
    st.sampled_from([",", ", ", " "]),
)
SIZES = st.builds(
    "{}{}{}".format,
    NUMBERS,
    st.sampled_from(["", ".5", " "]),
    st.sampled_from(["GB", "GiB", "MB", "%", "m", "h30m", ""]),
)
OPTIONS = st.one_of(
    st.sampled_from(["--force", "--growth", "--only-free", "--o", "--"]),
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["--min-free", "--memory-limit", "--wait", "--model", "--order", "--m"]),
        st.sampled_from([" ", "=", "  ", ""]),
        st.one_of(SIZES, st.sampled_from(["A100", "T4", "index", "uuid", "pci", "fastest"]), ODD),
    ),
)
PLACES = st.integers(0, len(MACHINES) - 1).map("x".__mul__)
MASKS = st.one_of(LISTS, st.sampled_from(["-1", "NoDevFiles", "void", "all", "2(x3),1"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
FEW = settings(max_examples=60)


def check(name: str, *fields: str) -> None:
    TARGETS[name].check("\n".join(fields).encode("utf-8", "surrogatepass"))


@FEW
@given(PLACES, st.just("") | MASKS, LISTS, st.lists(OPTIONS, max_size=3))
def test_lines_after_gpus(number: str, mask: str, devices: str, options: list[str]) -> None:
    check("requests", number, mask.replace("\n", ""), " ".join([devices, *options]))


@FEW
@given(
    PLACES,
    st.dictionaries(
        st.sampled_from(
            [
                *NAMES,
                "SLURM_JOB_GPUS",
                "SLURM_JOB_ID",
                "PBS_JOBID",
                "NVIDIA_VISIBLE_DEVICES",
            ]
        ),
        MASKS | st.sampled_from(["PCI_BUS_ID", "FASTEST_FIRST"]),
        max_size=5,
    ),
)
def test_variables(number: str, variables: dict[str, str]) -> None:
    check("masks", number, *(f"{name}={value}" for name, value in variables.items()))


@FEW
@given(
    st.dictionaries(st.sampled_from(list(Options._fields)), JSON, max_size=2),
    LISTS,
    st.sampled_from(["", *CHOICE]),
    JSON,
)
def test_kept_choices(options: dict[str, Any], request: str, changed: str, value: Any) -> None:
    saved = CHOICE | {"request": request, "options": options} | ({changed: value} if changed else {})
    check("kept-choice", json.dumps(saved))


@FEW
@given(
    st.sampled_from([THEIRS, OURS, ""]),
    st.lists(st.sampled_from([OURS, THEIRS, ""]) | st.text(max_size=300), max_size=4),
)
def test_claims_of_others(uuid: str, lines: list[str]) -> None:
    check("claims", uuid, *lines)


@FEW
@given(
    st.lists(
        st.one_of(
            LISTS,
            ODD,
            st.sampled_from(
                [
                    "--gpus",
                    "-n",
                    "--each",
                    "--env",
                    "A=1",
                    "--",
                    "torchrun",
                    "python",
                    "-m",
                    "-c",
                    "ls",
                    "accelerate",
                    "launch",
                    "deepspeed",
                    "--gpu_ids",
                    "--nproc-per-node=2",
                    "--standalone",
                    "train.py",
                ]
            ),
        ),
        max_size=6,
    )
)
def test_command_lines(words: list[str]) -> None:
    check("command-line", *words)
    check("launch-lines", " ".join(words).replace("\n", " "))


@FEW
@given(
    st.integers(0, 20).map(chr),
    st.lists(
        st.one_of(
            OPTIONS,
            LISTS,
            ODD,
            st.sampled_from(["-v", "-n", "--device", "--all", "--only torch", "--background", "restart"]),
        ),
        max_size=4,
    ),
)
def test_lines_of_other_magics(magic: str, words: list[str]) -> None:
    check("lines", magic + " ".join(words))
