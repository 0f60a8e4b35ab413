from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_magic.devices.model import UNKNOWN, Gpu, GpuProcess, GpuStatus, Inventory, Speed
from gpu_magic.devices.problems import Cause, Problem
from gpu_magic.errors import ChoiceError
from gpu_magic.gpus.auto import best_first
from gpu_magic.gpus.options import Options
from gpu_magic.gpus.request import parse
from gpu_magic.gpus.select import select
from gpu_magic.process.given import read_grant
from gpu_magic.process.mask import Reading, read
from tests.gpus.machines import GIB, MIG, UUIDS, gpu, lost, machine, split, unlike, unreadable


def ask(
    text: str,
    there: Inventory | None = None,
    mask: str | None = None,
    inherited_order: str | None = None,
    **options: Any,
) -> tuple[str | None, str | None]:
    selection = select(
        parse(text), machine() if there is None else there, (mask, inherited_order), Options(**options)
    )
    return selection.mask, selection.variables["CUDA_DEVICE_ORDER"]


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        ("1,3", "1,3"),
        ("2,0", "2,0"),
        ("0-2,4", "0,1,2,4"),
        ("GPU-8f3a", "1"),
        ("all", "0,1,2,3,4"),
        ("none", ""),
    ],
)
def test_the_mask_names_what_was_asked_in_order(text: str, mask: str) -> None:
    assert ask(text) == (mask, "PCI_BUS_ID")


@pytest.mark.parametrize("inherited", [(None, None), ("1,3", None), ("", None), ('"0,1"', "PCI_BUS_ID")])
def test_reset_is_what_the_kernel_was_started_with(inherited: tuple[str | None, str | None]) -> None:
    assert ask("reset", None, *inherited) == inherited


def test_a_mask_of_uuids_is_answered_with_uuids() -> None:
    assert ask("1", mask=",".join(UUIDS)) == (UUIDS[1], "PCI_BUS_ID")
    assert ask("1", mask=",".join(UUIDS), by="index") == ("1", "PCI_BUS_ID")
    assert ask("1", by="uuid") == (UUIDS[1], "PCI_BUS_ID")


def test_never_wider_than_inherited_without_force() -> None:
    with pytest.raises(ChoiceError, match=r"not given to this process: .*GPU 0, GPU 1.*--force"):
        ask("3", mask="0,1")
    assert ask("3", mask="0,1", force=True) == ("3", "PCI_BUS_ID")
    assert ask("1", mask="0,1") == ("1", "PCI_BUS_ID")
    assert ask("all", mask="2,1") == ("2,1", "PCI_BUS_ID")
    assert ask("auto:2", mask="2,1") == ("2,1", "PCI_BUS_ID")
    with pytest.raises(ChoiceError, match="can pick only 2 GPUs"):
        ask("auto:3", mask="2,1")
    with pytest.raises(ChoiceError, match=r"was given no GPU.*--force"):
        ask("all", mask="")


def test_an_inherited_mask_that_can_not_be_read_is_not_guessed() -> None:
    with pytest.raises(ChoiceError, match=r"is unknown.*--force"):
        ask("0", unlike(), mask="0,1")
    assert ask("0", unlike(), "0,1", "PCI_BUS_ID") == ("0", "PCI_BUS_ID")
    assert ask("0", unlike(), mask="0,1", force=True) == ("0", "PCI_BUS_ID")
    assert ask("0", unlike()) == ("0", "PCI_BUS_ID")
    assert ask("2,0", unlike(), mask="0,1,2") == ("2,0", "PCI_BUS_ID")  # all of them are all of them


def test_what_is_not_there_gets_one_line() -> None:
    for text, says in (
        ("9", "GPUs 0 to 4"),
        (f"GPU-{'1' * 6000}", "No GPU here has a UUID that starts with"),
        ("GPU-8f3", "GPU-8f3a or GPU-8f3b"),
        ("1,GPU-8f3a", "already named"),
        ("auto:9", "can pick only 5 GPUs. Try auto:5"),
    ):
        with pytest.raises(ChoiceError, match=rf"^[^\n]*{says}[^\n]*$"):
            ask(text)


def test_auto_takes_least_memory_then_least_work_and_never_the_unknown() -> None:
    there = machine(gpu(0, 20, 0), gpu(1, 0, 50), unreadable(gpu(2)), unreadable(gpu(3)), lost(gpu(4)))
    assert select(parse("auto:2"), there, (None, None)).devices == (there[1], there[0])
    with pytest.raises(ChoiceError, match="can pick only 2 GPUs"):
        ask("auto:3", there)


