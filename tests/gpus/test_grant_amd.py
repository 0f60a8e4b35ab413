"""What Slurm gave of AMD's GPUs: ROCR_VISIBLE_DEVICES and SLURM_JOB_GPUS put together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpu_magic.devices.model import UNKNOWN, Inventory
from gpu_magic.errors import ChoiceError
from gpu_magic.gpus.options import Options
from gpu_magic.gpus.request import parse
from gpu_magic.gpus.select import select
from gpu_magic.process.given import Given, Grant, read_grant
from gpu_magic.process.mask import NAMES, Variables
from gpu_magic.process.visible import read_hip, read_visible
from tests.gpus import machines
from tests.gpus.test_hip import MIXED, amd

SLURM = {"SLURM_JOB_ID": "123", "SLURM_JOB_GPUS": "2,3", "ROCR_VISIBLE_DEVICES": "2,3"}


def host(*places: int, hip: tuple[int, ...] | None = None) -> Inventory:
    """Return a machine whose GPUs have /dev/dri/renderD128 and so on by these places, in rocm-smi's order."""
    order = hip or tuple(range(len(places)))
    return Inventory(
        tuple(
            replace(amd(index, hip_id=order[index]), minor=128 + place) for index, place in enumerate(places)
        )
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
        # A script can narrow, and not widen.
        (ALL, {"SLURM_JOB_ID": "1", "SLURM_JOB_GPUS": "1,3"}, ["GPU 1", "GPU 3"]),
        (ALL, {**SLURM, "HIP_VISIBLE_DEVICES": "1"}, ["GPU 3"]),
        (ALL, {**SLURM, "ROCR_VISIBLE_DEVICES": "3"}, ["GPU 3"]),
        (ALL, {**SLURM, "ROCR_VISIBLE_DEVICES": "3,2,1"}, ["GPU 3", "GPU 2"]),
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
    assert read_hip(variables(both), ALL).devices is UNKNOWN  # HIP sees none, PyTorch counts two
    given = allotment(ALL, **both)
    assert labels(given) == ["GPU 2", "GPU 3"]
    assert given.text == "allotted by Slurm job 123: GPUs 2, 3"
    chosen = select(parse("3"), ALL, variables(both), grant=read_grant(both))
    after = variables(both)._asdict() | {"hip": chosen.variables["HIP_VISIBLE_DEVICES"], "mask": None}
    assert chosen.variables["CUDA_VISIBLE_DEVICES"] is None
    assert read_visible(Variables(**after), ALL).devices == (ALL[3],)


def test_a_list_tells_what_numbers_mean_where_hip_s_are_not_known() -> None:
    there = Inventory(tuple(replace(gpu, hip_id=UNKNOWN) for gpu in ALL))
    given = allotment(there, **{**SLURM, "SLURM_STEP_GPUS": "1,3"})
    assert labels(given) == ["GPU 1", "GPU 3"]


def test_two_sources_that_contradict_each_other_are_not_guessed_between() -> None:
    given = allotment(ALL, **{**SLURM, "ROCR_VISIBLE_DEVICES": "0,1"})
    assert given.text == "allotted by Slurm job 123: GPUs unknown"
    with pytest.raises(ChoiceError, match=r"Slurm job 123 lists other GPUs: 2,3.*--force"):
        _ = given.pool


@pytest.mark.parametrize("name", ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"])
def test_what_is_forced_is_written_by_uuid_and_is_exact_for_a_child(name: str) -> None:
    forced = select(parse("1"), ALL, variables(SLURM), Options(force=True), grant=read_grant(SLURM))
    uuid = forced.variables["HIP_VISIBLE_DEVICES"]
    assert uuid == ALL[1].uuid
    child = {"SLURM_JOB_ID": "123", "SLURM_JOB_GPUS": "2,3", name: str(uuid)}
    given = allotment(ALL, **child)
    assert labels(given) == ["GPU 1"]
    assert given.text == "allotted by Slurm job 123: GPUs 2, 3"


def test_a_list_that_can_mean_two_things_is_not_guessed_without_a_variable() -> None:
    assert allotment(host(2, 3, 0, 1), SLURM_JOB_ID="1", SLURM_JOB_GPUS="0,1").devices is UNKNOWN


def test_where_device_files_are_not_known_the_list_is_not_read() -> None:
    there = Inventory(tuple(replace(gpu, minor=UNKNOWN) for gpu in ALL))
    assert allotment(there, SLURM_JOB_ID="1", SLURM_JOB_GPUS="2").is_all


def test_beside_nvidias_gpus_a_list_is_of_those() -> None:
    nvidia = (replace(machines.gpu(0), minor=0), replace(machines.gpu(1), minor=1))
    amds = (replace(gpu, minor=128 + gpu.index) for gpu in MIXED.gpus[2:])
    there = replace(MIXED, gpus=(*nvidia, *amds))
    given = allotment(there, SLURM_JOB_ID="1", SLURM_JOB_GPUS="1")
    assert labels(given) == ["GPU 1", *(f"AMD GPU {index}" for index in range(4))]
    grant = Grant("Slurm job 1", ("1",), "1")
    assert len(select(parse("amd:all"), there, Variables(), grant=grant).devices) == 4


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
        left = read_hip(Variables(rocr=environment.get("ROCR_VISIBLE_DEVICES")), there).devices
        seen = given.reading.devices
        assert left is UNKNOWN or {one.uuid for one in given.devices} <= {one.uuid for one in left}
        assert (
            seen is UNKNOWN or not seen or {one.uuid for one in given.devices} <= {one.uuid for one in seen}
        )
