"""The rows that the table and the panel show: one for each GPU and each MIG instance."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal, NamedTuple

from gpu_magic.devices.model import Device, Gpu, MigInstance
from gpu_magic.devices.process_names import ProcessNames
from gpu_magic.devices.processes import name_text
from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.text import GIB, bytes_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.devices.status import GpuProcess, GpuStatus
    from gpu_magic.process.view import KernelView, Snapshot

__all__ = ["UNKNOWN_TEXT", "MemoryShares", "Row", "claims_on", "memory_texts", "rows"]

UNKNOWN_TEXT = "?"
_NOT_VISIBLE = "not visible"
_NOT_GIVEN = "not given"  # outside the CUDA_VISIBLE_DEVICES that the kernel was started with

# What is to be seen of a device: nobody uses it, others do, only this kernel does, that can't be known, or it
# can't be read at all.
Usage = Literal["free", "busy", "mine", "unknown", "problem"]


class MemoryShares(NamedTuple):
    """Memory in use, as fractions of the device's total, from 0 to 1.

    Parameters
    ----------
    mine, others
        What this process and its children hold, and what other processes hold, as far as it is known.
    used
        All that is in use, also by processes that are not known.

    """

    mine: float = 0.0
    others: float = 0.0
    used: float = 0.0


_NO_SHARES = MemoryShares()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A GPU or a MIG instance, as it is shown.

    Parameters
    ----------
    device
        The device.
    label
        nvidia-smi's number of a GPU; for a MIG instance the branch of a tree and its number, `├ 2:1`.
    name
        The name of the product.
    memory
        Used and total, `59.6 / 80.0 GiB`; empty for a GPU that can't be read.
    total
        The total alone, `80.0 GiB`.
    shares
        Memory in use.
    utilization, temperature, power
        Percent, degrees Celsius, watts. None where the device has no such figure.
    users
        The processes on it, a line each; without any, why there is none to show.
    usage
        What the figures say about its use.
    visible_as
        What frameworks in this process call it, `cuda:0`, or that they don't see it; empty for a GPU that is
        split by MIG.

    """

    device: Device
    label: str
    name: str
    memory: str = ""
    total: str = ""
    shares: MemoryShares = _NO_SHARES
    utilization: int | Unknown | None = None
    temperature: int | Unknown | None = None
    power: float | Unknown | None = None
    users: tuple[str, ...]
    usage: Usage
    visible_as: str

    @property
    def is_visible(self) -> bool:
        """Whether this process sees it and can use it."""
        return self.visible_as.startswith("cuda:") and self.usage != "problem"


def rows(snapshot: Snapshot) -> Iterator[Row]:
    """Return a row for each GPU in nvidia-smi's order, each followed by its MIG instances."""
    names = ProcessNames(_processes(snapshot))
    for gpu in snapshot.gpus:
        yield _gpu_row(gpu, snapshot, names)
        for instance in gpu.mig:
            yield _mig_row(instance, snapshot, names, "└" if instance is gpu.mig[-1] else "├")


def _processes(snapshot: Snapshot) -> Iterator[GpuProcess]:
    devices: Iterator[Device] = chain.from_iterable((gpu, *gpu.mig) for gpu in snapshot.gpus)
    for device in devices:
        yield from () if device.status.processes is UNKNOWN else device.status.processes


def _server(process: GpuProcess) -> str:
    memory = UNKNOWN_TEXT if process.memory is UNKNOWN else bytes_text(process.memory)
    return f"MPS server: {process.name}, {memory}"


def _gpu_row(gpu: Gpu, snapshot: Snapshot, names: ProcessNames) -> Row:
    status = gpu.status
    label = gpu.number_text
    name = UNKNOWN_TEXT if gpu.name is UNKNOWN else name_text(gpu.name)
    visible_as = "" if gpu.is_split else _visible_as(gpu.uuid, snapshot.kernel)
    if gpu.problem:
        problem = (gpu.problem,)
        return Row(device=gpu, label=label, name=name, users=problem, usage="problem", visible_as=visible_as)
    users, usage = _users(gpu, snapshot, names)
    memory, total = memory_texts(status.memory_used, gpu.memory_total)
    return Row(
        device=gpu,
        label=label,
        name=name,
        memory=memory,
        total=total,
        shares=_shares(status, gpu.memory_total),
        utilization=status.utilization,
        temperature=status.temperature,
        power=status.power,
        users=users,
        usage=usage,
        visible_as=visible_as,
    )