def without_memory(whole: Gpu, busy: int = 0, processes: tuple[GpuProcess, ...] = ()) -> Gpu:
    status = GpuStatus(UNKNOWN, UNKNOWN, busy, 40, 12.0, processes)
    return whole._replace(memory_total=UNKNOWN, status=status)


TRAIN = GpuProcess(4711, "train.py", "maria", UNKNOWN, is_this_process=False)
NOT_KNOWN = "{} not report memory in use, so whether it is free is unknown."


@pytest.mark.parametrize("only", [without_memory(gpu(0)), unreadable(gpu(0))])
def test_auto_takes_the_only_gpu_whatever_is_known_of_it(only: Gpu) -> None:
    selection = select(parse("auto"), machine(only), (None, None))
    assert selection.mask == "0"
    assert selection.notes == (NOT_KNOWN.format("GPU 0 does", "it is"),)


def test_without_figures_of_memory_auto_goes_by_processes_and_then_by_work() -> None:
    there = machine(
        without_memory(gpu(0), 0, (TRAIN,)), without_memory(gpu(1), 60), without_memory(gpu(2), 10)
    )
    selection = select(parse("auto:2"), there, (None, None))
    assert selection.devices == (there[2], there[1])
    known = NOT_KNOWN.format("GPU 2 and GPU 1 do", "they are").removesuffix(".")
    assert selection.notes == (f"{known}. Not picked: GPU 0 (in use by maria).",)


def test_a_gpu_whose_memory_in_use_is_known_comes_before_one_that_may_be_in_use() -> None:
    there = machine(without_memory(gpu(0)), gpu(1, 70, 90))
    assert select(parse("auto"), there, (None, None)).devices == (there[1],)


def test_gpus_that_nothing_tells_apart_are_not_guessed() -> None:
    with pytest.raises(ChoiceError, match="can pick no GPU"):
        ask("auto", machine(unreadable(gpu(0)), unreadable(gpu(1))))


def prohibited(whole: Gpu) -> Gpu:
    return whole._replace(compute_mode="Prohibited")


def exclusive(whole: Gpu, *processes: GpuProcess) -> Gpu:
    return whole._replace(status=whole.status._replace(processes=processes), compute_mode="Exclusive_Process")


def test_auto_takes_no_gpu_that_no_process_can_use() -> None:
    there = machine(prohibited(gpu(0)), gpu(1, 20, 30), gpu(2, 1))
    selection = select(parse("auto:2"), there, (None, None))
    assert selection.devices == (there[2], there[1])
    assert selection.notes == (
        "Only 1 GPU is free: GPU 2 and GPU 1 are the unclaimed GPUs with the most free memory. Not picked: GPU 0 (in compute mode "
        "Prohibited).",
    )


def test_auto_takes_no_exclusive_gpu_that_another_process_uses() -> None:
    there = machine(exclusive(gpu(0, 1), TRAIN), gpu(1, 20, 30))
    selection = select(parse("auto"), there, (None, None))
    assert selection.devices == (there[1],)
    assert selection.notes == (
        "No GPU is free: GPU 1 is the unclaimed GPU with the most free memory. Not picked: GPU 0 (in use by the one "
        "process that it allows (Exclusive_Process)).",
    )


@pytest.mark.parametrize("processes", [(), (TRAIN._replace(is_this_process=True),)])
def test_auto_takes_an_exclusive_gpu_that_no_other_process_uses(processes: tuple[GpuProcess, ...]) -> None:
    there = machine(exclusive(gpu(0, 2 * len(processes)), *processes), gpu(1, 20, 30))
    assert select(parse("auto"), there, (None, None)).devices == (there[0],)


def test_a_gpu_that_no_process_can_use_is_refused_with_the_command_that_changes_it() -> None:
    with pytest.raises(ChoiceError, match=r"GPU 1 cannot be chosen.*nvidia-smi -i 1 -c DEFAULT"):
        ask("0,1", machine(gpu(0), prohibited(gpu(1))))


def test_all_leaves_out_what_no_process_can_use_and_says_so() -> None:
    selection = select(parse("all"), machine(gpu(0), prohibited(gpu(1))), (None, None))
    assert selection.mask == "0"
    assert selection.notes == ("GPU 1 is left out because it is in compute mode Prohibited.",)


def test_an_exclusive_gpu_in_use_can_be_named_and_it_is_said_what_stands_in_the_way() -> None:
    selection = select(parse("0"), machine(exclusive(gpu(0, 1), TRAIN)), (None, None))
    assert selection.mask == "0"
    assert selection.notes[0].endswith(
        "another one uses it. CUDA cannot start on it until that process ends."
    )


