"""An inventory as the rows that the table and the panel show: one for each GPU and each MIG instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gpu_magic.devices.model import (
    UNKNOWN,
    Device,
    Gpu,
    GpuProcess,
    GpuStatus,
    Inventory,
    MigInstance,
    Unknown,
)
from gpu_magic.devices.processes import name_text
from gpu_magic.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["GIB", "UNKNOWN_TEXT", "Row", "bytes_text", "rows", "who_uses"]

GIB = 1 << 30
UNKNOWN_TEXT = "?"
_NOT_VISIBLE = "not visible"
_NOT_GIVEN = "not given"  # outside the mask that the kernel was started with

Kind = Literal["free", "busy", "mine", "unknown", "problem"]


@dataclass(frozen=True, slots=True)
class Row:
    """One GPU or MIG instance, as it is shown.

    Parameters
    ----------
    device
        What it is a row of.
    label
        nvidia-smi's number; a branch, for an instance.
    name
        The product's.
    memory
        Used and total, `59.6 / 80.0 GiB`; empty where there is nothing to say.
    total
        The same without what is used.
    shares
        Of the total, from 0 to 1: what this process and its children have in use, and what others have,
        as far as they are known; and all that is in use, UNKNOWN or not attributed included.
    utilization, temperature, power
        Percent, degrees Celsius, watts; None where there is nothing to say.
    users
        Who uses it, a line each; or what else there is to say of it.
    kind
        What that makes of it.
    here
        What this process calls it: `cuda:0`, `not visible`; empty where it can't have a name.

    """

    device: Device
    label: str
    name: str
    memory: str
    total: str
    shares: tuple[float, float, float]
    utilization: int | Unknown | None
    temperature: int | Unknown | None
    power: float | Unknown | None
    users: tuple[str, ...]
    kind: Kind
    here: str

    @property
    def is_here(self) -> bool:
        """Whether this process sees it, and can use it."""
        return self.here.startswith("cuda:") and self.kind != "problem"


def bytes_text(size: int | Unknown) -> str:
    """Write bytes as people do: `79.2 GiB`, `512 MiB`."""
    if size is UNKNOWN:
        return UNKNOWN_TEXT
    return f"{size / GIB:.1f} GiB" if size >= GIB // 10 else f"{size / (1 << 20):.0f} MiB"


def who_uses(status: GpuStatus) -> list[str]:
    """Name the processes of a GPU, a line each: `maria: train.py, 59.6 GiB`."""
    return [] if status.processes is UNKNOWN else [_user(process) for process in status.processes]


def rows(inventory: Inventory) -> Iterator[Row]:
    """Return all GPUs in nvidia-smi's order, each with the MIG instances it is split into."""
    for gpu in inventory.gpus:
        yield _gpu_row(gpu, inventory)
        for number, part in enumerate(gpu.mig):
            last = number == len(gpu.mig) - 1
            yield _mig_row(part, inventory, "└" if last else "├")


def _user(process: GpuProcess) -> str:
    owner = "this kernel" if process.mine else process.owner
    name = f"process {process.pid}" if process.name is UNKNOWN else process.name
    if owner is UNKNOWN:
        owner = "owner unknown"
    return printable(f"{owner}: {name}, {bytes_text(process.memory)}")


def _gpu_row(gpu: Gpu, inventory: Inventory) -> Row:
    now = gpu.status
    name = UNKNOWN_TEXT if gpu.name is UNKNOWN else name_text(gpu.name)
    here = _here(gpu.uuid, inventory, is_split=gpu.is_split)
    if gpu.problem:
        none = (0.0, 0.0, 0.0)
        return Row(gpu, str(gpu.index), name, "", "", none, None, None, None, (gpu.problem,), "problem", here)
    users, kind = _users(gpu)
    return Row(
        gpu,
        str(gpu.index),
        name,
        *_memory(now.memory_used, gpu.memory_total),
        _shares(now, gpu.memory_total),
        now.utilization,
        now.temperature,
        now.power,
        users,
        kind,
        here,
    )


def _mig_row(part: MigInstance, inventory: Inventory, branch: str) -> Row:
    now = part.status
    name = "MIG" if part.name is UNKNOWN else name_text("MIG " + part.name.rpartition("MIG ")[2])
    users, kind = _users(part)
    return Row(
        part,
        branch,
        f"{name} {part.uuid[:12]}…",
        *_memory(now.memory_used, part.memory_total),
        _shares(now, part.memory_total),
        UNKNOWN,
        None,
        None,
        users,
        kind,
        _here(part.uuid, inventory),
    )


def _users(device: Device) -> tuple[tuple[str, ...], Kind]:
    """Say who uses a device, and what kind of row that makes."""
    now = device.status
    if isinstance(device, Gpu) and device.is_split:
        return (("split by MIG" if device.mig else "split by MIG, with no instance made",), "unknown")
    if lines := who_uses(now):
        is_mine = now.processes is not UNKNOWN and all(process.mine for process in now.processes)
        return tuple(lines), "mine" if is_mine else "busy"
    if device.shows_use is True:
        return ("in use, by whom can't be seen from here",), "busy"
    if device.shows_use is False:
        return ("free",), "free"
    # NVML has no utilisation for a MIG instance, so it is never seen to be free.
    return ("no process" if now.processes == () else UNKNOWN_TEXT,), "unknown"


def _here(uuid: str | Unknown, inventory: Inventory, *, is_split: bool = False) -> str:
    view = inventory.kernel
    if view is None or is_split:
        return ""
    if view.names is UNKNOWN:
        return UNKNOWN_TEXT
    if uuid is UNKNOWN or uuid in view.names:
        return _NOT_VISIBLE if uuid is UNKNOWN else view.names[uuid]
    return _NOT_VISIBLE if view.given is None or uuid in view.given else _NOT_GIVEN


def _memory(used: int | Unknown, total: int | Unknown) -> tuple[str, str]:
    first = UNKNOWN_TEXT if used is UNKNOWN else f"{used / GIB:.1f}"
    second = UNKNOWN_TEXT if total is UNKNOWN else f"{total / GIB:.1f} GiB"
    return f"{first} / {second}", second


def _shares(now: GpuStatus, total: int | Unknown) -> tuple[float, float, float]:
    if now.memory_used is UNKNOWN or total is UNKNOWN or not total:
        return 0.0, 0.0, 0.0
    mine = others = 0
    for process in () if now.processes is UNKNOWN else now.processes:
        size = 0 if process.memory is UNKNOWN else process.memory
        mine, others = (mine + size, others) if process.mine else (mine, others + size)
    return min(1.0, mine / total), min(1.0, others / total), min(1.0, now.memory_used / total)
