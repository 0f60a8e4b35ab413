"""Our reading of CUDA_VISIBLE_DEVICES against PyTorch's own, and the sentences that explain a bad one."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest import mock

import pytest
import torch.cuda
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gpu_magic.devices.model import UNKNOWN, Gpu
from gpu_magic.process.mask import read, write
from tests.gpus.machines import MIG, UUIDS, gpu, lost, machine, split, unlike

if TYPE_CHECKING:
    from gpu_magic.devices.model import Inventory

_PLAIN = st.characters(min_codepoint=32, max_codepoint=126)
_ENTRIES = st.one_of(
    st.integers(-3, 9).map(str),
    st.sampled_from(
        ["", " 1", "1 ", "+2", "1gpu2", "2ampere", "0;1", "0 1", '"0', "all", "none", "NoDevFiles"]
    ),
    st.builds(lambda uuid, end: uuid[:end], st.sampled_from(UUIDS), st.integers(1, 40)),
    st.sampled_from(UUIDS).map(str.lower),
    st.text(_PLAIN, max_size=6),
)
MASKS = st.lists(_ENTRIES, max_size=6).map(",".join) | st.text(_PLAIN, max_size=20)


def with_cuda(version: str, *gpus: Gpu) -> Inventory:
    return replace(machine(*gpus), cuda_version=version)


def torch_sees(mask: str, uuids: tuple[str, ...]) -> list[int]:
    """Return what PyTorch's parser makes of it: `torch.cuda._device_count_nvml`, with the list kept."""
    with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": mask}):
        visible = torch.cuda._parse_visible_devices()
    if visible and isinstance(visible[0], str):
        return torch.cuda._transform_uuid_to_ordinals(visible, list(uuids))
    end = next((index for index, number in enumerate(visible) if number >= len(uuids)), len(visible))
    return visible[:end]


@given(mask=MASKS, count=st.integers(1, 5))
@example("0,2,-1,1", 5)
@example("0,0", 5)
@example("0,9,0", 5)
@example("1gpu2,2ampere", 5)
@example('"0,1"', 5)
@example("GPU-8f3a,GPU-8f3a0", 5)
@example("GPU-c0ffee,0", 5)
@example("GPU-1a,GPU-zz,GPU-1a", 5)
@example("1,GPU-1a", 5)
@example("gpu-1a2b3c4d-0000-4000-8000-000000000000", 5)
def test_we_read_a_mask_as_pytorch_does(mask: str, count: int) -> None:
    assume(not mask.startswith("MIG-"))  # PyTorch leaves these to the driver
    try:
        theirs = torch_sees(mask, UUIDS[:count])
    except ValueError:  # int("+"): PyTorch's slip
        assume(False)
    ours = read(mask, machine(*(gpu(index) for index in range(count)))).devices
    assert ours is not UNKNOWN
    assert [device.index for device in ours if isinstance(device, Gpu)] == theirs


@given(st.lists(st.integers(0, 4), max_size=5, unique=True), st.booleans())
def test_what_we_write_reads_back_as_itself(numbers: list[int], by_uuid: bool) -> None:
    there = machine()
    devices = tuple(there[number] for number in numbers)
    mask = write(devices, by_uuid=by_uuid)
    assert read(mask, there, "PCI_BUS_ID").devices == devices
    assert torch_sees(mask, UUIDS) == numbers


@given(mask=MASKS)
def test_a_mask_that_is_cut_short_is_explained(mask: str) -> None:
    reading = read(mask, machine())
    assert reading.devices is not UNKNOWN
    entries = [entry for entry in mask.split(",") if entry.strip()]
    if len(reading.devices) < len(entries) and mask.strip() not in ("-1", "none", "NoDevFiles", "void"):
        assert reading.notes
    assert all("\n" not in str(note) for note in reading.notes)


@pytest.mark.parametrize(
    ("mask", "sees", "says"),
    [
        (None, [0, 1, 2, 3, 4], ""),
        ("", [], ""),
        ("-1", [], ""),
        ("3,1", [3, 1], ""),
        ('"0,1"', [], "The quotes"),
        ('0,"1"', [0], "The quotes"),
        ("0,0", [], "twice"),
        ("0,2,-1,1", [0, 2], "Entry 3"),
        ("0,9,1", [0], "not a GPU of this machine (it has 5)"),
        ("0,,1", [0], "is empty"),
        ("all", [], "is not a number"),
        ("0,-1,1", [0], "names no GPU"),
        ("0;1", [0], "only the number at the start"),
        ("GPU-8f3", [], "matches 2 GPUs"),
        ("GPU-8f3a,GPU-zz", [1], "matches no GPU"),
        ("GPU-8f3a,GPU-8f3a0", [], "twice"),
        ("GPU-8f3a,1", [1], "is not a GPU's UUID"),
    ],
)
def test_a_mask_and_what_is_said_of_it(mask: str | None, sees: list[int], says: str) -> None:
    reading = read(mask, machine())
    assert reading.devices is not UNKNOWN
    assert [device.index for device in reading.devices if isinstance(device, Gpu)] == sees
    assert says in " ".join(map(str, reading.notes)) if says else not reading.notes


@pytest.mark.parametrize("end", ["\n\x1b[31mGPU 0 is free", "f" * 5000, "\N{RIGHT-TO-LEFT OVERRIDE}1,2"])
@pytest.mark.parametrize("entry", ["GPU-8f3a", "GPU-zz", "MIG-8f3a", "0", "x", ""])
def test_an_entry_is_shown_in_one_line_and_cut(entry: str, end: str) -> None:
    for mask in (f"{entry}{end}", f"{entry}{end},{entry}{end}", f"0,{entry}{end}", f'"{entry}{end}"'):
        for note in map(str, read(mask, machine()).notes):
            assert note.isprintable()
            assert len(note) < 500


