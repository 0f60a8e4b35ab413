"""The pretend driver libraries, asked by the real callers: pynvml, ctypes and PyTorch in other processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from tests.conftest import LIMIT
from tests.native import Card, Driver, Instance, build, environment
from tests.programs.runner import Runner

if TYPE_CHECKING:
    from pathlib import Path

GIB = 2**30
SMALL = "NVIDIA A100-SXM4-40GB"
LARGE = "NVIDIA A100-SXM4-80GB"
PARTS = (
    Instance("MIG-11111111-0000-4000-8000-000000000001", f"{SMALL} MIG 1g.5gb", 5 * GIB, 1 * GIB),
    Instance("MIG-22222222-0000-4000-8000-000000000002", f"{SMALL} MIG 2g.10gb", 10 * GIB, 0),
)
# GPU 2 is the largest, so that the two orders differ; the last two UUIDs begin alike.
CARDS = (
    Card(
        "GPU-a1000000-0000-4000-8000-0123456789ab",
        SMALL,
        "00000000:07:00.0",
        40 * GIB,
        7 * GIB,
        91,
        64,
        251_000,
    ),
    Card("GPU-b2000000-0000-4000-8000-0123456789ab", SMALL, "00000000:0F:00.0", 40 * GIB, 0, 0, 31, 52_000),
    Card("GPU-c3000000-0000-4000-8000-0123456789ab", LARGE, "00000000:47:00.0", 80 * GIB, 0, 0, 30, 61_000),
    Card("GPU-c3ff0000-0000-4000-8000-0123456789ab", SMALL, "0000000A:C7:00.0", 40 * GIB, 0, 0, 33, 50_000),
)
DRIVER = Driver((replace(CARDS[0], processes=((4321, 6 * GIB), (77, None))), *CARDS[1:]))
WITH_MIG = Driver((CARDS[0], replace(CARDS[1], mig=PARTS), CARDS[2]))

Ask: TypeAlias = Callable[..., Any]


@pytest.fixture
def ask(native: Path, tmp_path: Path) -> Ask:
    """Return a way to run a program over the libraries, in a process of its own; see `tests/programs/runner.py`."""

    def run(program: str, *arguments: Any, driver: Driver = DRIVER, **variables: str) -> Any:
        driver.write(tmp_path / "machine")
        return Runner(environment(native, tmp_path / "machine") | variables).fresh(program, *arguments)

    return run


def digits(*uuids: str) -> list[str]:
    """Return what UUIDs look like as the driver's 16 bytes, in hexadecimal."""
    return [uuid[4:].replace("-", "") for uuid in uuids]


def test_pynvml_reads_the_figures(ask: Ask) -> None:
    gpus = ask("native_drivers.gpus")
    assert len(gpus) == len(CARDS)
    reserved = CARDS[0].reserved
    free = 33 * GIB - reserved
    assert gpus[0] == {
        "name": SMALL,
        "uuid": CARDS[0].uuid,
        "index": 0,
        "index by uuid": 0,
        "memory": [40 * GIB, 7 * GIB + reserved, free],
        "memory, version 2": [40 * GIB, 7 * GIB, free],
        "utilization": 91,
        "temperature": 64,
        "temperature, versioned": 64,
        "power": 251_000,
        "power limit": 400_000,
        "pci": ["00000000:07:00.0", "0000:07:00.0", 0, 7, 0],
        "processes": [[4321, 6 * GIB], [77, None]],
        "mig mode": [0, 0],
        "mig instances": 0,
    }
    assert gpus[2]["name"] == LARGE
    assert gpus[3]["pci"] == ["0000000A:C7:00.0", "000A:C7:00.0", 10, 0xC7, 0]
    assert [gpus[3][name] for name in ("processes", "mig mode", "mig instances", "index by uuid")] == [
        [],
        [0, 0],
        0,
        3,
    ]


