"""Processes of this user on GPUs that are not this one's: what an earlier kernel or script may have left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.diagnosis.commands import is_ipython
from gpu_magic.diagnosis.finding import Finding
from gpu_magic.diagnosis.known import program
from gpu_magic.process.own_processes import devices_with_processes
from gpu_magic.text import age_text, bytes_text, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.devices.model import Device
    from gpu_magic.devices.status import GpuProcess
    from gpu_magic.diagnosis.facts import Facts

__all__ = ["check_leftovers"]


def check_leftovers(facts: Facts) -> Iterator[Finding]:
    if facts.machine is UNKNOWN:
        return
    found: dict[int, tuple[GpuProcess, list[tuple[Device, str]]]] = {}
    for device in devices_with_processes(facts.machine):
        for process in () if device.status.users is UNKNOWN else device.status.users:
            if process.is_own and not process.mine:
                memory = "memory" if process.memory is UNKNOWN else bytes_text(process.memory)
                found.setdefault(process.pid, (process, []))[1].append((device, memory))
    for process, held in found.values():
        what = listed(f"{memory} on {device.label}" for device, memory in held)
        age = "" if process.age is UNKNOWN else f", and was started {age_text(process.age)} ago"
        called = process.notebook or ("A process" if process.name is UNKNOWN else process.name)
        kernel = "The kernel of " * process.is_kernel
        pid = process.pid
        ends = f"%gpus --end {pid}" if is_ipython(program(facts)) else f"kill {pid}"
        yield Finding(
            "worth knowing",
            "own processes",
            f"{kernel}{called} (pid {pid}) is yours too: it has {what}{age}.",
            "" if facts.machine.simulated else "If it is left over:",  # nothing runs there to be ended
            "" if facts.machine.simulated else ends,
            public=f"Another process of this user has {what}{age}.",
        )
