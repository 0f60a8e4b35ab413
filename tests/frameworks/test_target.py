"""What is typed after `%%on_gpu`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks.target import LogicalDevice, PhysicalDevice, parse_targets
from tests.inputs import ODD, check_refusal


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("0", LogicalDevice("gpu", 0)),
        ("12", LogicalDevice("gpu", 12)),
        ("gpu:1", LogicalDevice("gpu", 1)),
        ("GPU:1", LogicalDevice("gpu", 1)),
        ("/GPU:1", LogicalDevice("gpu", 1)),
        ("/gpu:1", LogicalDevice("gpu", 1)),
        ("/device:GPU:1", LogicalDevice("gpu", 1)),
        ("/job:localhost/replica:0/task:0/device:GPU:1", LogicalDevice("gpu", 1)),
        ("PhysicalDevice(name='/physical_device:GPU:1', device_type='GPU')", LogicalDevice("gpu", 1)),
        ("LogicalDevice(name='/device:CPU:2', device_type='CPU')", LogicalDevice("cpu", 2)),
        ("<CUDA Device 1>", LogicalDevice("gpu", 1, "cuda")),
        ("cuda:1", LogicalDevice("gpu", 1, "cuda")),
        ("xpu:1", LogicalDevice("gpu", 1, "xpu")),
        ("mps", LogicalDevice("gpu", 0, "mps")),
        ("cpu", LogicalDevice("cpu", 0)),
        ("CPU", LogicalDevice("cpu", 0)),
        ("/CPU:2", LogicalDevice("cpu", 2)),
        ("cpu:2", LogicalDevice("cpu", 2)),
        ("smi:3", PhysicalDevice(3)),
        ("GPU-8F3A", PhysicalDevice("GPU-8f3a")),
        ("mig-41b7", PhysicalDevice("MIG-41b7")),
        ("smi:2:1", PhysicalDevice("2:1")),
        ("MIG-GPU-8f3a/1/0", PhysicalDevice("MIG-GPU-8f3a/1/0")),
        ('"cuda:1"', LogicalDevice("gpu", 1, "cuda")),
        ("cuda:1\n", LogicalDevice("gpu", 1, "cuda")),
    ],
)
def test_every_way_to_name_a_device(text: str, target: LogicalDevice | PhysicalDevice) -> None:
    assert parse_targets(text) == (target,)


def test_several() -> None:
    assert parse_targets("[0, cpu:1]") == (LogicalDevice("gpu", 0), LogicalDevice("cpu", 1))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "No device is named. Expected 0, cuda:0"),
        ("foo", "'foo' is not a device. Expected 0, cuda:0"),
        ("gpu0", "'gpu0' is not a device. Try cuda:0"),
        ("GPU 1", "'GPU 1' is not a device. Try cuda:1"),
        ("-1", "numbered from 0. For the CPU: cpu"),
        ("cuda", "'cuda' is not a device. Expected 0, cuda:0"),
        ("2:1", "'2:1' is nvidia-smi's name of a MIG instance. Try smi:2:1"),
        ("{n}", "not a variable"),
        ("0,,1", "A comma has no device beside it. Name devices like this: 0,1"),
        ("1,1,0", "names a device twice"),
        ("cuda:0,1,/GPU:0", "names a device twice. Try cuda:0"),
        ("/job:worker/replica:0/task:1/device:GPU:0", "is not a device"),
        ("auto", "'auto' does not name a device. First run %gpus auto, then name 0 here."),
        ("all but 3", "'all but 3' is not a device. Expected 0"),
        ("99999", "is not a device"),
        ("GPU-xyz", "is not a device"),
    ],
)
def test_anything_else_gets_one_line_that_says_what_would_work(text: str, said: str) -> None:
    with pytest.raises(PlacementError) as caught:
        parse_targets(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


NAMES = st.lists(
    st.sampled_from(
        "cuda: /GPU: gpu: smi: amd: cpu mps xpu: GPU-8f3a MIG- /job:a/replica:0/task:0 /device: PhysicalDevice(name=' "
        "',device_type='GPU') <CUDA > [ ] ( ) , 0 2:1 { auto 7".split(" ")
    )
    | ODD,
    max_size=5,
).map("".join)


@given(NAMES | st.text(max_size=30))
def test_whatever_is_typed_is_read_again_as_it_is_written_or_refused_in_a_line(text: str) -> None:
    try:
        targets = parse_targets(text)
    except PlacementError as error:
        check_refusal(error)
        return
    assert len(set(targets)) == len(targets) > 0
    for target in targets:
        assert str(target).isprintable()
        assert [str(again) for again in parse_targets(str(target))] == [str(target)]


@given(st.sampled_from(["gpu", "cpu", "cuda", "xpu"]), st.integers(0, 9999))
def test_a_device_is_read_as_it_is_written(kind: str, index: int) -> None:
    device = (
        LogicalDevice("cpu", index)
        if kind == "cpu"
        else LogicalDevice("gpu", index, kind.replace("gpu", "cuda"))
    )
    assert parse_targets(str(device)) == (device,)
