"""The pretend driver libraries, asked by the real callers: pynvml, ctypes and PyTorch in other processes.

That their figures are those of the simulated machine is tested in tests/devices/test_simulated.py.
"""

from __future__ import annotations

import ctypes
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

from tests.native import Card, Driver, Instance, build, build_pretend, environment
from tests.programs.runner import ELSEWHERE, Runner

if TYPE_CHECKING:
    from collections.abc import Callable

if ELSEWHERE:
    import torch

GIB = 2**30
SMALL = "NVIDIA A100-SXM4-40GB"
LARGE = "NVIDIA A100-SXM4-80GB"
PARTS = (
    Instance("MIG-11111111-0000-4000-8000-000000000001", f"{SMALL} MIG 1g.5gb", 5 * GIB, 1 * GIB),
    Instance("MIG-22222222-0000-4000-8000-000000000002", f"{SMALL} MIG 2g.10gb", 10 * GIB, 0),
)
# GPU 2 is the largest, so that the two orders differ; the last two UUIDs begin alike.
CARDS = tuple(
    Card(f"GPU-{start}-0000-4000-8000-0123456789ab", name, bus_id, size * GIB, 0, 0, celsius, 52_000)
    for start, name, bus_id, size, celsius in (
        ("a1000000", SMALL, "00000000:07:00.0", 40, 64),
        ("b2000000", SMALL, "00000000:0F:00.0", 40, 31),
        ("c3000000", LARGE, "00000000:47:00.0", 80, 30),
        ("c3ff0000", SMALL, "0000000A:C7:00.0", 40, 33),
    )
)
DRIVER = Driver(CARDS)
WITH_MIG = Driver((CARDS[0], replace(CARDS[1], mig=PARTS), CARDS[2]))


@pytest.fixture
def ask(native: Path, tmp_path: Path) -> Callable[..., Any]:
    """Return a way to run a function over the libraries, in a process of its own."""

    def run(program: Callable[..., Any], *arguments: Any, driver: Driver = DRIVER, **variables: str) -> Any:
        driver.write(tmp_path / "machine")
        late = "GPU_MAGIC_TEST_", "CUDA_"
        return Runner(environment(native, tmp_path / "machine") | variables, late)(program, *arguments)

    return run


def digits(*uuids: str) -> list[str]:
    """Return what UUIDs look like as the driver's 16 bytes, in hexadecimal."""
    return [uuid[4:].replace("-", "") for uuid in uuids]


def load_cuda() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def count(cuda: ctypes.CDLL) -> dict[str, int]:
    number = ctypes.c_int(-1)
    return {"code": cuda.cuDeviceGetCount(ctypes.byref(number)), "count": number.value}


def uuids(cuda: ctypes.CDLL, function: str = "cuDeviceGetUuid_v2") -> list[str]:
    """Return the 16 bytes of each device's UUID, in hexadecimal."""
    found = []
    for ordinal in range(max(0, count(cuda)["count"])):
        raw = (ctypes.c_ubyte * 16)()
        assert getattr(cuda, function)(raw, ordinal) == 0
        found.append(bytes(raw).hex())
    return found


def change(old: str, new: str) -> None:
    """Change the machine while we look at it."""
    state = Path(os.environ["GPU_MAGIC_TEST_STATE"])
    text = state.read_text()
    assert old in text
    changed = state.with_name("changed")
    changed.write_text(text.replace(old, new))
    changed.replace(state)


def error_of(call: Callable[..., Any], *arguments: Any) -> int | None:
    """Return the number of the NVMLError that a call raises; None where it raises none."""
    try:
        call(*arguments)
    except pynvml.NVMLError as error:
        return int(error.value)
    return None


# NVML


def errors_of_nvml() -> list[Any]:
    """Return what is refused before it starts, of unknown figures, and of a GPU that is lost and comes back."""
    found = [error_of(pynvml.nvmlDeviceGetCount)]
    pynvml.nvmlInit()
    pynvml.nvmlInit()
    first, second = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2))
    figures = ("MemoryInfo", "UtilizationRates", "PowerUsage", "EnforcedPowerLimit", "FanSpeed")
    found += [error_of(getattr(pynvml, f"nvmlDeviceGet{name}"), first) for name in figures]
    change("52000 ok", "52000 lost")
    found += [error_of(pynvml.nvmlDeviceGetName, second), error_of(pynvml.nvmlDeviceGetHandleByIndex, 1)]
    change("52000 lost", "52000 ok")
    pynvml.nvmlShutdown()
    found.append(error_of(pynvml.nvmlDeviceGetTemperature, second, 0))
    pynvml.nvmlShutdown()
    return [*found, error_of(pynvml.nvmlDeviceGetCount)]


