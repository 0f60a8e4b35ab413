"""What a process sees of AMD's GPUs, through the real amdsmi over the pretend libraries."""

from __future__ import annotations

import math
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import gpu_magic
from gpu_magic.devices.amd import _opens, _places, find_amdsmi
from gpu_magic.devices.model import UNKNOWN
from gpu_magic.process.session import current


def inventory() -> dict[str, Any]:
    return gpu_magic.gpus().to_dict()


def table() -> list[str]:
    gpus = gpu_magic.gpus()
    return [repr(gpus), gpus._repr_html_()]


def counters(seconds: float) -> list[Any]:
    """Return what a block of some seconds has cost on the first GPU that it has used; None is not known."""
    state = Path(os.environ["GPU_MAGIC_TEST_AMD_STATE"])
    new = state.with_name("next")
    new.write_text(state.read_text().replace("proc 1 ", f"proc {os.getpid()} "))
    new.replace(state)
    with gpu_magic.gpu_time() as measured:
        time.sleep(seconds)
    gpu = measured.usage.to_dict()["gpus"][0]
    return [gpu["name"], gpu["gpu"], gpu["energy"], measured.usage.wall, gpu["peak"], gpu["busy"]]


def limits() -> list[Any]:
    """Return how much power the first GPU may draw, and what slows it down; None is not known."""
    found = current().reader.limits(gpu_magic.gpus()[0])
    power, slow = (None if one is UNKNOWN else one for one in (found.power, found.slowdowns))
    return [power, slow]


def slowdowns(*looks: list[int]) -> list[Any]:
    """Return what slows the first GPU down, at looks between which its counts become these."""
    state = Path(os.environ["GPU_MAGIC_TEST_AMD_STATE"])
    found = []
    for counts in looks:
        line = f"slow -1 {' '.join(map(str, counts))}"
        new = state.with_name("next")
        new.write_text(re.sub("^slow .*$", line, state.read_text(), count=1, flags=re.MULTILINE))
        new.replace(state)
        found.append(limits()[1])
    return found


def lost_and_back(number: int) -> list[str]:
    """Return what is wrong with a GPU before it is lost, then, a minute later, and once it is back."""
    state = Path(os.environ["GPU_MAGIC_TEST_AMD_STATE"])
    there = state.read_text()
    found = [gpu_magic.gpus()[number].problem]
    lines = there.splitlines(keepends=True)
    cards = [position for position, line in enumerate(lines) if line.startswith("gpu ")]
    lines[cards[number]] = lines[cards[number]].replace(" ok ", " lost ")
    state.write_text("".join(lines))
    gpu = gpu_magic.gpus()[number]
    found += [gpu.problem, str(gpu.name)]
    reader = current().reader._amd
    assert reader is not None
    reader._opened_at = -math.inf  # all are found again
    later = gpu_magic.gpus()
    found += [str(later[number].name), str(later.driver_version)]
    state.write_text(there)
    return [*found, gpu_magic.gpus()[number].problem]


def lost_at_first(number: int) -> list[Any]:
    """Return the name of a GPU that is lost, and once it is back."""
    state = Path(os.environ["GPU_MAGIC_TEST_AMD_STATE"])
    found = [gpu_magic.gpus().to_dict()["gpus"][number]["name"]]
    state.write_text(state.read_text().replace(" lost ", " ok "))
    return [*found, gpu_magic.gpus()[number].name]


def is_library_beside(*folders: str) -> list[bool]:
    """Return whether AMD SMI's library is found for a module in each of the folders."""
    return [_opens(_places(Path(folder))) for folder in folders]


def closed() -> str:
    """Return what AMD SMI says once our reader is closed, which has started it."""
    gpu_magic.gpus()
    current().reader.close()
    amdsmi: Any = find_amdsmi()
    try:
        amdsmi.amdsmi_get_processor_handles()
    except amdsmi.AmdSmiException as error:
        return str(error)
    return "started"


def hangs() -> list[Any]:
    """Return which GPUs hang, and that the others have their figures."""
    return [[gpu.problem, None if gpu.problem else gpu.status.temperature] for gpu in gpu_magic.gpus()]


def imported_by(first: str) -> dict[str, bool]:
    """Return whether amdsmi is imported after a piece of code, and whether it was found to be usable."""
    exec(first, {})
    loaded = "amdsmi" in sys.modules
    return {"imported": loaded, "usable": find_amdsmi() is not None}


def gone_beside_nvidias() -> list[Any]:
    """Return whose GPUs there are before AMD's driver is unloaded, and after, and what is then said."""
    before = list(gpu_magic.gpus().vendors)
    current().reader.close()
    state = Path(os.environ["GPU_MAGIC_TEST_AMD_STATE"])
    state.write_text(state.read_text().replace("refuse 0", "refuse 34"))
    gpus = gpu_magic.gpus()
    return [before, list(gpus.vendors), gpus.limitation]