@pytest.mark.parametrize("mask", [None, "0", "2,1"])
def test_numbers_on_unlike_gpus_can_not_be_told_without_an_order(mask: str | None) -> None:
    assert read(mask, unlike()).devices is UNKNOWN
    assert read(mask, unlike(), "FASTEST_FIRST").devices is UNKNOWN
    assert "which GPU is cuda:0 is unknown" in str(read(mask, unlike()).notes[-1])
    assert read(mask, unlike(), "PCI_BUS_ID").devices is not UNKNOWN
    assert read("GPU-8f3b", unlike()).devices == (unlike()[2],)  # a UUID can be told
    (note,) = map(str, read(mask, unlike(), "\x1b[31m" * 9).notes)
    assert note.isprintable()
    assert "CUDA_DEVICE_ORDER is \ufffd[31m" in note


@pytest.mark.parametrize(
    ("mask", "sees"),
    [("MIG-41b7", MIG[0]), (f"{MIG[1]},{MIG[0]}", MIG[1]), ("MIG-41b", None), ("MIG-0", None)],
)
def test_a_mig_mask_is_one_instance(mask: str, sees: str | None) -> None:
    there = with_cuda("12.4", split(gpu(0)), gpu(1))
    devices = read(mask, there).devices
    assert devices is not UNKNOWN
    assert [device.uuid for device in devices] == ([sees] if sees else [])


@pytest.mark.parametrize("mask", [None, "1", "GPU-1a2b"])
def test_what_cuda_makes_of_a_split_gpu_is_not_guessed(mask: str | None) -> None:
    assert read(mask, machine(split(gpu(0)), gpu(1))).devices is UNKNOWN


def test_of_gpus_that_are_alike_as_far_as_they_answer_it_is_not_said_that_they_differ() -> None:
    there = machine(gpu(0), lost(gpu(1))._replace(name=UNKNOWN), gpu(2))
    reading = read("0", there)
    assert reading.devices is UNKNOWN
    assert tuple(map(str, reading.notes)) == (
        "CUDA_VISIBLE_DEVICES is a list of numbers and GPU 1 does not answer, so which GPUs CUDA sees is unknown.",
    )


def test_of_gpus_whose_memory_is_not_known_it_is_said_that_this_is_why() -> None:
    there = machine(*(gpu(index)._replace(memory_total=UNKNOWN) for index in range(2)))
    assert "The GPUs may differ" in str(read("0", there).notes[-1])


def test_numbers_behind_a_lost_gpu_are_not_guessed() -> None:
    there: Inventory = machine(gpu(0), lost(gpu(1)), gpu(2))
    assert read("0", there).devices == (there[0],)
    assert read("2", there).devices is UNKNOWN
    assert read("GPU-8f3b", there).devices == (there[2],)


def test_how_many_of_several_mig_instances_cuda_13_takes_is_not_guessed() -> None:
    reading = read(",".join(MIG), with_cuda("13.0", split(gpu(0))))
    assert reading.devices is UNKNOWN
    assert tuple(map(str, reading.notes)) == (
        "CUDA_VISIBLE_DEVICES names several MIG instances. How many of them CUDA 13 uses is unknown.",
    )
    assert [device.uuid for device in reading.named or ()] == list(MIG)


@pytest.mark.parametrize(
    ("mask", "sees"),
    [
        (f"MIG-{UUIDS[0]}/1/0", MIG[0]),
        (f"MIG-{UUIDS[0]}/2/0", MIG[1]),
        (f"MIG-{UUIDS[0][:8]}/2/0", MIG[1]),
        (f"MIG-{UUIDS[0]}/3/0", None),
        (f"MIG-{UUIDS[1]}/1/0", None),
        (f"MIG-{UUIDS[0]}", None),
        (f"MIG-{UUIDS[0]}/1/0/0", None),
    ],
)
def test_the_form_of_drivers_before_r470_is_read(mask: str, sees: str | None) -> None:
    devices = read(mask, machine(split(gpu(0)), gpu(1))).devices
    assert [device.uuid for device in devices or ()] == ([] if sees is None else [sees])


OLD = [f"MIG-{UUIDS[0]}/{number}/0" for number in (1, 2, 9)]  # before r470


@given(st.lists(st.sampled_from([*MIG, *OLD, "MIG-41b7", "0", "GPU-1a"]), max_size=4).map(",".join))
def test_a_mig_mask_is_empty_where_it_is_for_pytorch(entries: str) -> None:
    mask = f"{MIG[0]},{entries}" if not entries.startswith("MIG-GPU") else entries
    with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": mask}):
        theirs = torch.cuda._parse_visible_devices()
    ours = read(mask, with_cuda("12.4", split(gpu(0)))).devices
    assert ours is not UNKNOWN
    assert bool(ours) == (bool(theirs) and not mask.startswith(f"MIG-{UUIDS[0]}/9"))


def test_numbers_that_count_every_mig_instance_name_all_of_them() -> None:
    """A job with MIG instances of two GPUs, beside which cgroups hide all others."""
    there = machine(split(gpu(0)), split(gpu(1)))
    assert read("0,1,2,3", there).names_all
    assert not read("0,1,2", there).names_all
    assert not read("0,1", machine(gpu(0), lost(split(gpu(1))), gpu(2))).names_all