def test_pynvml_reads_the_versions(ask: Ask) -> None:
    assert ask("native_drivers.versions") == {"driver": "580.65.06", "cuda": 13000, "cuda, version 2": 13000}


def test_unknown_figures_and_missing_functions_are_said_to_be_so(ask: Ask) -> None:
    blank = replace(CARDS[0], used=None, util=None, temperature=None, milliwatts=None)
    unknown = dict.fromkeys(("memory", "utilization", "power", "power limit", "temperature"), 3)
    assert ask("native_drivers.errors_of_figures", driver=Driver((blank,))) == unknown | {"fan": 13}


@pytest.mark.parametrize("mode", [0, 2, 3])
def test_compute_modes(ask: Ask, mode: int) -> None:
    assert ask("native_drivers.compute_mode", driver=Driver((replace(CARDS[0], mode=mode),))) == mode


def test_mig_instances(ask: Ask) -> None:
    assert ask("native_drivers.mig_instances", driver=WITH_MIG) == {
        "mode": [1, 1],
        "instances": [[part.uuid, part.name, part.total, part.used] for part in PARTS],
        "error of utilization": 3,
    }


def test_a_gpu_is_lost_while_a_process_looks_and_comes_back(ask: Ask) -> None:
    assert ask("native_drivers.lost_and_back") == {
        "before": 31,
        "lost": {
            "error of its name": 15,
            "error of its handle": 15,
            "count": 4,
            "temperature of the first": 64,
        },
        "after": 31,
    }


@pytest.mark.parametrize(("code", "error"), [(18, "LibRmVersionMismatch"), (4, "NoPermission")])
def test_nvml_refuses_to_start(ask: Ask, code: int, error: str) -> None:
    found = ask("native_drivers.error_of_start", driver=replace(DRIVER, refuse=code))
    assert found == f"NVMLError_{error}"


def test_nvml_answers_only_between_its_start_and_its_last_shutdown(ask: Ask) -> None:
    assert ask("native_drivers.between_start_and_shutdown") == {
        "before": 1,
        "started twice": 0,
        "shut down once": 0,
        "shut down twice": 1,
        "one shutdown more": 1,
    }


def test_one_call_on_one_gpu_hangs(ask: Ask) -> None:
    hanging = replace(DRIVER, hangs=(("nvmlDeviceGetMemoryInfo", 1, float(LIMIT)),))
    assert ask("native_drivers.while_one_call_hangs", driver=hanging) == {
        "hangs": True,
        "memory of the first": CARDS[0].total,
        "name of the second": CARDS[1].name,
    }


def test_a_call_hangs_as_long_as_it_is_to(ask: Ask) -> None:
    slow = replace(DRIVER, hangs=(("nvmlDeviceGetMemoryInfo", 1, 1.5),))
    assert ask("native_drivers.seconds_of_a_call", driver=slow) >= 1.5


