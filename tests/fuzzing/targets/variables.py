"""The variables that say which GPUs there are: masks of CUDA and ROCm, schedulers' lists."""

from __future__ import annotations

import re

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.errors import ChoiceError
from gpu_magic.gpus.options import Options
from gpu_magic.gpus.request import Auto, Everything, Named, Nothing, Reset
from gpu_magic.gpus.select import select
from gpu_magic.process.given import Given, is_within, read_grant
from gpu_magic.process.mask import NAMES, Variables
from gpu_magic.process.visible import read_visible
from tests.fuzzing.machines import MACHINES
from tests.fuzzing.target import Target, check_line, check_refusal, text_of

__all__ = ["TARGETS"]

# What is typed on each machine: by number, by load, all, none and back.
_REQUESTS = (Auto(), Auto(2), Everything(), Named((1,)), Named((1, 0)), Nothing(), Reset())


def check_masks(data: bytes) -> None:
    """Check variables, `NAME=value` in a line each, behind a line whose length is the number of the machine."""
    number, *lines = text_of(data).split("\n")
    there = MACHINES[len(number) % len(MACHINES)]
    pairs = (line.partition("=") for line in lines if "\0" not in line)
    variables = {name: value for name, equals, value in pairs if equals}
    inherited, grant = Variables(*map(variables.get, NAMES)), read_grant(variables)
    if grant.giver:
        check_line(grant.giver)
    reading = read_visible(inherited, there)
    for note in reading.notes:
        check_line(str(note))
    if reading.devices is not UNKNOWN:
        assert len(set(reading.devices)) == len(reading.devices), "a device is seen twice"
        assert set(reading.devices) <= set(there.devices), "a device is seen that is not there"
    try:
        allotment = Given(there, inherited, grant)
        assert allotment.sentence
    except ChoiceError as error:
        check_refusal(error)
    for request in _REQUESTS:
        _check_choice(request, there, inherited, grant)


def _check_choice(request, there, inherited, grant) -> None:
    """Check that a choice, without `--force`, is of what was given, and is what frameworks then see."""
    try:
        selection = select(request, there, inherited, Options(), grant=grant)
    except ChoiceError as error:
        check_refusal(error)
        return
    for note in selection.notes:
        check_line(note, 4000)
    if isinstance(request, Reset | Nothing) or selection.devices is UNKNOWN:
        return
    machine = there.of_vendor(selection.vendor)
    given = Given(machine, inherited, grant)
    if given.devices is not UNKNOWN:
        assert given.is_all or is_within(selection.devices, given.devices), "more was chosen than was given"
    values = inherited.named(NAMES) | dict(selection.variables)
    seen = read_visible(Variables(*(values[name] for name in NAMES)), there).devices
    assert seen in (selection.devices, UNKNOWN), f"{selection.devices} was chosen, and {seen} is seen"


_WORDS = (
    *NAMES,
    *"SLURM_JOB_GPUS SLURM_STEP_GPUS SLURM_JOB_ID".split(),
    *"LSB_JOBID PBS_JOBID NVIDIA_VISIBLE_DEVICES KUBERNETES_SERVICE_HOST".split(),
    *"PCI_BUS_ID FASTEST_FIRST NoDevFiles void all".split(),
    *"GPU-8f3a GPU-c0ffee00 MIG-41b7 GPU-4b2c MIG-GPU-8f3a0000-0000-4000-8000-000000000001/1/0 2(x3),1".split(),
    *(str(device.uuid) for there in MACHINES[2:6:3] for device in there.devices),
)


def check_process_line(data: bytes) -> None:
    """Check the command line of somebody's process: its words have a NUL byte behind each."""
    from gpu_magic.devices.processes import _python_program, name_text, read_python_line

    words = data.decode("utf-8", "replace").split("\0")
    line = read_python_line(words)
    assert 0 <= line.options <= len(words)
    assert line.kind in ("", "script", "module", "code")
    assert bool(line.name) or line.kind in ("", "code") or not re.search(r"\S", line.name)
    shown = name_text(_python_program(words))
    assert shown.isprintable()
    assert len(shown) <= 40
    if line.kind == "code":
        assert not shown, "what somebody has typed is shown to others"


TARGETS = (
    Target(
        "masks",
        check_masks,
        "CUDA_VISIBLE_DEVICES, ROCm's variables, and those of schedulers and launchers",
        _WORDS,
        (
            "\nCUDA_VISIBLE_DEVICES=2,0\nCUDA_DEVICE_ORDER=PCI_BUS_ID",
            "xx\nCUDA_VISIBLE_DEVICES=MIG-41b7,MIG-41b8",
            "xxxxx\nHIP_VISIBLE_DEVICES=1,0\nROCR_VISIBLE_DEVICES=0,1",
            "xxxxxx\nCUDA_VISIBLE_DEVICES=0,1\nHIP_VISIBLE_DEVICES=1",
            "\nSLURM_JOB_GPUS=0,1\nSLURM_JOB_ID=7\nCUDA_VISIBLE_DEVICES=0,1",
            "\nNVIDIA_VISIBLE_DEVICES=0,1\nKUBERNETES_SERVICE_HOST=10.0.0.1",
        ),
    ),
    Target(
        "process-lines",
        check_process_line,
        "the command lines of other users' processes",
        tuple(
            "-c -m -I -X -W --version --check-hash-based-pycs ipykernel_launcher train.py / \\0 - --".split()
        ),
        (
            "-m\0torch.distributed.run\0train.py",
            "/home/m/train.py\0--lr",
            "-Ic\0import secret",
            "-X\0dev\0a.py",
        ),
    ),
)
