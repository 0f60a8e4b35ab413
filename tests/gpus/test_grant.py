"""Who gave a process its GPUs, and which: schedulers and containers, by the environment that it was launched with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_magic.devices.model import UNKNOWN, Gpu
from gpu_magic.errors import ChoiceError
from gpu_magic.gpus.request import parse
from gpu_magic.gpus.select import select
from gpu_magic.process.given import Given, read_grant
from tests.gpus.machines import MIG, UUIDS, gpu, machine, split, unlike

if TYPE_CHECKING:
    from gpu_magic.devices.model import Device, Inventory

SLURM = {"SLURM_JOB_ID": "123", "SLURM_JOB_GPUS": "2,4", "CUDA_VISIBLE_DEVICES": "2,4"}


def host(*minors: int) -> Inventory:
    """Return a machine whose device files /dev/nvidiaN have these numbers, in nvidia-smi's order."""
    return machine(*(gpu(index)._replace(minor=minor) for index, minor in enumerate(minors)))


def allotment(there: Inventory, **environment: str) -> Given:
    mask, order = environment.get("CUDA_VISIBLE_DEVICES"), environment.get("CUDA_DEVICE_ORDER")
    return Given(there, (mask, order), read_grant(environment))


def uuids(devices: tuple[Device, ...]) -> list[str]:
    return [str(device.uuid) for device in devices]


@pytest.mark.parametrize(
    ("environment", "by", "gpus"),
    [
        (SLURM, "Slurm job 123", ("2", "4")),
        ({**SLURM, "SLURM_STEP_GPUS": "4"}, "Slurm job 123", ("4",)),
        ({**SLURM, "SLURM_JOB_GPUS": UUIDS[1]}, "Slurm job 123", (UUIDS[1],)),
        ({"SLURM_JOB_ID": "123", "CUDA_VISIBLE_DEVICES": UUIDS[1]}, "Slurm job 123", None),
        ({"SLURM_JOBID": "5", "SLURM_JOB_GPUS": "0"}, "Slurm job 5", ("0",)),
        ({"SLURM_JOB_GPUS": "0"}, "Slurm", ("0",)),
        ({"SLURM_JOB_ID": "1", "SLURM_JOB_GPUS": "what?", "CUDA_VISIBLE_DEVICES": "0"}, "Slurm job 1", None),
        ({"SLURM_JOB_ID": "123"}, "", None),  # salloc's shell on a login node
        ({"LSB_JOBID": "7", "CUDA_VISIBLE_DEVICES": "1"}, "LSF job 7", None),
        ({"LSB_JOBID": "7"}, "", None),
        ({"PBS_JOBID": "8.host", "CUDA_VISIBLE_DEVICES": "1"}, "PBS job 8.host", None),
        ({"NVIDIA_VISIBLE_DEVICES": UUIDS[0]}, "the container", (UUIDS[0],)),
        ({"NVIDIA_VISIBLE_DEVICES": MIG[0]}, "the container", (MIG[0],)),
        ({"NVIDIA_VISIBLE_DEVICES": "2,5"}, "the container", None),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, "", None),  # what CUDA's base images set, wherever they run
        ({"NVIDIA_VISIBLE_DEVICES": "none"}, "", None),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, "", None),
        ({"NVIDIA_VISIBLE_DEVICES": "void", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "Kubernetes", None),
        ({"NVIDIA_VISIBLE_DEVICES": UUIDS[0], "KUBERNETES_SERVICE_HOST": "::1"}, "Kubernetes", (UUIDS[0],)),
        ({"NVIDIA_VISIBLE_DEVICES": "all", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "", None),
        ({**SLURM, "NVIDIA_VISIBLE_DEVICES": "void"}, "Slurm job 123", ("2", "4")),
        ({"CUDA_VISIBLE_DEVICES": "0"}, "", None),
    ],
)
def test_the_environment_says_who_gave_what(
    environment: dict[str, str], by: str, gpus: tuple[str, ...] | None
) -> None:
    grant = read_grant(environment)
    assert (grant.giver, grant.gpus) == (by, gpus)


@given(st.dictionaries(st.sampled_from([*SLURM, "NVIDIA_VISIBLE_DEVICES", "PBS_JOBID"]), st.text()))
def test_what_an_environment_holds_can_be_anything(environment: dict[str, str]) -> None:
    there = host(0, 1, 2)
    shown = Given(there, (environment.get("CUDA_VISIBLE_DEVICES"), None), read_grant(environment)).text
    assert shown == "" or shown.startswith("allotted by ")
    assert shown.isprintable()
    assert len(shown) < 200


