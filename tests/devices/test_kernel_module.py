"""GPUs without NVML, as in a container without the driver capability "utility": what /proc tells of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml
import pytest

from gpu_magic.devices.nvml import Nvml
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.errors import ChoiceError
from gpu_magic.gpus.request import parse
from gpu_magic.gpus.select import select

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpu_magic.devices.inventory import Inventory

UUIDS = tuple(f"GPU-{number}a000000-0000-4000-8000-0123456789ab" for number in range(3))
INFORMATION = """\
Model: \t\t NVIDIA A100-SXM4-80GB
IRQ:   \t\t 79
GPU UUID: \t {uuid}
Video BIOS: \t 92.00.45.00.03
Bus Type: \t PCIe
DMA Size: \t 47 bits
DMA Mask: \t 0x7fffffffffff
Bus Location: \t {bus_id}
Device Minor: \t {minor}
GPU Firmware: \t 580.65.06
GPU Excluded:\t {excluded}
"""


def put(
    root: Path, bus_id: str, uuid: str, minor: int, *, excluded: str = "No", can_be_used: bool = True
) -> None:
    """Put a GPU of the machine into /proc, and its device file into /dev where it can be used here."""
    folder = root / "proc/driver/nvidia/gpus" / bus_id
    folder.mkdir(parents=True)
    facts = {"uuid": uuid, "bus_id": bus_id, "minor": minor, "excluded": excluded}
    (folder / "information").write_text(INFORMATION.format(**facts))
    (root / "dev").mkdir(exist_ok=True)
    if can_be_used:
        (root / f"dev/nvidia{minor}").touch()


class _MissingLibrary:
    """What lies beneath pynvml where libnvidia-ml.so.1 is missing, also on a machine that has it."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *_: int(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)


@pytest.fixture(autouse=True)
def _no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlLib", _MissingLibrary())
    monkeypatch.setattr(pynvml, "_nvmlLib_refcount", 0)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})


@pytest.fixture
def machine(tmp_path: Path) -> Inventory:
    """A machine of four GPUs, of which this container was given three; minors are not in bus order."""
    put(tmp_path, "0000:07:00.0", UUIDS[0], 3)
    put(tmp_path, "0000:0b:00.0", "GPU-ff000000-0000-4000-8000-0123456789ab", 0, can_be_used=False)
    put(tmp_path, "0000:48:00.0", UUIDS[1], 1)
    put(tmp_path, "0000:c8:00.0", UUIDS[2], 2)
    return Nvml(root=tmp_path).inventory()


def test_the_gpus_that_can_be_used_are_known_in_the_order_of_their_bus_ids(machine: Inventory) -> None:
    assert [(gpu.index, gpu.uuid) for gpu in machine] == list(enumerate(UUIDS))
    assert machine[1].bus_id == "00000000:48:00.0"
    assert machine[0].name == "NVIDIA A100-SXM4-80GB"


def test_no_figure_of_them_is_known(machine: Inventory) -> None:
    assert machine[0].memory_total is machine[0].status.memory_used is UNKNOWN
    assert machine[0].is_busy is UNKNOWN


def test_it_is_said_what_is_missing_and_the_variable_that_mends_it(machine: Inventory) -> None:
    assert machine.problem == ""
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in machine.limitation


@pytest.mark.parametrize(("request_", "mask"), [("2,0", "2,0"), ("GPU-1a", "1"), ("all", "0,1,2")])
def test_they_are_chosen_by_number_and_by_uuid(machine: Inventory, request_: str, mask: str) -> None:
    selection = select(parse(request_), machine, (None, None))
    assert (selection.mask, selection.order) == (mask, "PCI_BUS_ID")


def test_auto_does_not_guess_among_several(machine: Inventory) -> None:
    with pytest.raises(ChoiceError, match="none can be picked"):
        select(parse("auto"), machine, (None, None))


def test_auto_takes_the_only_one(tmp_path: Path) -> None:
    put(tmp_path, "0000:07:00.0", UUIDS[0], 0)
    assert select(parse("auto"), Nvml(root=tmp_path).inventory(), (None, None)).mask == "0"


def test_a_uuid_that_the_kernel_module_does_not_know_yet_is_unknown(tmp_path: Path) -> None:
    put(tmp_path, "0000:07:00.0", "GPU-????????-????-????-????-????????????", 0)
    assert Nvml(root=tmp_path).inventory()[0].uuid is UNKNOWN


def test_a_gpu_that_an_administrator_has_excluded_is_none(tmp_path: Path) -> None:
    put(tmp_path, "0000:07:00.0", UUIDS[0], 0, excluded="Yes")
    put(tmp_path, "0000:0b:00.0", UUIDS[1], 1)
    assert [gpu.uuid for gpu in Nvml(root=tmp_path).inventory()] == [UUIDS[1]]


def test_a_machine_whose_gpus_were_not_given_to_this_container_has_none(tmp_path: Path) -> None:
    put(tmp_path, "0000:07:00.0", UUIDS[0], 0, can_be_used=False)
    inventory = Nvml(root=tmp_path).inventory()
    assert len(inventory) == 0
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in inventory.problem
