"""Engines over MIG instances: each has exactly one instance, or one whole GPU, and no two have the same."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_magic
from gpu_magic.cluster.cluster import Engine
from gpu_magic.cluster.join import divide
from gpu_magic.cluster.launchers import claim_gpus
from gpu_magic.devices.model import Device, Gpu, MigInstance
from gpu_magic.errors import ChoiceError, LaunchError
from gpu_magic.process.mask import read
from gpu_magic.process.session import current
from gpu_magic.process.view import read_machine
from gpu_magic.testing import simulate

SEVEN = f"1xA100-80GB({','.join(['1g.10gb'] * 7)})"
BESIDE = "1xA100-80GB+1xA100-80GB(3g.40gb,4g.40gb)"
TWO = "2xA100-80GB(3g.40gb,4g.40gb)"


def labels(gpus: str | None, count: int | None = None, *, force: bool = False) -> list[str]:
    """Return what each engine would see, as CUDA reads its variables."""
    selections, claims = claim_gpus(gpus, count, force=force)
    claims.release()
    machine, seen = read_machine(current()), []
    for selection in selections:
        devices = read(selection.mask, machine, selection.variables["CUDA_DEVICE_ORDER"]).devices
        assert isinstance(devices, tuple)
        assert [device.identity for device in devices] == [device.identity for device in selection.known]
        seen += [device.number_text for device in devices]
    assert len(seen) == len(set(seen)) == len(selections)
    return seen


@pytest.mark.parametrize(
    ("profile", "gpus", "count", "seen"),
    [
        (SEVEN, None, None, [f"0:{number}" for number in range(7)]),
        (SEVEN, None, 2, ["0:0", "0:1"]),
        (SEVEN, "0:4,0:1", None, ["0:4", "0:1"]),
        (SEVEN, "0:4,0:1,0:2", 2, ["0:4", "0:1"]),
        (SEVEN, "auto:3", None, ["0:0", "0:1", "0:2"]),
        (SEVEN, "auto", None, ["0:0"]),
        (SEVEN, "reset", None, []),
        (BESIDE, None, None, ["0", "1:0", "1:1"]),
        (BESIDE, "all", None, ["0", "1:0", "1:1"]),
        (BESIDE, "1:1,0", None, ["1:1", "0"]),
        (BESIDE, "auto:2", None, ["0", "1:0"]),
        (BESIDE, "auto", None, ["0"]),
        (TWO, "all", 3, ["0:0", "0:1", "1:0"]),
    ],
)
def test_each_engine_sees_one_device(
    profile: str, gpus: str | None, count: int | None, seen: list[str]
) -> None:
    with simulate(profile):
        if seen:
            assert labels(gpus, count) == seen
        else:
            with pytest.raises(LaunchError, match="Which GPUs these are is unknown"):
                labels(gpus, count)


@pytest.mark.parametrize("typed", ["1", "0", "1:2", "auto:4", "0,0", "1:0,1:0"])
def test_no_engine_has_a_split_gpu_or_a_device_twice_or_one_that_is_not_there(typed: str) -> None:
    profile = BESIDE if typed != "0" else SEVEN
    for force in False, True:
        with simulate(profile), pytest.raises(ChoiceError):
            labels(typed, force=force)


@pytest.mark.parametrize("cuda", [12040, 13000])
def test_engines_have_the_instances_that_the_process_was_given(cuda: int) -> None:
    with simulate(SEVEN) as machine:
        uuids = [instance.uuid for instance in machine.gpus[0].mig]
    with simulate(SEVEN, mask=f"{uuids[5]},{uuids[2]}", cuda=cuda):
        assert labels(None) == ["0:5", "0:2"]
        assert labels("all") == ["0:5", "0:2"]
        assert sorted(labels("auto:2")) == ["0:2", "0:5"]
        assert labels("0:0", force=True) == ["0:0"]
        with pytest.raises(ChoiceError, match="MIG instance 0:0 was not given"):
            labels("0:0,0:5")
        gpu_magic.choose("0:2")
        assert labels(None) == ["0:2"]


def test_one_process_can_have_fewer_gpus_than_several() -> None:
    with simulate(BESIDE), pytest.raises(ChoiceError) as refused:
        gpu_magic.launch("true", gpus="auto:3")
    says = "auto:3 can pick only 1 GPU. For a process on each MIG instance, add --each. Try auto:1"
    assert str(refused.value) == says


def test_engines_have_the_instances_of_a_gpu_that_the_variable_names() -> None:
    with simulate(TWO) as machine:
        uuid = machine.gpus[1].uuid
    for mask in uuid, "0,1":  # numbers that name all GPUs
        with simulate(TWO, mask=mask):
            assert labels(None) == (["1:0", "1:1"] if mask == uuid else ["0:0", "0:1", "1:0", "1:1"])
    with (
        simulate(TWO, mask="1"),
        pytest.raises(ChoiceError, match="Which GPUs this process was given is unknown"),
    ):
        labels(None)
    with simulate(TWO, mask="1"):
        assert len(labels(None, force=True)) == 4  # as that refusal says


def test_a_launch_for_each_gpu_has_instances_too_and_one_process_has_not() -> None:
    with simulate(SEVEN):
        task = gpu_magic.launch(["printenv", "CUDA_VISIBLE_DEVICES"], gpus="0:6,0:0", each=True)
        task.wait()
        uuids = [str(device.uuid) for device in task.devices]
        assert len(set(uuids)) == 2
        assert sorted(re.findall(r"MIG-\S+", task.output)) == sorted(uuids)
        for gpus in "0:6,0:0", "all", "auto:2":
            with pytest.raises(
                ChoiceError, match=r"For a process on each MIG instance, add --each\. Try (0:6|0:0|auto)$"
            ):
                gpu_magic.launch("true", gpus=gpus)


@given(
    whole=st.integers(0, 4),
    instances=st.integers(0, 7),
    count=st.integers(1, 12),
)
def test_joined_engines_get_instances_only_if_whole_gpus_do_not_suffice(
    whole: int, instances: int, count: int
) -> None:
    devices: tuple[Device, ...] = (
        *(MigInstance(f"MIG-{number}", "1g.10gb", 0, number) for number in range(instances)),
        *(Gpu(number, uuid=f"GPU-{number}") for number in range(1, whole + 1)),
    )
    engines = [Engine(number, devices, "a") for number in range(count)]
    if len(devices) < count:
        with pytest.raises(gpu_magic.ClusterError, match=f"only {len(devices)} GPU"):
            divide(engines)
        return
    shares = [engine.devices for engine in divide(engines)]
    given_out = [device for share in shares for device in share]
    assert len(given_out) == len(set(given_out))
    if whole >= count:
        assert given_out == list(devices[instances:])
    else:
        assert all(len(share) == 1 for share in shares)