def test_the_job_and_its_gpus_are_named_and_chosen_from() -> None:
    there, grant = host(0, 1, 2, 3, 4), read_grant(SLURM)
    assert allotment(there, **SLURM).text == "allotted by Slurm job 123: GPUs 2, 4"
    for text in "all", "auto:2":
        assert select(parse(text), there, ("2,4", None), grant=grant).mask == "2,4"
    with pytest.raises(ChoiceError) as refused:
        select(parse("3"), there, ("2,4", None), grant=grant)
    assert str(refused.value) == (
        "GPU 3 is not among the GPUs that Slurm job 123 allotted to this process (GPUs 2, 4). --force overrides this."
    )


CONTAINER = "NVIDIA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("there", "environment", "has", "text"),
    [
        # A script has removed the variable; Slurm without cgroups: every GPU of the host can be seen.
        (host(0, 1, 2, 3, 4), {"SLURM_JOB_ID": "1", "SLURM_JOB_GPUS": "2,4"}, [2, 4], "Slurm job 1: GPUs 2, 4"),
        # The same numbers in both are those that CUDA reads; with Slurm 25.11 they are UUIDs in one of them.
        (host(2, 3, 0, 1), SLURM | {"SLURM_JOB_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "0,1"}, [0, 1], "GPUs 0, 1"),
        (host(0, 1, 2, 3, 4), SLURM | {"CUDA_VISIBLE_DEVICES": f"{UUIDS[2]},{UUIDS[4]}"}, [2, 4], "GPUs 2, 4"),
        # A privileged container sees every GPU of the host; outside of one nothing reads its variable.
        (host(0, 1, 2), {CONTAINER: UUIDS[1]}, [1], "the container: GPU 1"),
        (host(2, 5), {CONTAINER: "2,5"}, [0, 1], "the container: GPUs 0, 1"),
        (host(0, 1, 2), {CONTAINER: "2"}, [0, 1, 2], ""),
        (host(0, 1, 2), {}, [0, 1, 2], ""),
    ],
)  # fmt: skip
def test_what_a_process_has_and_who_gave_it(
    there: Inventory, environment: dict[str, str], has: list[int], text: str
) -> None:
    given = allotment(there, **environment)
    assert [device.label for device in given.pool] == [f"GPU {number}" for number in has]
    assert given.text.endswith(text)
    assert bool(given.text) == bool(text)


def test_several_mig_instances_can_be_given() -> None:
    given = allotment(machine(split(gpu(0)), gpu(1)), SLURM_JOB_ID="9", CUDA_VISIBLE_DEVICES=",".join(MIG))
    assert uuids(given.pool) == list(MIG)


def test_where_cgroups_hide_the_rest_all_that_is_there_was_given() -> None:
    """The mask counts from 0 among what the process can see; SLURM_JOB_GPUS has the host's numbers."""
    given = allotment(host(2, 4), **{**SLURM, "CUDA_VISIBLE_DEVICES": "0,1"})
    assert given.is_all
    assert given.text == "allotted by Slurm job 123: GPUs 0, 1"


def test_device_files_tell_unlike_gpus_apart_where_the_mask_counts_from_0() -> None:
    """A step's task has one of two unlike GPUs: which, CUDA_VISIBLE_DEVICES=0 alone does not say."""
    there = unlike()
    there = machine(*(one._replace(minor=minor) for one, minor in zip(there, (1, 2, 5), strict=True)))
    step = {"SLURM_JOB_ID": "1", "SLURM_STEP_GPUS": "5", "CUDA_VISIBLE_DEVICES": "0"}
    assert allotment(there, **step).pool == (there[2],)
    assert allotment(there, **step | {"SLURM_STEP_GPUS": "2,5"}).devices is UNKNOWN


def test_a_mask_that_a_script_has_narrowed_is_kept() -> None:
    given = allotment(host(0, 1, 2, 3, 4), **{**SLURM, "CUDA_VISIBLE_DEVICES": "4"})
    assert [device.label for device in given.pool] == ["GPU 4"]
    assert given.text == "allotted by Slurm job 123: GPUs 2, 4"
    assert "it was started with CUDA_VISIBLE_DEVICES=4" in given.why_not(gpu(2))
    assert "not among the GPUs that Slurm job 123 allotted" in given.why_not(gpu(0))


@pytest.mark.parametrize(
    ("there", "environment", "warning"),
    [
        (
            host(0, 1, 2, 3, 4),
            SLURM | {"CUDA_VISIBLE_DEVICES": "0,1"},
            "Slurm job 123 allotted GPUs 2, 4, but this process was started with CUDA_VISIBLE_DEVICES=0,1 "
            "(GPU 0, GPU 1). Other jobs may use GPUs that were not allotted.",
        ),
        (host(0, 1, 2, 3, 4), SLURM | {"CUDA_VISIBLE_DEVICES": "4,3"}, "(GPU 4, GPU 3)"),
        (host(0, 1, 2, 3, 4), SLURM | {"CUDA_VISIBLE_DEVICES": UUIDS[3]}, "(GPU 3)"),
        (host(0, 1, 2, 3, 4), SLURM | {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4"}, "allotted GPUs 2, 4, but"),
        (host(0, 1), {CONTAINER: UUIDS[1], "CUDA_VISIBLE_DEVICES": "0"}, "The container allotted GPU 1, but"),
    ],
)
def test_the_variable_counts_if_it_contradicts_the_list_and_a_note_warns(
    there: Inventory, environment: dict[str, str], warning: str
) -> None:
    given = allotment(there, **environment)
    assert given.pool == allotment(there, CUDA_VISIBLE_DEVICES=environment["CUDA_VISIBLE_DEVICES"]).pool
    assert warning in str(given.contradiction)
    chosen = select(
        parse("auto"), there, (environment["CUDA_VISIBLE_DEVICES"], None), grant=read_grant(environment)
    )
    assert str(given.contradiction) in chosen.notes


@pytest.mark.parametrize(
    ("there", "environment"),
    [
        (host(0, 1, 2, 3, 4), SLURM),
        (host(0, 1, 2, 3, 4), SLURM | {"CUDA_VISIBLE_DEVICES": "4"}),
        (host(0, 1, 2, 3, 4), SLURM | {"CUDA_VISIBLE_DEVICES": ""}),
        (host(2, 4), SLURM | {"CUDA_VISIBLE_DEVICES": "0,1"}),  # cgroups
        (host(2), SLURM | {"CUDA_VISIBLE_DEVICES": "0"}),  # a step with one of them
        # CUDA counts the device files in another order.
        (host(4, 3, 2, 1, 0), SLURM | {"CUDA_VISIBLE_DEVICES": "4"}),
        (host(2, 4), {"SLURM_JOB_GPUS": "2,4"}),
        (host(0, 1), {"CUDA_VISIBLE_DEVICES": "1"}),
    ],
)
def test_what_agrees_gets_no_warning(there: Inventory, environment: dict[str, str]) -> None:
    assert allotment(there, **environment).contradiction is None


@pytest.mark.parametrize(("mask", "gpus"), [("2", ["GPU 2"]), ("0", ["GPU 0"]), ("", [])])
def test_beside_such_a_list_a_narrower_mask_is_kept(mask: str, gpus: list[str]) -> None:
    """As a task of a step has it, or what a kernel that has chosen starts."""
    environment = {"SLURM_JOB_ID": "1", "SLURM_STEP_GPUS": "0,2", "CUDA_VISIBLE_DEVICES": mask}
    assert [device.label for device in allotment(host(1, 0, 2, 3), **environment).pool] == gpus


_MINORS = st.permutations(range(5)).flatmap(lambda order: st.integers(1, 5).map(lambda size: order[:size]))
_LISTS = st.lists(st.integers(0, 5), min_size=1, max_size=5, unique=True)


@given(_MINORS, st.none() | _LISTS, _LISTS)
def test_nothing_is_ever_given_that_the_launch_value_does_not_name(
    minors: list[int], listed: list[int] | None, mask: list[int]
) -> None:
    environment = {"SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": ",".join(map(str, mask))}
    if listed is not None:
        environment["SLURM_JOB_GPUS"] = ",".join(map(str, listed))
    given = allotment(host(*minors), **environment)
    there = given.reading.devices
    assert given.devices is not UNKNOWN
    assert there is not UNKNOWN
    # But for numbers of the host: then the list names the same, and CUDA fewer GPUs.
    if listed == mask and len(there) < len(mask) and set(mask) <= set(minors):
        assert {gpu.minor for gpu in given.devices if isinstance(gpu, Gpu)} == set(mask)
    else:
        assert set(uuids(given.devices)) == set(uuids(there))


@pytest.mark.parametrize(
    ("minors", "value", "expected"),
    [
        ((2,), "2", [0]),
        ((2, 5), "2,5", [0, 1]),
        ((5, 2), "2,5", [0, 1]),  # nvidia-smi's order is another one than that of the device files
        ((2, 5, 7), "2,5", [0, 1]),  # CUDA reads GPU 2, which is not the job's
        ((0, 1, 2, 3, 4), "2,4", [2, 4]),  # the whole host is seen
    ],
)
def test_in_a_container_the_host_s_numbers_are_those_of_device_files(
    minors: tuple[int, ...], value: str, expected: list[int]
) -> None:
    there = host(*minors)
    found = allotment(there, SLURM_JOB_ID="123", SLURM_JOB_GPUS=value, CUDA_VISIBLE_DEVICES=value)
    assert [gpu.index for gpu in found.pool] == expected
    assert (found.host_numbers is not None) == (expected != [2, 4])
    assert found.contradiction is None
    assert found.outside(found.pool) == ()


def test_numbers_that_no_device_file_here_has_are_not_guessed() -> None:
    there = host(0)
    found = allotment(there, SLURM_JOB_ID="123", SLURM_JOB_GPUS="2", CUDA_VISIBLE_DEVICES="2")
    assert (found.pool, found.host_numbers) == ((), None)


def job(numbers: str, mask: str | None = None) -> dict[str, str]:
    found = {"SLURM_JOB_ID": "123", "SLURM_JOB_GPUS": numbers}
    return found if mask is None else {**found, "CUDA_VISIBLE_DEVICES": mask}


HALVES = machine(split(gpu(0)._replace(minor=2)))  # a container with the instances of one GPU
HALF = machine(split(gpu(0)._replace(minor=2))._replace(mig=split(gpu(0)).mig[:1]))


@pytest.mark.parametrize(
    ("there", "environment", "expected"),
    [
        # Slurm 25.11: UUIDs, beside numbers of device files.
        (host(2), job("2", UUIDS[0]), ["0"]),
        (host(2, 5), job("2,5", f"{UUIDS[0]},{UUIDS[1]}"), ["0", "1"]),
        (host(2, 5), job("2,5", f"{UUIDS[1]},{UUIDS[0]}"), ["1", "0"]),
        (host(0, 1, 2), job("1", UUIDS[1]), ["1"]),
        (host(2), job(UUIDS[0], UUIDS[0]), ["0"]),
        (host(2), job("2", UUIDS[0][:12]), ["0"]),
        # Instances, beside the number of their GPU, or of Slurm's own for instances.
        (HALF, job("2", MIG[0]), ["0:0"]),
        (HALVES, job("2", MIG[1]), ["0:1"]),
        (HALVES, job("2", f"{MIG[0]},{MIG[1]}"), ["0:0", "0:1"]),
        (HALVES, job("0,1", f"{MIG[0]},{MIG[1]}"), ["0:0", "0:1"]),
        (machine(gpu(0)._replace(minor=0), split(gpu(1)._replace(minor=1))), job("0", MIG[1]), ["1:1"]),
        (HALVES, job("2", f"MIG-{UUIDS[0]}/2/0"), ["0:1"]),
        (HALVES, job(MIG[1], MIG[1]), ["0:1"]),
        (HALVES, job(MIG[1]), ["0:1"]),
        # The GPU is named, and only its instances can be used.
        (HALVES, job("2"), ["0:0", "0:1"]),
        (HALVES, job("2", "2"), ["0:0", "0:1"]),
        (HALVES, job("2", UUIDS[0]), ["0:0", "0:1"]),
        (HALVES, {"CUDA_VISIBLE_DEVICES": UUIDS[0]}, ["0:0", "0:1"]),
        (
            machine(gpu(0)._replace(minor=2), split(gpu(1)._replace(minor=5))),
            job("2,5", "2,5"),
            ["0", "1:0", "1:1"],
        ),
    ],
)
def test_what_a_job_has_of_uuids_and_of_mig(
    there: Inventory, environment: dict[str, str], expected: list[str]
) -> None:
    found = allotment(there, **environment)
    assert [device.number_text for device in found.pool] == expected
    assert found.contradiction is None
    if "SLURM_JOB_ID" in environment:
        assert (
            found.text
            == f"allotted by Slurm job 123: GPU{'s' * (len(expected) > 1)} {', '.join(sorted(expected))}"
        )
    inherited = environment.get("CUDA_VISIBLE_DEVICES"), None
    for text in expected:
        chosen = select(parse(text), there, inherited, grant=read_grant(environment))
        assert [device.number_text for device in chosen.known] == [text]
        assert chosen.notes == ()


@pytest.mark.parametrize(("there", "works"), [(HALF, "all"), (HALVES, "auto"), (host(2), "all")])
def test_the_advice_about_numbers_of_the_host_works(there: Inventory, works: str) -> None:
    environment = job("2", "2")
    note = str(allotment(there, **environment).host_numbers)
    assert note.endswith(f"To use them: %gpus {works}")


def test_why_a_split_gpu_cannot_be_chosen_names_only_instances_that_were_given() -> None:
    (whole,) = HALVES
    assert allotment(HALVES).why_not(whole).endswith("as a whole. Try 0:0 or 0:1")
    assert allotment(HALVES, CUDA_VISIBLE_DEVICES=MIG[1]).why_not(whole).endswith("as a whole. Try 0:1")
    there = machine(whole, gpu(1))
    assert allotment(there, CUDA_VISIBLE_DEVICES=UUIDS[1]).why_not(whole).endswith("as a whole.")