def test_the_panel_is_not_offered_what_auto_does_not_take() -> None:
    there = machine(prohibited(gpu(0)), exclusive(gpu(1), TRAIN), gpu(2))
    assert best_first(there.devices) == (there[2],)


def test_a_lost_gpu_can_not_be_chosen_and_the_rest_can_by_uuid() -> None:
    there = machine(gpu(0), lost(gpu(1)), gpu(2))
    with pytest.raises(ChoiceError, match="GPU 1 cannot be chosen because it is not answering"):
        ask("1", there)
    # CUDA may count without the lost one, so a number would not be a promise.
    assert ask("2", there) == (UUIDS[2], "PCI_BUS_ID")
    with pytest.raises(ChoiceError, match="mit by="):
        ask("2", there, by="index")
    assert select(parse("2"), there, (None, None), by="index").mask == UUIDS[2]  # configured: where it can be
    everything = select(parse("all"), there, (None, None))
    assert everything.mask == f"{UUIDS[0]},{UUIDS[2]}"
    assert everything.notes == (
        "GPU 1 is left out because it is not answering: the driver reports this GPU as lost.",
    )


def test_fastest_first_on_unlike_gpus_is_written_by_uuid() -> None:
    selection = select(parse("2,0"), unlike(), (None, None), Options(order="fastest"))
    assert (selection.mask, selection.variables["CUDA_DEVICE_ORDER"]) == (
        f"{UUIDS[2]},{UUIDS[0]}",
        "FASTEST_FIRST",
    )
    with pytest.raises(ChoiceError, match="mit by="):
        select(parse("2,0"), unlike(), (None, None), Options(order="fastest", by="index"))
    selection = select(parse("2,0"), machine(), (None, None), Options(order="fastest"))
    assert (selection.mask, selection.variables["CUDA_DEVICE_ORDER"]) == ("2,0", "FASTEST_FIRST")


def test_mig() -> None:
    there = machine(split(gpu(0)), gpu(1))
    assert ask("MIG-41b7", there) == (MIG[0], "PCI_BUS_ID")
    with pytest.raises(ChoiceError, match="one MIG instance"):
        ask("MIG-41b7,MIG-41b8", there)
    with pytest.raises(ChoiceError, match="one MIG instance"):
        ask("1,MIG-41b8", there)
    with pytest.raises(ChoiceError, match=r"as a whole. Try 0:0 or 0:1"):
        ask("0", there)
    with pytest.raises(ChoiceError, match="has no number"):
        ask("MIG-41b7", there, by="index")
    assert ask("all", there) == (UUIDS[1], "PCI_BUS_ID")
    assert ask("all", there, mask=MIG[1]) == (MIG[1], "PCI_BUS_ID")
    with pytest.raises(ChoiceError, match="was not given to this process"):
        ask("MIG-41b7", there, mask=MIG[1])


@pytest.mark.parametrize(
    "text", ["0:1", "smi:0:1", "MIG-41b8", f"MIG-{UUIDS[0]}/2/0", f"MIG-{UUIDS[0][:8]}/2/0"]
)
def test_a_mig_instance_has_several_names(text: str) -> None:
    assert ask(text, machine(split(gpu(0)), gpu(1))) == (MIG[1], "PCI_BUS_ID")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1:2", r"^GPU 1 is not split by MIG, so there is no 1:2. Try 1$"),
        ("0:7", r"^GPU 0 has no MIG instance 7. Try 0:0 or 0:1$"),
        ("2:0", r"^GPU 2 is split by MIG and has no instance. An administrator has to make one first\.$"),
        ("9:0", "There is no GPU 9"),
        (f"MIG-{UUIDS[0]}/5/0", "No MIG instance here is"),
        ("0:0,MIG-41b7", "already named"),
    ],
)
def test_a_mig_instance_that_is_not_there_gets_one_line(text: str, says: str) -> None:
    there = machine(split(gpu(0)), gpu(1), gpu(2)._replace(is_split=True))
    with pytest.raises(ChoiceError, match=says) as caught:
        ask(text, there)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("cuda", "says"),
    [
        ("12.4", "CUDA 12.4 lets one process use one MIG instance and no other GPU. Try 0:0"),
        (
            "13.0",
            "According to NVIDIA, a process can use one MIG instance and no other GPU. Try 0:0",
        ),
    ],
)
@pytest.mark.parametrize("text", ["0:0,0:1", "0:0,1", "all"])
def test_several_mig_instances_are_refused_with_the_driver_s_own_limit(
    text: str, cuda: str, says: str
) -> None:
    gpus = (split(gpu(0)),) if text == "all" else (split(gpu(0)), gpu(1))
    with pytest.raises(ChoiceError) as refused:
        ask(text, replace(machine(*gpus), cuda_version=cuda))
    assert str(refused.value).endswith(says)


