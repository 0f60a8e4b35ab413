"""Any line after `%gpus`, any environment: it is refused in one line, or the choice holds as printed."""

from __future__ import annotations

import os
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

import gpu_magic
from gpu_magic.errors import GpuMagicError, SimulationError
from gpu_magic.gpus.request import Auto, Named, Word, parse
from gpu_magic.process.given import read_grant
from gpu_magic.process.mask import NAMES
from gpu_magic.shell.arguments import read
from gpu_magic.testing import Machine, simulate, start_cuda
from tests.inputs import LISTS, LONG, MASKS, OPTIONS, check_line, check_refusal

# Alike, unlike, split by MIG, and none; the second GPU of the last does not answer.
PROFILES = ("5xA100-80GB", "2xRTX-4090+1xT4", "1xA100-80GB(3g.40gb,4g.40gb)+2xT4", "0xT4", "3xT4 lost")
MASK = st.none() | MASKS.filter(lambda mask: "\0" not in mask)


def machine(profile: str) -> Machine:
    name, _, is_lost = profile.partition(" ")
    there = Machine(name, clock=lambda: 0.0)
    for gpu in there.gpus[:1]:
        gpu.run("train.py", "maria", 20 << 30, work=90)
    if is_lost:
        there.gpus[1].lose()
    return there


def seen() -> tuple[object, ...] | None:
    """Return the devices that CUDA has if it starts now; None if that is unknown."""
    try:
        start_cuda()
    except SimulationError:
        return None
    return tuple(getattr(device, "identity", device) for device in gpu_magic.guard().devices)


@given(
    st.sampled_from(PROFILES),
    MASK,
    st.sampled_from([None, "PCI_BUS_ID", "FASTEST_FIRST", "x"]),
    LISTS,
    st.lists(OPTIONS, max_size=3),
)
@example("5xA100-80GB", None, None, "amd:2:1", [])
@example("5xA100-80GB", None, None, "2 --p\x1b.", [])
@example("5xA100-80GB", None, None, "9" * LONG, [f"--min-free {'9' * LONG}"])
@example("5xA100-80GB", "4,2,1", None, "auto:2", ["--growth"])
@example("1xA100-80GB(3g.40gb,4g.40gb)+2xT4", "0:0", None, "0:1,1", ["--force"])
def test_any_line_is_refused_or_chosen_as_it_says(
    profile: str, mask: str | None, order: str | None, devices: str, options: list[str]
) -> None:
    with simulate(machine(profile), mask=mask, order=order):
        within = seen()
    with simulate(machine(profile), mask=mask, order=order):
        before = dict(os.environ)
        try:
            typed = vars(read("%gpus", " ".join([devices, *options])))
            request, _ = typed.pop("request"), typed.pop("wait")
            choice = gpu_magic.choose(request, **typed)
        except GpuMagicError as error:
            check_refusal(error)
            assert dict(os.environ) == before
            return
        for line in str(choice).split("\n"):
            check_line(line)
        if not choice.is_applied:
            assert dict(os.environ) == before
            return
        now = seen()
    asked = parse(request)
    if now is None or asked in (Word.NONE, Word.RESET):
        return
    assert now == tuple(device.identity for device in choice.devices)
    if isinstance(asked, Auto | Named):
        assert len(now) == (asked.count if isinstance(asked, Auto) else len(asked.identifiers))
    if within is not None and not typed["force"]:
        assert set(now) <= set(within), "more was chosen than was given"


@given(
    st.dictionaries(
        st.sampled_from(
            [*NAMES, *"SLURM_JOB_GPUS SLURM_STEP_GPUS SLURM_JOB_ID PBS_JOBID NVIDIA_VISIBLE_DEVICES".split()]
        ),
        MASK.map(str) | st.sampled_from(["PCI_BUS_ID", "FASTEST_FIRST"]),
        max_size=5,
    )
)
@example({"SLURM_JOB_GPUS": "0,7", "SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "1,8"})
@example({"ROCR_VISIBLE_DEVICES": "x,1", "HIP_VISIBLE_DEVICES": ""})
def test_any_environment_is_read(variables: dict[str, str]) -> None:
    """Whatever a scheduler, a container or a shell has set, what was given is one line."""
    giver = read_grant(variables).giver
    if giver:
        check_line(giver)
    for there in (machine("2xT4"), machine("0xT4")):
        with simulate(there), mock.patch.dict(os.environ, variables):
            for line in repr(gpu_magic.gpus()).split("\n"):
                assert line.isprintable()
