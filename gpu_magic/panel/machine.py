"""The machine as pages get it: a header, a row for each device, and the details of open rows."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.model import UNKNOWN, Gpu, idle_text
from gpu_magic.devices.processes import program_text
from gpu_magic.errors import ChoiceError
from gpu_magic.frameworks import imported
from gpu_magic.frameworks.target import LogicalDevice
from gpu_magic.gpus.auto import best_first, held_by
from gpu_magic.gpus.table import problem_text, rows
from gpu_magic.objects.namespace import variables_of
from gpu_magic.objects.physical import LazySnapshot, physical
from gpu_magic.objects.walk import Budget
from gpu_magic.objects.where import memory_by_device
from gpu_magic.process.find import whole_gpus
from gpu_magic.process.mask import Flaw
from gpu_magic.process.parked import parked
from gpu_magic.process.session import current
from gpu_magic.process.visible import in_force
from gpu_magic.processes.processes import next_step
from gpu_magic.text import GIB, age_text, bytes_text, end_of_path, page_text, printable, shortened, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpu_magic.devices.model import Device, GpuProcess, Unknown
    from gpu_magic.gpus.table import Row
    from gpu_magic.process.given import Given
    from gpu_magic.process.view import Snapshot

__all__ = ["History", "detail_of", "find_variables", "key_of", "serialize"]

_SAMPLES = 180  # one each second: three minutes
_LONGEST_PATH = 120
_MOST_VARIABLES = 10
_LONGEST_VARIABLE = 40
_WALK_SECONDS = 0.2  # the longest delay of the next cell; a fifth of the limit of %where


def serialize(snapshot: Snapshot) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the header and the rows."""
    session, given, shown = current(), snapshot.given, list(rows(snapshot))
    is_known = snapshot.driver_version is not UNKNOWN
    header = {
        "host": printable(socket.gethostname()),
        "driver": printable(f"driver {snapshot.driver_version}") if is_known else "",
        "simulated": printable(snapshot.simulated),  # the profile of a simulated machine
        # Why no GPU can be read.
        "problem": page_text(problem_text(snapshot) or str(snapshot.limitation or "")),
        "cuda_state": snapshot.guard.state.value,  # see `process.drivers.State`
        "cuda_text": page_text(snapshot.guard.sentence),  # `cuda_state` as a sentence
        "runtime": snapshot.guard.runtime,  # "CUDA" or "ROCm"
        "notes": [
            *(page_text(str(note)) for note in snapshot.notes),
            *([str(snapshot.others)] if snapshot.others else []),
            *_notes_on_ipykernel(),
        ],  # on CUDA_VISIBLE_DEVICES, for example
        # What other code has set in place of the choice, which the chip also shows; empty: the choice stands.
        "replaced": "".join(str(note) for note in snapshot.notes if note.flaw is Flaw.REPLACED),
        "allotted": page_text(given.text),  # "allotted by Slurm job 123: GPUs 2, 5"
        "launch_devices": _keys(_launch_devices(snapshot)),  # what "reset" chooses, if known
        "hides_devices": snapshot.visible is not UNKNOWN and not all(row.is_visible for row in shown),
        "memory_options": session.memory_options,  # of the latest choice: " --growth"
        "least_busy": _keys(_best_first(given)),  # the GPUs that "auto" picks from, the least busy first
    }
    return header, [_row(row, given) for row in shown]


def _notes_on_ipykernel() -> list[str]:
    """Return a note on ipykernel 7.0 to 7.3, which can miss a message while it sends a reply (#1529)."""
    module: Any = sys.modules.get("ipykernel")  # a kernel has imported it
    if module is None or not (7, 0) <= module.version_info[:2] < (7, 4):
        return []
    what = f"ipykernel {module.__version__} can miss a cell or a click until the next one"
    return [f"{what}: pip install --upgrade ipykernel"]


def _launch_devices(snapshot: Snapshot) -> Sequence[Device]:
    """Return the devices that the process was launched with; none if they or their order are unknown."""
    machine, devices = snapshot.machine, snapshot.given.reading.devices
    if not in_force(snapshot.inherited, machine):
        return whole_gpus(machine.devices) if machine.is_uniform else []
    return [] if devices is UNKNOWN else devices


def _best_first(given: Given) -> Sequence[Device]:
    """Return the devices that plain `auto` picks from, the best first."""
    try:
        return best_first(given.pool)
    except ChoiceError:  # the devices that may be chosen are unknown
        return ()


def _keys(devices: Sequence[Device]) -> str:
    return ",".join(map(key_of, devices))


def key_of(device: Device) -> str:
    """Return what users type for a device. Messages call it by this key."""
    return device.number_text if isinstance(device, Gpu) else str(device.uuid)


def _row(row: Row, given: Given) -> dict[str, Any]:
    device, shares = row.device, row.shares
    return {
        "key": key_of(device),
        "label": row.label,  # nvidia-smi's number; for an instance, `├` or `└` and its number
        "name": row.name,
        "total": row.total,  # memory: "80.0 GiB"
        "total_gib": _gib(device.memory_total),
        "used": _gib(device.status.memory_used),
        # In thousandths of the memory: used by this kernel, by other processes, and in all.
        "shares": [round(share * 1000) for share in (shares.mine, shares.others, shares.used)],
        # Percent, degrees Celsius, watts.
        "utilization": _figure(row.utilization),
        "temperature": _figure(row.temperature),
        "power": _figure(row.power),
        "users": [[*map(page_text, texts), is_own] for *texts, is_own in row.users],  # see `UsedBy`
        "usage": row.usage,  # free, busy, mine, unknown, problem
        "visible_as": row.visible_as,  # in this process: "cuda:0", "not visible", "not given", or empty
        "is_held": bool(held_by(device)),  # whether another process uses or has claimed it
        "unavailable": printable(given.why_not(device)),  # why it can't be chosen; empty if it can
        # The number of the GPU that an instance belongs to.
        "parent": "" if isinstance(device, Gpu) else str(device.gpu_index),
    }