@pytest.mark.parametrize(
    ("used", "note"),
    [
        (
            (5, 7),
            "No MIG instance is free: MIG instance 0:0 is the unclaimed MIG instance with the most free memory",
        ),
        ((0, 7), "MIG instance 0:0 is free and unclaimed"),
    ],
)
def test_auto_says_so_where_no_mig_instance_is_free(used: tuple[int, int], note: str) -> None:
    whole = split(gpu(0))
    parts = [
        part._replace(status=GpuStatus(gib * GIB, (40 - gib) * GIB, processes=()))
        for part, gib in zip(whole.mig, used, strict=True)
    ]
    selection = select(parse("auto"), machine(whole._replace(mig=tuple(parts))), (None, None))
    assert selection.devices == (parts[0],)
    assert selection.notes == (f"{note}. Not picked: MIG instance 0:1 (in use).",)


def test_a_machine_that_can_not_be_read_says_why() -> None:
    broken = Inventory(problem=Problem(Cause.NO_LIBRARY))
    with pytest.raises(ChoiceError, match="NVML is missing"):
        ask("1", broken)
    assert ask("none", broken) == ("", "PCI_BUS_ID")
    assert ask("reset", broken, mask="1") == ("1", None)


@given(
    text=st.lists(st.integers(0, 4), min_size=1, unique=True).map(lambda numbers: ",".join(map(str, numbers)))
    | st.sampled_from(["all", "auto", "auto:2"]),
    by=st.sampled_from([None, "index", "uuid"]),
    order=st.sampled_from(["pci", "fastest"]),
    used=st.lists(st.integers(0, 80), min_size=5, max_size=5),
)
def test_a_choice_is_a_promise(text: str, by: Any, order: Any, used: list[int]) -> None:
    """Whatever is chosen, CUDA's own reading of the two variables gives those devices in that order."""
    there = machine(*(gpu(index, memory) for index, memory in enumerate(used)))
    selection = select(parse(text), there, (None, None), Options(by=by, order=order))
    assert selection.devices is not UNKNOWN
    assert read(selection.mask, there, selection.variables["CUDA_DEVICE_ORDER"]).devices == selection.devices


def test_a_long_mask_is_read_fast_and_quoted_short() -> None:
    reading = read(",".join(map(str, range(30_000))), machine())
    assert reading.devices == machine().gpus
    assert len(str(reading.notes[0])) < 400


def test_nothing_is_said_of_a_mask_on_a_machine_that_can_not_be_read() -> None:
    broken = Inventory(problem=Problem(Cause.NO_LIBRARY))
    assert read("0,1", broken) == Reading(UNKNOWN)
    assert read("", broken).devices == ()


def test_a_gpu_without_a_uuid_is_named_by_its_number() -> None:
    there = machine(gpu(0)._replace(uuid=UNKNOWN), gpu(1), gpu(2)._replace(uuid=UNKNOWN))
    assert ask("0,2", there) == ask("0,2", there, "1,0,2", "PCI_BUS_ID") == ("0,2", "PCI_BUS_ID")
    assert (ask("all", there)[0], ask("auto:3", there)[0]) == ("0,1,2", "0,1,2")
    selection = select(parse("0,1"), there, (None, None), by="uuid")  # as in IPython's configuration
    assert selection.mask == "0,1"
    with pytest.raises(ChoiceError, match=r"GPU 2 has no UUID\. Omit by='uuid'\."):
        ask("2", there, by="uuid")
    with pytest.raises(ChoiceError, match="GPU 2 was not given to this process"):
        ask("2", there, "0", "PCI_BUS_ID")
    with pytest.raises(ChoiceError, match="GPU 0 cannot be chosen because it is without a UUID"):
        ask("0", machine(gpu(0)._replace(uuid=UNKNOWN, bus_id=UNKNOWN)))


