"""The table: one content, as text and as HTML."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_magic
from gpu_magic.devices.model import UNKNOWN, Claim, Gpu, GpuProcess, GpuStatus, Inventory
from gpu_magic.devices.problems import Cause, Problem
from gpu_magic.gpus.table import Gpus, rows
from gpu_magic.process.mask import Variables
from gpu_magic.process.session import current
from gpu_magic.process.view import Snapshot
from gpu_magic.testing import simulate

if TYPE_CHECKING:
    from gpu_magic.devices.nvml import Nvml

GIB = 1 << 30


class Words(HTMLParser):
    """Collects the text of a page, as a browser would show it, and its tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self._text, self._style = "", False
        self.feed(page)

    @property
    def words(self) -> list[str]:
        return self._text.split()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._style = tag == "style"
        self._text += "" if tag in ("span", "bdi") else " "  # which are within words
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        self._style = False

    def handle_data(self, data: str) -> None:
        if not self._style:
            self._text += data


def test_text_and_html_say_the_same(nvml: Nvml) -> None:
    with simulate("1xA100-80GB(3g.40gb)+7xA100-80GB", clock=lambda: 0.0) as machine:
        machine.populate()
        machine.gpus[6].lose()
        shown = Gpus(nvml.inventory(), now=Variables(f"{machine.gpus[1].uuid},no", "PCI_BUS_ID"))
    text = repr(shown).replace("! ", "").split()
    page = Words(shown._repr_html_()).words
    assert text == page
    assert "SIMULATED" in text
    assert "cuda:0" in text


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
def test_hostile_names_stay_text(name: str, owner: str, mask: str) -> None:
    status = GpuStatus(GIB, GIB, 1, 30, 50.0, (GpuProcess(1, name, owner, GIB),))
    machine = Inventory((Gpu(0, "GPU-1", name, "0", 80 * GIB, status),), name, name)
    inventory = Gpus(machine, Variables(mask, mask), Variables(mask, mask))
    assert Words(inventory._repr_html_()).tags <= {
        "div", "style", "table", "thead", "tbody", "tr", "th", "td", "p", "span", "bdi"
    }  # fmt: skip
    lines = repr(inventory).split("\n")
    assert all(line.isprintable() for line in lines)
    assert len(lines) >= 7  # with a note if the mask is wrong


def test_terabytes_have_their_own_unit_in_the_same_column() -> None:
    def gpu(number: int, total: int, used: int) -> Gpu:
        return Gpu(
            number, f"GPU-{number}", "A100", "0", total, GpuStatus(used, total - used, 0, 30, 50.0, ())
        )

    tib = 1024 * GIB
    all_of_them = gpu(0, 80 * GIB, GIB // 2), gpu(1, 16 * tib, GIB // 2), gpu(2, 16 * tib, 3 * tib)
    _title, headings, *rows = repr(Gpus(Inventory(all_of_them))).split("\n")[:5]
    end = headings.index("Memory") + len("Memory")
    assert [row[:end].split("A100")[1].strip() for row in rows] == [
        "0.5 / 80.0 GiB",
        "0.5 GiB / 16.0 TiB",
        "3.0 / 16.0 TiB",
    ]


IDLE = GpuStatus(GIB, 79 * GIB, 0, 30, 50.0, ())


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (GpuStatus(GIB, 79 * GIB, UNKNOWN, 30, 50.0, ()), "no process"),
        (GpuStatus(UNKNOWN, UNKNOWN, 0, 30, 50.0, ()), "no process"),
        (GpuStatus(GIB, 79 * GIB, 0, 30, 50.0, UNKNOWN), "?"),
        (GpuStatus(GIB, 79 * GIB, 90, 30, 50.0, UNKNOWN), "in use (owner unknown)"),
        (GpuStatus(GIB, 79 * GIB, 0, 30, 50.0, ()), "free"),
    ],
)
def test_what_was_not_read_is_neither_free_nor_in_use(status: GpuStatus, says: str) -> None:
    gpu = Gpu(0, "GPU-1", "A100", "0", 80 * GIB, status)
    _title, _headings, row, *_ = repr(Gpus(Inventory((gpu,)))).split("\n")
    assert row.endswith(f"  {says}")
    assert gpu.is_free is (says == "free")