def test_nvml_refuses_what_it_does_not_know_or_have(ask: Callable[..., Any]) -> None:
    blank = replace(CARDS[0], used=None, util=None, temperature=None, milliwatts=None)
    driver = Driver((blank, *CARDS[1:]))
    assert ask(errors_of_nvml, driver=driver) == [1, 3, 3, 3, 3, 13, 15, 15, None, 1]


def error_of_start() -> int | None:
    return error_of(pynvml.nvmlInit)


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, pynvml.NVML_ERROR_NO_PERMISSION])
def test_nvml_refuses_to_start(ask: Callable[..., Any], code: int) -> None:
    assert ask(error_of_start, driver=replace(DRIVER, refuse=code)) == code


# CUDA


def cuda_before_and_after_its_start() -> dict[str, Any]:
    """Start CUDA with the second GPU alone, and change the mask and the machine afterwards."""
    cuda, version, active = load_cuda(), ctypes.c_int(), ctypes.c_int()
    flags, context, device = ctypes.c_uint(), ctypes.c_void_p(), ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    found: dict[str, Any] = {
        "version": version.value,
        "before": count(cuda),
        "device before": cuda.cuDeviceGet(ctypes.byref(device), 0),
    }
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    found["start"] = cuda.cuInit(0)
    os.environ["CUDA_VISIBLE_DEVICES"] = "0,2"
    change("gpu GPU-b2", "gpu GPU-ee")
    found |= {"start again": cuda.cuInit(0), "after": count(cuda), "uuids after": uuids(cuda)}

    def state(ordinal: int) -> list[int]:
        code = cuda.cuDevicePrimaryCtxGetState(ordinal, ctypes.byref(flags), ctypes.byref(active))
        return [code, active.value]

    found["context"] = {
        "at first": state(0),
        "retain": cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        "retained": state(0),
        "release": cuda.cuDevicePrimaryCtxRelease_v2(0),
        "released": state(0),
        "of no device": state(1)[0],
    }
    name, text = ctypes.create_string_buffer(64), ctypes.c_char_p()
    cuda.cuDeviceGetName(name, 64, 0)
    cuda.cuGetErrorString(3, ctypes.byref(text))
    return found | {"name": name.value.decode(), "text of an error": (text.value or b"").decode()}


def test_cuda_says_nothing_before_it_is_started_and_keeps_the_mask_that_it_read(
    ask: Callable[..., Any],
) -> None:
    assert ask(cuda_before_and_after_its_start, CUDA_DEVICE_ORDER="PCI_BUS_ID") == {
        "version": 13000,
        "before": {"code": 3, "count": -1},
        "device before": 3,
        "start": 0,
        "start again": 0,
        "after": {"code": 0, "count": 1},
        "uuids after": digits(CARDS[1].uuid),
        "context": {
            "at first": [0, 0],
            "retain": 0,
            "retained": [0, 1],
            "release": 0,
            "released": [0, 0],
            "of no device": 101,
        },
        "name": SMALL,
        "text of an error": "initialization error",
    }


def cuda_in_a_child() -> dict[str, Any]:
    """Ask CUDA in a child that is forked before its start, and in one that is forked after it."""
    cuda = load_cuda()

    def child() -> dict[str, Any]:
        reader, writer = os.pipe()
        if os.fork() == 0:
            found = {"before": count(cuda), "start": cuda.cuInit(0), "after": count(cuda)}
            os.write(writer, json.dumps(found).encode())
            os._exit(0)
        os.wait()
        answer: dict[str, Any] = json.loads(os.read(reader, 1000))
        return answer

    early = child()
    return {"early": early, "start": cuda.cuInit(0), "late": child(), "parent": count(cuda)}


def test_cuda_cannot_be_used_in_a_child_forked_after_its_start(ask: Callable[..., Any]) -> None:
    refused, all_four = {"code": 3, "count": -1}, {"code": 0, "count": 4}
    assert ask(cuda_in_a_child) == {
        "early": {"before": refused, "start": 0, "after": all_four},
        "start": 0,
        "late": {"before": refused, "start": 3, "after": refused},
        "parent": all_four,
    }


def cuda_devices() -> dict[str, Any]:
    """Return which devices CUDA has."""
    cuda = load_cuda()
    found = {"start": cuda.cuInit(0), **count(cuda), "uuids": uuids(cuda)}
    return {**found, "uuids, version 1": uuids(cuda, "cuDeviceGetUuid")}