def _gib(size: int | Unknown) -> float | None:
    return None if size is UNKNOWN else round(size / GIB, 1)


def _figure(value: float | Unknown | None) -> int | str | None:
    """Return a figure as pages get it: None if it is unknown, "" if the device has none."""
    return "" if value is None else None if value is UNKNOWN else round(value)


class History:
    """Utilization (percent) and memory (thousandths) of each device, an item per second, the newest last.

    `second` is the time of the latest reading. An item is None if it is unknown or was not read.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._samples: dict[str, deque[tuple[int | None, int | None]]] = {}
        self._now, self._second_began = now, now()
        self.second = 0

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Add a reading. It replaces an earlier reading of the same second."""
        passed = round(self._now() - self._second_began)  # a reading may come half a second off
        self._second_began += passed
        self.second += passed
        before, self._samples = self._samples, {}
        for row in rows:
            samples = before.get(row["key"]) or deque(maxlen=_SAMPLES)
            if samples and not passed:
                samples.pop()
            samples.extend([(None, None)] * min(_SAMPLES, passed - 1 if samples else 0))
            utilization = row["utilization"] if isinstance(row["utilization"], int) else None
            samples.append((utilization, None if row["used"] is None else row["shares"][2]))
            self._samples[row["key"]] = samples

    def utilization(self) -> dict[str, list[int | None]]:
        return {key: [utilization for utilization, _ in samples] for key, samples in self._samples.items()}

    def memory(self, key: str) -> list[int | None]:
        return [memory for _, memory in self._samples.get(key, ())]


def detail_of(device: Device) -> dict[str, Any]:
    """Return the details of a device, which are shown below its open row."""
    processes = device.status.processes
    detail: dict[str, Any] = {
        "power_limit": "",  # watts; None: unknown, "": an instance has none
        "slowdowns": [],  # what slows the GPU down, in a few words each; None: unknown
        "processes": [_process(process) for process in (() if processes is UNKNOWN else processes)],
        "is_listed": processes is not UNKNOWN,  # if true, an empty list means that there are none
    }
    if isinstance(device, Gpu):
        limits = current().reader.limits(device)
        detail["power_limit"] = _figure(limits.power)
        detail["slowdowns"] = None if limits.slowdowns is UNKNOWN else list(limits.slowdowns)
    return detail


def _process(process: GpuProcess) -> dict[str, Any]:
    """Return a process as pages show it. An unknown text is empty."""
    folder, _, file = process.notebook.rpartition("/") if process.is_kernel else ("", "", "")
    age = "" if process.age is UNKNOWN else age_text(process.age)
    whose = "this kernel" if process.pid == os.getpid() else "started by this kernel"
    return {
        "pid": process.pid,
        # This distinguishes it from a later process with the same PID.
        "started": None if process.started is UNKNOWN else process.started,
        # The notebook of one of the user's own kernels, else the script or the program.
        "title": page_text(shortened(file, _LONGEST_PATH) or printable(program_text(process))),
        "folder": _path_text(folder or process.folder),  # of that notebook, or of a kernel without one
        # The notebook that started another of the user's own programs.
        "notebook": "" if process.is_kernel else _path_text(process.notebook),
        "whose": whose if process.is_this_process is True else "",
        "owner": "" if process.owner is UNKNOWN else page_text(printable(process.owner)),
        "age": page_text(", ".join(filter(None, (age, idle_text(process.idle))))),
        "memory": "" if process.memory is UNKNOWN else bytes_text(process.memory),
        "step": next_step(process),  # the next step to end it
    }


def _path_text(path: str) -> str:
    """Return a path with `~` for the home folder, and only the end of a long path."""
    home = str(Path.home())
    text = f"~{path.removeprefix(home)}" if f"{path}/".startswith(f"{home}/") else path
    return page_text(end_of_path(text, _LONGEST_PATH))


def find_variables(shell: Any) -> dict[str, dict[str, Any]]:
    """Return the variables that hold memory on GPUs, by the key of the GPU. Call it on the main thread.

    This finds the variables of `%where` in less time. The key "" is for GPUs without variables.
    """
    budget, machine = Budget(seconds=_WALK_SECONDS), LazySnapshot()
    found: dict[str, list[tuple[int, str]]] = {"": []}
    variables = variables_of(dict(shell.user_ns), shell.user_ns_hidden) if imported() else {}
    for name, value in variables.items():
        with budget.variable(name):
            memory = memory_by_device([value], budget)
        for device, (nbytes, _) in memory.items():
            gpu = physical(device, machine) if isinstance(device, LogicalDevice) else None
            if gpu is not None and nbytes:
                found.setdefault(key_of(gpu), []).append((nbytes, name))
    waiting: dict[str, int] = {}  # for their GPU, in the host's memory
    for place, nbytes in parked.nbytes().items():
        if (gpu := physical(place, machine)) is not None:
            waiting[key_of(gpu)] = waiting.get(key_of(gpu), 0) + nbytes
            found.setdefault(key_of(gpu), [])
    return {
        key: {
            "largest": [
                (shortened(name, _LONGEST_VARIABLE), size_text(size))
                for size, name in sorted(sizes, reverse=True)[:_MOST_VARIABLES]
            ],
            "more": max(0, len(sizes) - _MOST_VARIABLES),  # the number of other variables
            "unfinished": bool(budget.unfinished),  # not all variables were looked at completely
            "parked": size_text(waiting[key]) if key in waiting else "",
        }
        for key, sizes in found.items()
    }