def test_a_gpu_without_a_uuid_is_never_written_by_one() -> None:
    there = machine(gpu(0)._replace(uuid=UNKNOWN), gpu(1), lost(gpu(2)))
    selection = select(parse("all"), there, ("0,1,2", "PCI_BUS_ID"))
    assert selection.mask == UUIDS[1]
    assert selection.notes[0] == "GPU 0 is left out because its UUID is unknown."
    with pytest.raises(ChoiceError, match="can pick only 1 GPU"):
        ask("auto:2", there, "0,1,2", "PCI_BUS_ID")
    with pytest.raises(
        ChoiceError, match=r"GPU 0 has no UUID\. CUDA's numbers are unknown while a GPU does not"
    ):
        ask("0", there, "0,1,2", "PCI_BUS_ID")


def test_a_gpu_that_does_not_answer_makes_no_riddle_a_guess() -> None:
    there = machine(gpu(0, name="Tesla T4"), gpu(1, name="Tesla T4"), lost(gpu(2)))
    assert read("0", there).devices is UNKNOWN
    with pytest.raises(ChoiceError, match="Which GPUs this process was given is unknown"):
        ask("all", there, mask="0")
    there = machine(gpu(0), gpu(1), lost(gpu(2)))  # a kernel that was given them all
    assert ask("0", there, "0,1,2", "PCI_BUS_ID") == (UUIDS[0], "PCI_BUS_ID")


def test_two_devices_with_one_uuid_end_in_a_line() -> None:
    with pytest.raises(ChoiceError, match="Type more of the UUID"):
        ask("GPU-1a2b", machine(gpu(0), gpu(1)._replace(uuid=UUIDS[0])))


T4, A100, V100 = Speed((7, 5), 2560, 1590), Speed((8, 0), 6912, 1410), Speed((7, 0), 5120, 1530)


def mixed(*speeds: Speed) -> Inventory:
    """Return a machine with a GPU of each of these kinds."""
    return machine(
        *((gpu(index, name=str(speed)))._replace(speed=speed) for index, speed in enumerate(speeds))
    )


FAST = Options(order="fastest")


@pytest.mark.parametrize("text", ["all", "auto:2"])
def test_the_fastest_kind_is_first_where_that_is_known(text: str) -> None:
    selection = select(parse(text), mixed(T4, A100), (None, None), FAST)
    assert (selection.mask, selection.variables["CUDA_DEVICE_ORDER"]) == (
        f"{UUIDS[1]},{UUIDS[0]}",
        "FASTEST_FIRST",
    )
    if (
        text == "all"
    ):  # those of one kind are in PCI order among themselves, and an order that is named is kept
        mixture = mixed(T4, A100, T4, A100)
        fastest = ",".join(UUIDS[index] for index in (1, 3, 0, 2))
        assert select(parse("all"), mixture, (None, None), FAST).mask == fastest
        assert select(parse("0,1"), mixture, (None, None), FAST).mask == f"{UUIDS[0]},{UUIDS[1]}"


def test_which_kind_is_faster_can_not_be_known_where_the_figures_disagree() -> None:
    """A V100 has more cores, and the T4 is newer."""
    selection = select(parse("all"), mixed(T4, V100), (None, None), FAST)
    assert selection.mask == f"{UUIDS[0]},{UUIDS[1]}"
    assert selection.notes == (
        "Which of these GPUs CUDA ranks first is unknown. Name them in the order you want.",
    )


def test_an_inherited_order_is_kept() -> None:
    selection = select(parse("all"), mixed(T4, A100), (None, "FASTEST_FIRST"))
    assert (selection.mask, selection.variables["CUDA_DEVICE_ORDER"]) == (
        f"{UUIDS[1]},{UUIDS[0]}",
        "FASTEST_FIRST",
    )
    assert (
        select(parse("all"), machine(), (None, "FASTEST_FIRST")).variables["CUDA_DEVICE_ORDER"]
        == "FASTEST_FIRST"
    )
    other = select(parse("all"), mixed(T4, A100), (None, "FASTEST_FIRST"), Options(order="pci"))
    assert (other.mask, other.variables["CUDA_DEVICE_ORDER"]) == ("0,1", "PCI_BUS_ID")


def test_slurm_s_own_list_says_what_its_numbers_mean() -> None:
    there = machine(*(one._replace(minor=one.index) for one in mixed(T4, V100, A100)))
    with pytest.raises(ChoiceError, match="Which GPUs this process was given is unknown"):
        select(parse("1"), there, ("1,2", None))
    slurm = read_grant({"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "1,2"})
    assert select(parse("1"), there, ("1,2", None), grant=slurm).mask == "1"
    with pytest.raises(
        ChoiceError, match="GPU 0 is not among the GPUs that Slurm job 7 allotted to this process"
    ):
        select(parse("0"), there, ("1,2", None), grant=slurm)