MASKS = {
    None: "0123",
    "": "",
    "2,1": "21",
    "0,2,-1,1": "02",
    "-1": "",
    "all": "",
    "0,0": "",
    "1gpu2,2ampere": "12",
    " 3, 1": "31",
    "+1,-0": "10",
    "0;1": "0",
    '"0,1"': "",
    "0,,1": "0",
    "0,9,1": "0",
    "99999999999999999999": "",
    "GPU-b2,GPU-a1000000": "10",
    CARDS[3].uuid: "3",
    "GPU-a1,GPU-c3,GPU-b2": "0",
    "GPU-c3": "",
    "GPU-c30,GPU-c3f": "23",
    "GPU-a,GPU-a1": "",
    "GPU-a,1": "0",
    "1,GPU-a": "1",
    "gpu-a1": "",
    "MIG-1": "",
}


def test_cuda_reads_a_mask(ask: Callable[..., Any]) -> None:
    for mask, numbers in MASKS.items():
        expected = digits(*(CARDS[int(index)].uuid for index in numbers))
        variables = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
        found = ask(cuda_devices, CUDA_DEVICE_ORDER="PCI_BUS_ID", **variables)
        assert found["uuids"] == expected, mask
        state = [0, 0, len(expected)] if expected else [100, 100, -1]
        assert [found["start"], found["code"], found["count"]] == state, mask


@pytest.mark.parametrize(
    ("driver", "order", "mask", "indices"),
    [
        (DRIVER, None, "0,1", "20"),
        (DRIVER, "FASTEST_FIRST", "3,2", "31"),
        (DRIVER, "PCI_BUS_ID", "0,1", "01"),
        (DRIVER.losing(0, 3), "PCI_BUS_ID", "0,1,2", "12"),
        (DRIVER.losing(3), "PCI_BUS_ID", "GPU-c3", "2"),
    ],
)
def test_cuda_orders_the_gpus_that_are_there(
    ask: Callable[..., Any], driver: Driver, order: str | None, mask: str, indices: str
) -> None:
    variables = {"CUDA_DEVICE_ORDER": order} if order else {}
    found = ask(cuda_devices, driver=driver, CUDA_VISIBLE_DEVICES=mask, **variables)
    assert found["uuids"] == digits(*(CARDS[int(index)].uuid for index in indices))


@pytest.mark.parametrize(("mask", "part"), [("MIG-2,MIG-1", 1), ("MIG-1", 0), ("GPU-b2", 0), ("0,1", 0)])
def test_cuda_gives_a_process_one_mig_instance(ask: Callable[..., Any], mask: str, part: int) -> None:
    variables = {"CUDA_VISIBLE_DEVICES": mask, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    found = ask(cuda_devices, driver=WITH_MIG, **variables)
    assert found["uuids"] == digits(PARTS[part].uuid)
    assert found["uuids, version 1"] == digits(CARDS[1].uuid)


def counts_of_torch(masks: list[str | None]) -> list[Any]:
    """Return how many devices PyTorch counts with each mask, through NVML, and the UUIDs that it reads of all GPUs."""
    found: list[Any] = [torch.cuda._raw_device_uuid_nvml()]
    for mask in masks:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        if mask is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = mask
        found.append(torch.cuda._device_count_nvml())
    return found


def test_torch_counts_devices_through_nvml_and_reads_masks_alike(ask: Callable[..., Any]) -> None:
    """A parser that nobody here wrote; it leaves MIG masks to the driver."""
    masks = [mask for mask in MASKS if mask is None or not mask.startswith("MIG-")]
    of_all, *counts = ask(counts_of_torch, masks)
    assert dict(zip(masks, counts, strict=True)) == {mask: len(MASKS[mask]) for mask in masks}
    assert of_all == [card.uuid for card in CARDS]


def with_a_mistake_in_the_state() -> dict[str, int]:
    """Return what the libraries answer where they can't read the machine."""
    change("gpu GPU-b2", "gpo GPU-b2")
    return {"nvml": ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2(), "cuda": load_cuda().cuInit(0)}


def test_a_mistake_in_the_state_file_does_not_pass_for_an_answer(ask: Callable[..., Any]) -> None:
    assert ask(with_a_mistake_in_the_state) == {"nvml": 999, "cuda": 999}


def test_cards_stand_in_the_order_of_their_bus_ids() -> None:
    with pytest.raises(ValueError, match="bus ids"):
        Driver((CARDS[1], CARDS[0]))


def test_without_gcc_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="gcc"):
        build(tmp_path)


@pytest.mark.nightly  # it compiles: half a minute
@pytest.mark.timeout(300)
def test_a_build_that_was_killed_holds_up_no_other(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()  # PyTorch's, as a killed build leaves it
    assert list(build_pretend(tmp_path).glob("pretend_native*.so"))
