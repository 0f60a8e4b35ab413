"""What Slurm gave of AMD's GPUs: ROCR_VISIBLE_DEVICES and SLURM_JOB_GPUS put together."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpu_magic.devices.model import UNKNOWN, Inventory
from gpu_magic.errors import ChoiceError
from gpu_magic.gpus.request import parse
from gpu_magic.gpus.select import select
from gpu_magic.process.given import Given, read_grant
from gpu_magic.process.mask import NAMES, Variables
from gpu_magic.process.visible import read_visible
from tests.gpus.test_hip import amd, of_amd

SLURM = {"SLURM_JOB_ID": "123", "SLURM_JOB_GPUS": "2,3", "ROCR_VISIBLE_DEVICES": "2,3"}


def host(*places: int, hip: tuple[int, ...] | None = None) -> Inventory:
    """Return a machine whose GPUs have /dev/dri/renderD128 and so on by these places, in rocm-smi's order."""
    order = hip or tuple(range(len(places)))
    return of_amd(
        *(amd(index, hip_id=order[index])._replace(minor=128 + place) for index, place in enumerate(places))
    )


ALL = host(0, 1, 2, 3)


def variables(environment: dict[str, str]) -> Variables:
    return Variables(*map(environment.get, NAMES))


def allotment(there: Inventory, **environment: str) -> Given:
    return Given(there, variables(environment), read_grant(environment))


def labels(given: Given) -> list[str]:
    return [device.label for device in given.pool]


@pytest.mark.parametrize(
    ("there", "environment", "has"),
    [
        (host(2, 5), {"SLURM_JOB_ID": "1", "SLURM_STEP_GPUS": "5"}, ["GPU 1"]),  # one of what can be seen
        (ALL, {"SLURM_JOB_ID": "9", "SLURM_JOB_GPUS": "129,131"}, ["GPU 1", "GPU 3"]),  # by device files
        # A script has removed the variable, or narrowed it.
        (ALL, {"SLURM_JOB_ID": "1", "SLURM_JOB_GPUS": "1,3"}, ["GPU 1", "GPU 3"]),
        (ALL, {**SLURM, "HIP_VISIBLE_DEVICES": "1"}, ["GPU 3"]),
        (ALL, {**SLURM, "ROCR_VISIBLE_DEVICES": "3"}, ["GPU 3"]),
    ],
)
def test_what_slurm_gave_and_a_script_has_left(
    there: Inventory, environment: dict[str, str], has: list[str]
) -> None:
    assert labels(allotment(there, **environment)) == has


def test_it_says_the_job_and_refuses_others_by_rocm_smi_s_numbers() -> None:
    given = allotment(ALL, **SLURM)
    assert given.text == "allotted by Slurm job 123: GPUs 2, 3"
    with pytest.raises(ChoiceError) as refused:
        select(parse("1"), ALL, variables(SLURM), grant=read_grant(SLURM))
    assert str(refused.value) == (
        "GPU 1 is not among the GPUs that Slurm job 123 allotted to this process (GPUs 2, 3). --force overrides this."
    )


def test_where_cgroups_hide_the_rest_all_that_is_there_was_given() -> None:
    """ROCR_VISIBLE_DEVICES counts from 0 among what the process can see; SLURM_JOB_GPUS has the host's places."""
    given = allotment(host(2, 5), **{**SLURM, "SLURM_JOB_GPUS": "2,5", "ROCR_VISIBLE_DEVICES": "0,1"})
    assert given.is_all
    assert given.text == "allotted by Slurm job 123: GPUs 0, 1"


def test_the_same_numbers_in_both_are_those_that_rocm_reads() -> None:
    """ROCm counts the first two the other way round."""
    there = host(0, 1, 2, 3, hip=(1, 0, 2, 3))
    given = allotment(there, **{**SLURM, "SLURM_JOB_GPUS": "0", "ROCR_VISIBLE_DEVICES": "0"})
    assert labels(given) == ["GPU 1"]


def test_what_slurm_has_written_into_both_variables_is_not_filtered_twice() -> None:
    """So it does where gres.conf does not say that the GPUs are AMD's: HIP then sees none, and none was chosen."""
    both = {**SLURM, "CUDA_VISIBLE_DEVICES": "2,3"}
    assert read_visible(variables(both), ALL).devices == ()
    given = allotment(ALL, **both)
    assert labels(given) == ["GPU 2", "GPU 3"]
    assert given.text == "allotted by Slurm job 123: GPUs 2, 3"
    chosen = select(parse("3"), ALL, variables(both), grant=read_grant(both))
    after = variables(both)._asdict() | {"hip": chosen.variables["HIP_VISIBLE_DEVICES"], "mask": None}
    assert chosen.variables["CUDA_VISIBLE_DEVICES"] is None
    assert read_visible(Variables(**after), ALL).devices == (ALL[3],)


def test_a_list_tells_what_numbers_mean_where_hip_s_are_not_known() -> None:
    there = of_amd(*(gpu._replace(hip_id=UNKNOWN) for gpu in ALL))
    given = allotment(there, **{**SLURM, "SLURM_STEP_GPUS": "1,3"})
    assert labels(given) == ["GPU 1", "GPU 3"]


def test_the_variable_counts_if_it_contradicts_the_list_and_a_note_warns() -> None:
    given = allotment(ALL, **{**SLURM, "ROCR_VISIBLE_DEVICES": "0,1"})
    assert labels(given) == ["GPU 0", "GPU 1"]
    assert "allotted GPUs 2, 3, but this process was started with ROCR_VISIBLE_DEVICES=0,1" in str(
        given.contradiction
    )


def test_where_device_files_are_not_known_the_list_is_not_read() -> None:
    there = of_amd(*(gpu._replace(minor=UNKNOWN) for gpu in ALL))
    assert allotment(there, SLURM_JOB_ID="1", SLURM_JOB_GPUS="2").is_all


_NUMBERS = st.none() | st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True)


@given(st.permutations(range(5)).map(lambda order: order[:4]), *[_NUMBERS] * 4)
@example(places=[0, 1, 2, 3], listed=[0, 1], rocr=[0], hip=None, mask=[1, 0])
def test_nothing_is_ever_allotted_that_the_runtime_does_not_leave(
    places: list[int],
    listed: list[int] | None,
    rocr: list[int] | None,
    hip: list[int] | None,
    mask: list[int] | None,
) -> None:
    values = {"SLURM_JOB_GPUS": listed, "ROCR_VISIBLE_DEVICES": rocr}
    values |= {"HIP_VISIBLE_DEVICES": hip, "CUDA_VISIBLE_DEVICES": mask}
    environment = {name: ",".join(map(str, value)) for name, value in values.items() if value is not None}
    there = host(*places)
    given = allotment(there, SLURM_JOB_ID="1", **environment)
    if given.devices is not UNKNOWN:
        left = read_visible(Variables(rocr=environment.get("ROCR_VISIBLE_DEVICES")), there).devices
        seen = given.reading.devices
        assert left is UNKNOWN or {one.uuid for one in given.devices} <= {one.uuid for one in left}
        assert (
            seen is UNKNOWN or not seen or {one.uuid for one in given.devices} <= {one.uuid for one in seen}
        )