def _mig_row(instance: MigInstance, snapshot: Snapshot, names: ProcessNames, branch: str) -> Row:
    # The profile first: it is what tells instances apart where names are cut off.
    profile = "MIG" if instance.name is UNKNOWN else name_text(instance.name.rpartition("MIG ")[2])
    users, usage = _users(instance, snapshot, names)
    memory, total = memory_texts(instance.status.memory_used, instance.memory_total)
    return Row(
        device=instance,
        label=branch if instance.number is UNKNOWN else f"{branch} {instance.number_text}",
        name=f"{profile} {instance.uuid[:12]}…",
        memory=memory,
        total=total,
        shares=_shares(instance.status, instance.memory_total),
        utilization=UNKNOWN,
        users=users,
        usage=usage,
        visible_as=_visible_as(instance.uuid, snapshot.kernel),
    )


def _users(device: Device, snapshot: Snapshot, names: ProcessNames) -> tuple[tuple[str, ...], Usage]:
    """Return who uses a device, a line each, and what that makes of its usage."""
    users, usage = _users_of(device, names)
    launched = tuple(str(claim) for uuid, claim in snapshot.launched if uuid == device.uuid)
    return (launched, "mine") if launched and usage == "free" else (users, usage)


def _users_of(device: Device, names: ProcessNames) -> tuple[tuple[str, ...], Usage]:
    """Return the same, but for what this process has launched and does not use it yet."""
    if isinstance(device, MigInstance):
        return _with_claims(device, *_users_by_figures(device, names))
    if device.is_split:
        return (("split by MIG" if device.mig else "split by MIG, with no instance made",), "unknown")
    users, usage = _with_claims(device, *_users_by_figures(device, names))
    if device.is_prohibited:
        there = users if usage in ("busy", "mine") else ()
        return (*there, "no process can use it (Prohibited)"), "unknown"
    if device.is_exclusive:
        or_by_mps = ", or several by MPS" if device.status.mps_servers else ""
        users = (*users, f"one process at a time{or_by_mps} (Exclusive_Process)")
    return users, usage


def _with_claims(device: Device, users: tuple[str, ...], usage: Usage) -> tuple[tuple[str, ...], Usage]:
    """Return the same with other processes' claims: what is claimed is not free."""
    claims = claims_on(device)
    if claims and usage == "free":
        return claims, "busy"
    return (*users, *claims), usage


def claims_on(device: Device) -> tuple[str, ...]:
    """Return a line for each claim of another process: `claimed by maria: train.ipynb, since 14:02`."""
    return tuple(map(str, device.status.claims))


def _users_by_figures(device: Device, names: ProcessNames) -> tuple[tuple[str, ...], Usage]:
    """Return the same of a device that any process can use."""
    users = () if device.status.users is UNKNOWN else device.status.users
    servers = tuple(map(_server, device.status.mps_servers))
    if users:
        usage: Usage = "mine" if all(process.mine for process in users) else "busy"
        return (*map(names.line, users), *servers), usage
    if device.is_busy is True:
        return ("in use, by whom can't be seen from here", *servers), "busy"
    if device.is_busy is False:
        return ("free", *servers), "free"
    return (UNKNOWN_TEXT if device.status.users is UNKNOWN else "no process", *servers), "unknown"


def _visible_as(uuid: str | Unknown, view: KernelView) -> str:
    if view.names is UNKNOWN:
        return UNKNOWN_TEXT
    if uuid is UNKNOWN:
        return _NOT_VISIBLE
    if uuid in view.names:
        return view.names[uuid]
    if uuid in view.others:
        return UNKNOWN_TEXT
    return _NOT_VISIBLE if view.given is None or uuid in view.given else _NOT_GIVEN


def memory_texts(used: int | Unknown, total: int | Unknown) -> tuple[str, str]:
    """Return used and total, `0.5 / 80.0 GiB`, and the total alone."""
    total_text = UNKNOWN_TEXT if total is UNKNOWN else _size(total)
    # The unit stands once, behind both; a GPU with terabytes can have less in use.
    unit = " TiB" if total_text.endswith("TiB") else " GiB"
    used_text = UNKNOWN_TEXT if used is UNKNOWN else _size(used).removesuffix(unit)
    return f"{used_text} / {total_text}", total_text


def _size(size: int) -> str:
    """Return bytes as in a column of memory, where megabytes are parts of a gigabyte: `0.0 GiB`."""
    return f"{size / GIB:.1f} GiB" if size < GIB else bytes_text(size)


def _shares(status: GpuStatus, total: int | Unknown) -> MemoryShares:
    if status.memory_used is UNKNOWN or total is UNKNOWN or not total:
        return _NO_SHARES
    mine = others = 0
    for process in () if status.processes is UNKNOWN else status.processes:
        size = 0 if process.memory is UNKNOWN else process.memory
        if process.mine:
            mine += size
        else:
            others += size
    # The driver can report processes that together have more than there is.
    return MemoryShares(*(min(1.0, size / total) for size in (mine, others, status.memory_used)))
