"""HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES, against PyTorch's own parser and ROCm's documented examples."""

from __future__ import annotations

import os
from dataclasses import replace
from unittest import mock

import pytest
import torch.cuda
from hypothesis import example, given
from hypothesis import strategies as st

from gpu_magic.devices.model import UNKNOWN, Gpu, GpuStatus, Inventory, OtherGpus
from gpu_magic.devices.problems import GpuCause, GpuProblem
from gpu_magic.errors import ChoiceError
from gpu_magic.gpus.options import Options
from gpu_magic.gpus.request import parse
from gpu_magic.gpus.select import Selection, select
from gpu_magic.process.mask import NAMES, Variables
from gpu_magic.process.visible import read_visible
from tests.gpus import machines

GIB = 1 << 30
UUIDS = ("GPU-4b2c1a9f8d3e6f7a", "GPU-4b2c1a9f8d3e6f7b", "GPU-deadbeefdeadbeef", "GPU-0123456789abcdef")
HIP_IDS = (1, 0, 2, 3)  # HIP counts the first two the other way round


def amd(index: int, used: int = 0, hip_id: int | None = None) -> Gpu:
    status = GpuStatus(used * GIB, (192 - used) * GIB, 0, 40, 140.0, ())
    return Gpu(
        index,
        UUIDS[index],
        "AMD Instinct MI300X",
        f"0000:{index:02x}:00.0",
        192 * GIB,
        status,
        vendor="amd",
        hip_id=HIP_IDS[index] if hip_id is None else hip_id,
    )


def of_amd(*gpus: Gpu) -> Inventory:
    return Inventory(gpus, vendor="amd")


MACHINE = of_amd(*(amd(index) for index in range(4)))
# A machine with GPUs of both vendors, for a process that uses NVIDIA's, and for one that uses AMD's.
NVIDIA_FIRST = replace(machines.machine(), others=OtherGpus("amd", tuple(gpu.name for gpu in MACHINE)))
AMD_FIRST = replace(MACHINE, others=OtherGpus("nvidia", tuple(gpu.name for gpu in machines.machine())))
NOTHING = Variables()


def test_gpus_without_a_serial_number_are_named_by_hips_numbers() -> None:
    there = of_amd(*(amd(index)._replace(uuid=UNKNOWN) for index in range(4)))
    assert choose("0,2", machine=there).variables == {"HIP_VISIBLE_DEVICES": "1,2"}
    assert choose("all", machine=there).variables == {"HIP_VISIBLE_DEVICES": "1,0,2,3"}
    assert choose("auto:4", machine=there).devices == there.gpus
    assert seen(Variables(hip="1"), there) == [0]
    unclear = of_amd(*there.gpus[:3], there[3]._replace(hip_id=UNKNOWN))
    with pytest.raises(ChoiceError, match=r"GPU 0 has no UUID\. AMD SMI does not report HIP's numbers"):
        choose("0", machine=unclear)


def seen(variables: Variables, machine: Inventory = MACHINE) -> list[int] | None:
    """Return rocm-smi's numbers of the GPUs that are seen, in the order of `cuda:i`; None: not known."""
    devices = read_visible(variables, machine).devices
    return None if devices is UNKNOWN else [device.index for device in devices if isinstance(device, Gpu)]


def choose(
    text: str, inherited: Variables = NOTHING, machine: Inventory = MACHINE, **options: object
) -> Selection:
    return select(parse(text), machine, inherited, Options(**options))  # type: ignore[arg-type]


def applied(selection: Selection, inherited: Variables = NOTHING) -> Variables:
    """Return the variables as they are once a selection is applied."""
    values = inherited.named(NAMES) | dict(selection.variables)
    return Variables(*(values[name] for name in NAMES))


def pytorch_counts(variables: Variables) -> int:
    """Return how many GPUs PyTorch for ROCm counts: `torch.cuda._device_count_amdsmi`."""
    environment = {name: value for name, value in variables.named(NAMES).items() if value is not None}
    with mock.patch.object(torch.version, "hip", "6.4"), mock.patch.dict(os.environ, environment):
        for name in set(NAMES) - set(environment):
            os.environ.pop(name, None)
        visible = torch.cuda._parse_visible_devices()
    if visible and isinstance(visible[0], str):
        serials = [uuid.removeprefix("GPU-") for uuid in UUIDS]
        with mock.patch.object(torch.version, "hip", "6.4"):
            return len(torch.cuda._transform_uuid_to_ordinals(visible, serials))
    return next((index for index, number in enumerate(visible) if number >= len(UUIDS)), len(visible))