@pytest.mark.parametrize(
    ("gpu", "says"),
    [
        (Gpu(0, "GPU-1", "A100", "0", 80 * GIB, IDLE, compute_mode="Prohibited"), ["no process can use it (Prohibited)"]),
        (Gpu(0, "GPU-1", "A100", "0", 80 * GIB, IDLE, compute_mode="Exclusive_Process"), ["free", "one process at a time (Exclusive_Process)"]),
        (Gpu(0, "GPU-1", "A100", "0", 80 * GIB, GpuStatus(60 * GIB, 20 * GIB, 0, 30, 50.0, ())), ["in use (owner unknown)"]),
        (Gpu(0), ["?"]),
    ],
)  # fmt: skip
def test_who_uses_a_gpu(gpu: Gpu, says: list[str]) -> None:
    shown = Gpus(Inventory((gpu,), limitation=Problem(Cause.NO_FIGURES)))
    _title, headings, *rest = repr(shown).split("\n")
    column = headings.index("Used by")
    assert [line[column:] for line in rest[: rest.index("")]] == says
    assert rest[-1].startswith("! NVML is missing")
    assert "NVML is missing" in shown._repr_html_()


def test_an_idle_mig_instance_is_free_and_begins_with_its_profile() -> None:
    with simulate("1xA100-80GB(3g.40gb,4g.40gb)", clock=lambda: 0.0) as machine:
        machine.gpus[0].mig[1].processes.append(machine.gpus[0].run("train.py", "maria", 5 * GIB))
        uuids = [instance.uuid for instance in machine.gpus[0].mig]
        idle, busy = repr(gpu_magic.gpus()).split("\n")[3:5]
    assert idle.split()[:4] == ["├", "0:0", "3g.40gb", f"{uuids[0][:12]}…"]
    assert idle.endswith("  free")
    assert busy.endswith("  maria: train.py, 5.0 GiB")


def test_to_dict_is_json_with_none_for_unknown(nvml: Nvml) -> None:
    with simulate("1xA100-80GB(3g.40gb)+1xT4", clock=lambda: 0.0) as machine:
        machine.gpus[1].run("train.py", "maria", None)
        data = json.loads(json.dumps(gpu_magic.gpus().to_dict()))
        facts = nvml.inventory().to_dict()
    assert [(one["index"], one["gpu"]) for one in data["gpus"]] == [(0, 0), (None, 0), (1, 1)]
    assert data["gpus"][2]["processes"][0]["memory"] is None
    assert data["gpus"][1]["utilization"] is None
    assert data["simulated"]
    assert facts == data


def test_columns_line_up() -> None:
    with simulate("12xRTX-4090+1xT4", clock=lambda: 0.0) as machine:
        machine.populate()
        lines = repr(gpu_magic.gpus()).partition("\n\n")[0].split("\n")[1:]
    starts = {re.search(r"(?<=GiB)\s+", line).end() for line in lines[1:]}
    assert len(lines) == 14
    assert max(starts) - min(starts) <= 3  # the figures that follow are right-aligned


def test_it_says_once_since_when_a_process_is_idle() -> None:
    process = GpuProcess(11, "train.py", "tom", 21 * GIB, idle=32_400)
    claims = tuple(Claim("tom", 0.0, pid, idle=32_400) for pid in (11, 12))
    gpu = Gpu(0, "GPU-1", status=GpuStatus(processes=(process,), claims=claims))
    (row,) = rows(Gpus(Inventory((gpu,))))
    users = list(map(str, row.users))
    assert users[0] == "tom: train.py, 21.0 GiB, idle 9 h"
    assert ["idle 9 h" in user for user in users] == [True, False, True]
    # In a container, the driver's number 11 is not that of the claim.
    hidden = GpuProcess(11, memory=21 * GIB)
    gpu = Gpu(0, "GPU-1", status=GpuStatus(processes=(hidden,), claims=claims))
    (row,) = rows(Gpus(Inventory((gpu,))))
    assert ["idle 9 h" in user for user in map(str, row.users)] == [False, True, True]


def test_memory_of_a_process_that_cannot_be_seen_is_neither_this_process_s_nor_another_s() -> None:
    """In a container, it can be this one."""
    with simulate("1xA100-80GB") as machine:
        machine.gpus[0].run("", UNKNOWN, 40 << 30)
        (row,) = rows(Snapshot.take(current()))
    assert row.shares[:2] == (0, 0)
    assert row.shares.used > 0.5