def test_cuda_says_nothing_before_it_is_started_and_keeps_the_mask_that_it_read(ask: Ask) -> None:
    found = ask("native_drivers.cuda_before_and_after_its_start", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert found == {
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


def test_cuda_cannot_be_used_in_a_child_forked_after_its_start(ask: Ask) -> None:
    refused, all_four = {"code": 3, "count": -1}, {"code": 0, "count": 4}
    assert ask("native_drivers.cuda_in_a_child") == {
        "early": {"before": refused, "start": 0, "after": all_four},
        "start": 0,
        "late": {"before": refused, "start": 3, "after": refused},
        "parent": all_four,
    }


MASKS = {
    None: "0123",
    "": "",
    "2,1": "21",
    "0,2,-1,1": "02",
    "-1": "",
    "all": "",
    "none": "",
    "0,0": "",
    "0,1,0": "",
    "1gpu2,2ampere": "12",
    " 3, 1": "31",
    "+1,-0": "10",
    "0;1": "0",
    "0 1": "0",
    '"0,1"': "",
    "0,,1": "0",
    "1,": "1",
    "0,9,1": "0",
    "99999999999999999999": "",
    "-18446744073709551615": "",
    "GPU-b2,GPU-a1000000": "10",
    CARDS[3].uuid: "3",
    "GPU-a1,GPU-c3,GPU-b2": "0",
    "GPU-c3": "",
    "GPU-c30,GPU-c3f": "23",
    "GPU-a,GPU-ee,GPU-b": "0",
    "GPU-a,GPU-a1": "",
    "GPU-a,1": "0",
    "1,GPU-a": "1",
    "gpu-a1": "",
    "MIG-1": "",
}


@pytest.mark.parametrize("mask", MASKS)
def test_cuda_reads_a_mask(ask: Ask, mask: str | None) -> None:
    variables = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if mask is not None:
        variables["CUDA_VISIBLE_DEVICES"] = mask
    expected = digits(*(CARDS[int(index)].uuid for index in MASKS[mask]))
    found = ask("native_drivers.cuda_devices", **variables)
    assert found["uuids"] == expected
    if expected:
        assert [found["start"], found["code"], found["count"]] == [0, 0, len(expected)]
    else:
        assert [found["start"], found["code"], found["count"]] == [100, 100, -1]


@pytest.mark.parametrize(
    ("driver", "order", "mask", "indices"),
    [
        (DRIVER, None, "0,1", "20"),
        (DRIVER, "FASTEST_FIRST", "3,2", "31"),
        (DRIVER, "PCI_BUS_ID", "0,1", "01"),
        (DRIVER.losing(0, 3), "PCI_BUS_ID", "0,1,2", "12"),
        (DRIVER.losing(3), "PCI_BUS_ID", "GPU-c3", "2"),
        (DRIVER.losing(1, 2, 3), "PCI_BUS_ID", "GPU-a,", "0"),
    ],
)
def test_cuda_orders_the_gpus_that_are_there(
    ask: Ask, driver: Driver, order: str | None, mask: str, indices: str
) -> None:
    variables = {"CUDA_DEVICE_ORDER": order} if order else {}
    found = ask("native_drivers.cuda_devices", driver=driver, CUDA_VISIBLE_DEVICES=mask, **variables)
    assert found["uuids"] == digits(*(CARDS[int(index)].uuid for index in indices))


@pytest.mark.parametrize(("mask", "part"), [("MIG-2,MIG-1", 1), ("MIG-1", 0), ("GPU-b2", 0), ("0,1", 0)])
def test_cuda_gives_a_process_one_mig_instance(ask: Ask, mask: str, part: int) -> None:
    variables = {"CUDA_VISIBLE_DEVICES": mask, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    found = ask("native_drivers.cuda_devices", driver=WITH_MIG, **variables)
    assert found["uuids"] == digits(PARTS[part].uuid)
    assert found["uuids, version 1"] == digits(CARDS[1].uuid)


def test_torch_counts_devices_through_nvml_and_reads_masks_alike(ask: Ask) -> None:
    # It leaves MIG masks to the driver.
    masks = [mask for mask in MASKS if mask is None or not mask.startswith("MIG-")]
    counts = ask("native_torch.counts", masks)
    assert dict(zip(masks, counts, strict=True)) == {mask: len(MASKS[mask]) for mask in masks}


def test_torch_reads_the_uuids(ask: Ask) -> None:
    assert ask("native_torch.uuids") == [card.uuid for card in CARDS]


def test_a_mistake_in_the_state_file_does_not_pass_for_an_answer(ask: Ask) -> None:
    assert ask("native_drivers.with_a_mistake_in_the_state") == {"nvml": 999, "cuda": 999}


def test_cards_stand_in_the_order_of_their_bus_ids() -> None:
    with pytest.raises(ValueError, match="bus ids"):
        Driver((CARDS[1], CARDS[0]))


def test_without_gcc_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="gcc"):
        build(tmp_path)