ENTRIES = st.one_of(
    st.integers(-2, 6).map(str),
    st.sampled_from([*UUIDS, "GPU-4b2c", "GPU-DEADBEEFDEADBEEF", "", " 1", "1 ", "01", "2x", "all"]),
)
VALUES = st.none() | st.just("") | st.lists(ENTRIES, min_size=1, max_size=5).map(",".join)


@given(mask=VALUES, hip=VALUES, rocr=VALUES)
@example(mask="-1", hip=None, rocr="0")
@example(mask="-1", hip="", rocr="0,1")
def test_what_hip_sees_is_as_many_as_pytorch_counts_or_a_note_says_so(
    mask: str | None, hip: str | None, rocr: str | None
) -> None:
    variables = Variables(mask, None, hip, rocr)
    reading = read_visible(variables, MACHINE)
    if rocr == "" or reading.notes:  # ROCm leaves none then, and PyTorch has nothing to count
        return
    ours = seen(variables)
    assert ours is not None
    try:
        theirs = pytorch_counts(variables)
    except RuntimeError:  # it refuses
        theirs = -1
    assert len(ours) == theirs


@pytest.mark.parametrize(
    ("variables", "numbers"),
    [
        # "GPU isolation techniques", in ROCm's documentation
        (Variables(rocr="0,GPU-DEADBEEFDEADBEEF"), [1, 2]),
        (Variables(hip="0,2"), [1, 2]),
        (Variables(mask="0,2"), [1, 2]),
        # ROCm's filter comes first, and HIP counts what it has left
        (Variables(rocr="3,1", hip="0"), [3]),
        (Variables(rocr="3,1", hip="1,0"), [0, 3]),
        # HIP's own variable wins over CUDA's
        (Variables(mask="3", hip="1"), [0]),
        (NOTHING, [1, 0, 2, 3]),
        (Variables(hip="-1"), []),
        (Variables(mask="1", hip="-1"), []),
        (Variables(rocr=""), []),
        (Variables(hip="0,9,1"), [1]),
        (Variables(rocr="0,9,1"), [1]),
        (Variables(hip=UUIDS[3]), [3]),
        # PyTorch reads these differently.
        (Variables(hip=""), [1, 0, 2, 3]),
        (Variables(mask=""), [1, 0, 2, 3]),
        (Variables(hip="1,1"), [0]),
        (Variables(hip="0, 1"), [1]),
        (Variables(rocr="1", hip="1"), []),
        (Variables(rocr="1", hip="0,1"), [0]),
    ],
)
def test_what_is_seen(variables: Variables, numbers: list[int] | None) -> None:
    assert seen(variables) == numbers


@pytest.mark.parametrize(
    ("variables", "note"),
    [
        (Variables(hip=""), "HIP_VISIBLE_DEVICES=(empty): HIP reads 4 GPUs, but PyTorch reads no GPU."),
        (Variables(hip="1,1"), "HIP_VISIBLE_DEVICES=1,1: HIP reads 1 GPU, but PyTorch reads no GPU."),
        (
            Variables(rocr="1", hip="0,1"),
            "ROCR_VISIBLE_DEVICES=1 and HIP_VISIBLE_DEVICES=0,1: HIP reads 1 GPU, but PyTorch refuses it.",
        ),
    ],
)
def test_a_note_says_what_pytorch_reads_differently(variables: Variables, note: str) -> None:
    assert str(read_visible(variables, MACHINE).notes[-1]) == note


def test_an_entry_that_ends_the_list_is_named() -> None:
    (note,) = map(str, read_visible(Variables(hip="0,9,1"), MACHINE).notes)
    assert note == (
        "Entry 2 of HIP_VISIBLE_DEVICES=0,9,1 is not a GPU of this machine. HIP stops there and sees only "
        "the first 1."
    )


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True), st.sampled_from([None, "index", "uuid"])
)
def test_what_is_chosen_is_what_is_seen(numbers: list[int], by: str | None) -> None:
    selection = choose(",".join(map(str, numbers)), by=by)
    assert set(selection.variables) == {"HIP_VISIBLE_DEVICES"}
    assert seen(applied(selection)) == numbers
    assert pytorch_counts(applied(selection)) == len(numbers)


@given(inherited=st.builds(Variables, VALUES, st.none(), VALUES, VALUES), data=st.data(), force=st.booleans())
def test_an_inherited_value_is_never_widened_without_force(
    inherited: Variables, data: st.DataObject, force: bool
) -> None:
    number = data.draw(st.integers(0, 3))
    given = seen(inherited)
    try:
        selection = choose(str(number), inherited, force=force)
    except ChoiceError:
        assert not force
        assert given is None or number not in given
        return
    assert force or number in (given or [])
    assert seen(applied(selection, inherited)) == [number]


