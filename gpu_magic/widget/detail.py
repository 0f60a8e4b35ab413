"""A row's detail as the pages get it: processes, what holds the GPU back, this kernel's variables there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from gpu_magic.devices.model import UNKNOWN, Gpu, idle_text
from gpu_magic.process.session import current
from gpu_magic.processes.processes import next_step
from gpu_magic.text import age_text, bytes_text, printable, shortened
from gpu_magic.widget.serialization import figure

if TYPE_CHECKING:
    from gpu_magic.devices.model import Device, GpuProcess
    from gpu_magic.widget.variables import Variables

__all__ = ["DeviceDetail", "read_device_detail"]

_LONGEST_PATH = 120


class ProcessRow(TypedDict):
    """A process on the device. A text is empty where it is not known."""

    pid: int
    started: int | None  # by which it is told from a later process with its number
    title: str  # the notebook of a kernel of one's own, else the script, or the program
    folder: str  # where that notebook is
    notebook: str  # from which another program of one's own was started
    whose: str  # "this kernel", "started by this kernel"
    owner: str
    age: str
    memory: str
    step: str  # what can be done next to end it: see `next_step`


class DeviceDetail(TypedDict, total=False):
    """What is shown below an open row. Parts that have not changed are left out of a message."""

    memory: list[int | None]  # in thousandths, an item each second: in the answer to `SetDetails` alone
    power_limit: int | str | None  # watts; None: unknown, "": an instance has none
    slowdowns: list[str] | None  # what slows it down, in a few words each; None: unknown
    processes: list[ProcessRow]
    is_listed: bool  # whether the driver lists processes, and so there are none where none is there
    variables: Variables | None  # this kernel's; None: not known yet


def read_device_detail(device: Device, variables: Variables | None) -> DeviceDetail:
    """Read what is shown below a row, of a device as a snapshot has it."""
    processes = device.status.processes
    detail = DeviceDetail(
        power_limit="",
        slowdowns=[],
        processes=[_process_row(process) for process in (() if processes is UNKNOWN else processes)],
        is_listed=processes is not UNKNOWN,
        variables=variables,
    )
    if isinstance(device, Gpu):
        limits = current().reader.limits(device)
        detail["power_limit"] = figure(limits.power)
        detail["slowdowns"] = None if limits.slowdowns is UNKNOWN else list(limits.slowdowns)
    return detail


def _process_row(process: GpuProcess) -> ProcessRow:
    name = f"process {process.pid}" if process.name is UNKNOWN else process.name
    folder, _, file = process.notebook.rpartition("/") if process.is_kernel else ("", "", "")
    age = "" if process.age is UNKNOWN else age_text(process.age)
    whose = (
        "" if not process.mine else "this kernel" if process.pid == os.getpid() else "started by this kernel"
    )
    return ProcessRow(
        pid=process.pid,
        started=None if process.started is UNKNOWN else process.started,
        title=shortened(file, _LONGEST_PATH) or printable(name),
        folder=_path_text(folder),
        notebook="" if process.is_kernel else _path_text(process.notebook),
        whose=whose,
        owner="" if process.owner is UNKNOWN else printable(process.owner),
        age=", ".join(filter(None, (age, idle_text(process.idle)))),
        memory="" if process.memory is UNKNOWN else bytes_text(process.memory),
        step=next_step(process),
    )


def _path_text(path: str) -> str:
    """Return a path as it is shown: from the home folder on, and of a long one its end."""
    home = str(Path.home())
    text = f"~{path.removeprefix(home)}" if f"{path}/".startswith(f"{home}/") else path
    text = text if len(text) <= _LONGEST_PATH else f"…{text[1 - _LONGEST_PATH :]}"
    return shortened(text, _LONGEST_PATH)
