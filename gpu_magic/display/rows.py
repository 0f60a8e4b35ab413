"""An inventory as the rows that the table and the panel show: one for each GPU and each MIG instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gpu_magic.devices.model import Device, Gpu, GpuProcess, GpuStatus, MigInstance
from gpu_magic.devices.processes import name_text
from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.text import GIB, bytes_text, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpu_magic.process.view import Snapshot

__all__ = ["UNKNOWN_TEXT", "Row", "rows", "who_uses"]

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


def who_uses(processes: Iterable[GpuProcess]) -> list[str]:
    """Name processes on a GPU, a line each: `maria: train.py, 59.6 GiB`."""
    return list(map(_user, processes))


def rows(snapshot: Snapshot) -> Iterator[Row]:
    """Return all GPUs in nvidia-smi's order, each with the MIG instances it is split into."""
    for gpu in snapshot.gpus:
        yield _gpu_row(gpu, snapshot)
        for number, part in enumerate(gpu.mig):
            last = number == len(gpu.mig) - 1
            yield _mig_row(part, snapshot, "└" if last else "├")


def _user(process: GpuProcess) -> str:
    owner = "this kernel" if process.mine else process.owner
    name = f"process {process.pid}" if process.name is UNKNOWN else process.name
    if owner is UNKNOWN:
        owner = "owner unknown"
    memory = UNKNOWN_TEXT if process.memory is UNKNOWN else bytes_text(process.memory)
    return printable(f"{owner}: {name}, {memory}")


def _gpu_row(gpu: Gpu, snapshot: Snapshot) -> Row:
    now = gpu.status
    name = UNKNOWN_TEXT if gpu.name is UNKNOWN else name_text(gpu.name)
    here = _here(gpu.uuid, snapshot, is_split=gpu.is_split)
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


def _mig_row(part: MigInstance, snapshot: Snapshot, branch: str) -> Row:
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
        _here(part.uuid, snapshot),
    )


def _users(device: Device) -> tuple[tuple[str, ...], Kind]:
    """Say who uses a device, and what kind of row that makes."""
    now = device.status
    if isinstance(device, Gpu) and device.is_split:
        return (("split by MIG" if device.mig else "split by MIG, with no instance made",), "unknown")
    if processes := () if now.processes is UNKNOWN else now.processes:
        is_mine = all(process.mine for process in processes)
        return tuple(who_uses(processes)), "mine" if is_mine else "busy"
    if device.is_busy is True:
        return ("in use, by whom can't be seen from here",), "busy"
    if device.is_busy is False:
        return ("free",), "free"
    # NVML has no utilisation for a MIG instance, so it is never seen to be free.
    return ("no process" if now.processes == () else UNKNOWN_TEXT,), "unknown"


def _here(uuid: str | Unknown, snapshot: Snapshot, *, is_split: bool = False) -> str:
    view = snapshot.kernel
    if is_split:
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