def test_with_force_rocms_filter_is_taken_away() -> None:
    with pytest.raises(ChoiceError, match=r"started with ROCR_VISIBLE_DEVICES=0 \(GPU 1\)\. --force"):
        choose("3", Variables(rocr="0"))
    forced = choose("3", Variables(rocr="0"), force=True)
    assert forced.variables == {"ROCR_VISIBLE_DEVICES": None, "HIP_VISIBLE_DEVICES": "3"}


def test_none_hides_all_and_reset_is_what_was_given() -> None:
    assert choose("none").variables == {"HIP_VISIBLE_DEVICES": "-1"}
    assert seen(applied(choose("none"))) == []
    reset = choose("reset", Variables(rocr="0,1", hip="1"))
    assert [device.label for device in reset.devices or ()] == ["GPU 0"]
    assert reset.variables == {
        "HIP_VISIBLE_DEVICES": "1",
        "ROCR_VISIBLE_DEVICES": "0,1",
        "CUDA_VISIBLE_DEVICES": None,
    }


def test_where_hips_numbers_are_not_known_uuids_are_written() -> None:
    unknown = of_amd(*(gpu._replace(hip_id=UNKNOWN) for gpu in MACHINE))
    assert choose("1,0", machine=unknown).mask == f"{UUIDS[1]},{UUIDS[0]}"
    assert seen(Variables(hip=UUIDS[1]), unknown) == [1]
    assert seen(Variables(hip="1"), unknown) is None
    with pytest.raises(ChoiceError, match="mit by="):
        choose("1", machine=unknown, by="index")


def test_beside_a_gpu_that_does_not_answer_uuids_are_written() -> None:
    silent = of_amd(MACHINE[0], MACHINE[1]._replace(problem=GpuProblem(GpuCause.LOST)), *MACHINE.gpus[2:])
    assert choose("2", machine=silent).mask == UUIDS[2]
    assert "GPU 1 does not answer" in str(read_visible(Variables(hip="0"), silent).notes[0])
    with pytest.raises(ChoiceError, match="GPU 1 cannot be chosen because it is not answering"):
        choose("1", machine=silent)


@pytest.mark.parametrize("text", ["1", UUIDS[1]])
def test_a_plain_number_is_rocm_smis(text: str) -> None:
    assert choose(text).mask == "0"


@pytest.mark.parametrize(
    ("machine", "text", "variables"),
    [
        (
            NVIDIA_FIRST,
            "1",
            {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "HIP_VISIBLE_DEVICES": "-1"},
        ),
        (AMD_FIRST, "3,1", {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "3,0"}),
        (AMD_FIRST, "all", {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "1,0,2,3"}),
        (
            NVIDIA_FIRST,
            "none",
            {"CUDA_VISIBLE_DEVICES": "", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "HIP_VISIBLE_DEVICES": "-1"},
        ),
        (AMD_FIRST, "none", {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "-1"}),
        (
            NVIDIA_FIRST,
            "reset",
            dict.fromkeys(("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES")),
        ),
    ],
)
def test_a_choice_hides_the_gpus_of_the_other_vendor(
    machine: Inventory, text: str, variables: dict[str, str | None]
) -> None:
    """HIP reads CUDA_VISIBLE_DEVICES, so it would use an AMD GPU with the number of NVIDIA's."""
    assert dict(choose(text, machine=machine).variables) == variables
    as_amd = replace(MACHINE, gpus=MACHINE.gpus[:2])
    if machine is NVIDIA_FIRST and text != "reset":
        assert read_visible(applied(choose(text, machine=machine)), as_amd).devices == ()


def test_what_amds_gpus_do_not_have() -> None:
    with pytest.raises(ChoiceError, match="Omit it"):
        choose("1", order="pci")
    selection = choose("2", Variables(mask="0,2"))  # HIP was given CUDA's variable
    assert selection.variables == {"HIP_VISIBLE_DEVICES": "2", "CUDA_VISIBLE_DEVICES": None}


@pytest.mark.parametrize("text", ["amd:1", "0,amd:1", "amd:auto:2", "amd:all", "amd:"])
def test_a_vendor_in_a_request_gets_one_line(text: str) -> None:
    with pytest.raises(ChoiceError, match=r"'amd:\S*' is not a GPU\. AMD's GPUs have plain numbers too\."):
        parse(text)
