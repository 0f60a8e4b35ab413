"""Which GPUs are near each other, through the real pynvml."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import gpu_magic
from gpu_magic.testing import simulate
from tests.machine import CARDS, Driver, environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Fresh

CODE = """
from gpu_magic.devices.nvml import Nvml
reader = Nvml()
reader.inventory()
print(sorted(reader.near()))
"""


def near(native: Path, tmp_path: Path, fresh: Fresh, driver: Driver) -> str:
    driver.write(tmp_path / "machine")
    return fresh(CODE, **environment(native, tmp_path / "machine")).strip()


def test_nvlink_and_one_pcie_switch_are_near(native: Path, tmp_path: Path, fresh: Fresh) -> None:
    links = ((0, -1), (-1, 5), (0, 5), (1, -1))  # each GPU's switch, and its group of NVLink
    cards = tuple(replace(card, switch=a, nvlink=b) for card, (a, b) in zip(CARDS, links, strict=True))
    assert near(native, tmp_path, fresh, Driver(cards)) == "[(0, 2), (1, 2)]"


def test_a_lost_gpu_is_near_none_and_hides_none(native: Path, tmp_path: Path, fresh: Fresh) -> None:
    cards = tuple(replace(card, nvlink=1) for card in CARDS)
    assert near(native, tmp_path, fresh, Driver(cards).losing(1)) == "[(0, 2), (0, 3), (2, 3)]"


def test_auto_takes_two_of_one_switch() -> None:
    with simulate("4xL4") as machine:
        machine.gpus[0].run("train.py", "maria", 20 << 30, work=90)
        assert [device.index for device in gpu_magic.choose("auto:2", near=True).devices] == [2, 3]


def test_gpus_of_a_dgx_are_all_linked() -> None:
    with simulate("4xA100-80GB"):
        assert len(gpu_magic.choose("auto:4", near=True).devices) == 4
