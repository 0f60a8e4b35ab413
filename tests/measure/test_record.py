"""Records show themselves: as lines, as a line, as JSON, with a chart, and as a table."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.measure.record import CellUsage, GpuUsage, History, OtherProcess, Sample

GIB = 1 << 30
GPU = GpuUsage("cuda:0", "GPU 2", "A100", "GPU-1", 80.0, 60.0, 0.4, 12 * GIB, "driver", False, 0, 532.4)
USAGE = CellUsage(3, "train()", 0.0, 2.0, 1.0, 0.5, (GPU,), versions={"driver": "580.65.06"})
CHEN = OtherProcess(7, "train\n\x1b[31m.py", "chen")
JOBS = tuple(OtherProcess(pid, f"job{pid}", "") for pid in range(5))


def of(usage: CellUsage = USAGE, **gpu: Any) -> CellUsage:
    """Return what a cell has used of a GPU of which some figures differ."""
    return replace(usage, gpus=(replace(GPU, **gpu),))


@pytest.mark.parametrize(
    ("gpu", "says"),
    [
        ({}, "80 % busy, idle for 400 ms, peak about 12.0 GiB (driver), nothing stayed, 532 J (whole GPU)"),
        ({"busy": UNKNOWN, "energy": UNKNOWN}, "how busy is not known, peak about 12.0 GiB (driver), noth"),
        ({"energy": UNKNOWN}, "nothing stayed, energy not known"),
        ({"others": (CHEN,)}, "80 % busy (60 % by this process), idle for"),
        ({"others": (CHEN,)}, "shared with train��[31m.py (chen)"),
        ({"others": JOBS}, "shared with job0, job1, job2 and 2 more"),
        ({"peak": UNKNOWN}, "idle for 400 ms, memory not known, 532 J"),
        (
            {"is_exact": True, "peak_by": "PyTorch", "stayed": -GIB},
            "peak 12.0 GiB (PyTorch), 1.0 GiB given back",
        ),
        ({"energy": 0.236, "stayed": 6 << 20}, "6.0 MiB stayed, 0.24 J (whole GPU)"),
    ],
)
def test_the_line_of_a_gpu(gpu: dict[str, Any], says: str) -> None:
    text = repr(of(**gpu))
    assert text.startswith("Wall 2 s · CPU 1.5 s (user 1 s, sys 500 ms) · cuda:0 = GPU 2: ")
    assert says in text
    assert text.isprintable()


def test_a_line_for_each_gpu_and_for_none_why() -> None:
    other = replace(GPU, name="pretend:0", gpu="", uuid="", busy=UNKNOWN)
    lines = repr(replace(USAGE, gpus=(GPU, other), simulated="2xA100-80GB")).splitlines()[1:]
    assert [line.partition(": ")[0] for line in lines] == ["cuda:0 = SIMULATED GPU 2", "pretend:0"]
    assert "busy" not in lines[1]  # nobody tells it, and its energy
    assert repr(replace(USAGE, gpus=())).endswith(" · no GPU was used")
    why = replace(USAGE, gpus=(), problem="No driver is here. Install one.")
    assert repr(why).endswith(" · No driver is here")
    assert "too short to tell how busy" in repr(of(replace(USAGE, wall=0.5), busy=UNKNOWN))
    short = replace(USAGE, gpus=(replace(GPU, energy=UNKNOWN), GpuUsage("cuda:1"))).summary()
    assert short == "[3] 2 s · cuda:0 = GPU 2: 80 % busy, peak about 12.0 GiB · cuda:1: used"


def test_json_has_null_for_unknown_and_metadata_has_no_names() -> None:
    usage = of(energy=UNKNOWN, others=(CHEN,), samples=(Sample(0.0, 1, 2),))
    (gpu,) = json.loads(json.dumps(usage.to_dict()))["gpus"]
    assert (gpu["energy"], gpu["busy"], gpu["others"][0]["owner"]) == (None, 80.0, "chen")
    assert "samples" not in gpu
    assert usage.metadata()["gpus"][0]["others"] == 1
    assert not {"train", "chen"} & set(json.dumps(usage.metadata()).replace("()", "").split('"'))


def test_a_chart_has_no_point_where_nothing_was_known() -> None:
    def page(*samples: Sample, **more: Any) -> str:
        return of(samples=samples, **more)._repr_html_()

    samples = [Sample(at / 2, at * GIB, 50) for at in range(4)]
    plain = page(*samples)
    assert "points='0.0,47.0 0.0,47.0 90.0,32.0 180.0,17.0 270.0,2.0 270.0,47.0'" in plain
    assert "memory (area), up to 3.0 GiB" in plain
    assert page(*samples, Sample(1.8, UNKNOWN, UNKNOWN)) == plain
    # The last reading is made when the time is taken.
    assert "360.0,32.0 360.0,47.0'" in page(*samples, Sample(4.0, GIB, 50))
    for few in (samples[:3], [Sample(at, UNKNOWN, UNKNOWN) for at in range(9)]):
        assert "<svg" not in page(*few)


def test_the_history_is_a_table_the_longest_first_and_a_data_frame() -> None:
    assert repr(History()).startswith("No cell was measured")
    history = History([replace(USAGE, cell=None, code="short()", wall=0.1, gpus=()), USAGE])
    heading, *rows, total = repr(history).splitlines()
    assert heading.split() == ["Cell", "Wall", "CPU", "Busy", "Peak", "Energy", "GPUs"]
    assert rows[0].split() == "[3] 2 s 1.5 s 80 % 12.0 GiB 532 J GPU 2 train()".split()
    assert rows[1].endswith("short()")
    assert total == "2 measured, 2.1 s in all, 532 J of whole GPUs, whoever used them."
    # Joules of some GPUs are not those of the cell.
    two = replace(USAGE, gpus=(GPU, replace(GPU, gpu="GPU 3", busy=40.0, energy=UNKNOWN)))
    row = repr(History([two])).splitlines()[1]
    assert row.split() == "[3] 2 s 1.5 s 60 % 12.0 GiB ? GPU 2 and GPU 3 train()".split()
    frame = history.to_pandas()
    assert list(frame["code"]) == ["short()", "train()"]
    assert frame["peak"][1] == 12 * GIB
    many = repr(History([USAGE] * 50))
    assert (len(many.splitlines()), "the 40 longest are shown" in many) == (42, True)
