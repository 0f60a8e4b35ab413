"""The machine's GPUs as `gpu_magic.gpus` returns them and `%gpus` shows them: as text, as HTML, and as JSON.

All are made of the same rows, so they say the same; the panel shows these rows, too. Names that come from the
machine (a process, a user) are escaped in HTML, and have no control characters in text.
"""

from __future__ import annotations

import html
from dataclasses import dataclass, fields, replace
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from gpu_magic.devices.binding import NO_LIBRARY
from gpu_magic.devices.model import UNKNOWN, Device, Gpu, MigInstance, Unknown
from gpu_magic.devices.processes import ProcessNames, name_text
from gpu_magic.process.guard import runtime_of
from gpu_magic.process.view import Snapshot
from gpu_magic.text import GIB, bytes_text, html_block, printable, shortened, text_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpu_magic.devices.model import GpuProcess, GpuStatus
    from gpu_magic.process.view import KernelView

__all__ = ["Gpus", "Row", "as_html", "as_text", "memory_texts", "problem_text", "record_of", "rows"]

UNKNOWN_TEXT = "?"
_NOT_VISIBLE = "not visible"
_NOT_GIVEN = "not given"  # outside the CUDA_VISIBLE_DEVICES that the kernel was started with
_ALL = ": all GPUs"
_SIMULATED = "GPU_MAGIC_SIMULATE=8xA100-80GB"
_LONGEST_MASK = 400  # characters: eight UUIDs and more

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
    status = device.status
    named = (
        () if status.users is UNKNOWN else [one.pid for one in status.users]
    )  # these lines say who is idle
    claims = tuple(str(replace(one, idle=UNKNOWN) if one.pid in named else one) for one in status.claims)
    if claims and usage == "free":
        return claims, "busy"
    return (*users, *claims), usage


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


def _figure(value: float | Unknown | None, unit: str) -> str:
    if value is None:
        return ""
    return UNKNOWN_TEXT if value is UNKNOWN else f"{value:.0f}{unit}"


class _Column(NamedTuple):
    """A column: its heading, what a row has there (several lines by newlines), and how that is shown."""

    heading: str
    text: Callable[[Row], str]
    is_right: bool = False
    css: str = ""
    has_bar: bool = False


_COLUMNS = (
    _Column("GPU", lambda row: row.label, is_right=True),
    _Column("Name", lambda row: row.name),
    _Column("Memory", lambda row: row.memory, is_right=True, has_bar=True),
    _Column("Util", lambda row: _figure(row.utilization, "%"), is_right=True),
    _Column("Temp", lambda row: _figure(row.temperature, "°C"), is_right=True),
    _Column("Power", lambda row: _figure(row.power, " W"), is_right=True),
    _Column("In this kernel", lambda row: row.visible_as, css="gm-visible-as"),
    _Column("Used by", lambda row: "\n".join(row.users), css="gm-used-by"),
)


class Gpus(Snapshot):
    """An `Inventory`, and what this process can see of it, which shows itself as a table."""

    __slots__ = ()

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        """Return a snapshot as an object that shows itself."""
        return cls(**{field.name: getattr(snapshot, field.name) for field in fields(snapshot)})

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def as_text(snapshot: Snapshot) -> str:
    """Return the table as text, for a terminal."""
    columns, found = _columns(snapshot), list(rows(snapshot))
    # A row has several lines where one of its cells has.
    cells = ([column.text(row).split("\n") for column in columns] for row in found)
    lines = [line for row in cells for line in zip_longest(*row, fillvalue="")]
    right = [at for at, column in enumerate(columns) if column.is_right]
    table = text_table([column.heading for column in columns], lines, right=right) if found else []
    facts, notes = _facts(snapshot), _notes(snapshot)
    footer = [f"{name:<13} {text}" for name, text in facts] + [f"! {printable(note)}" for note in notes]
    return "\n".join([_title(snapshot), *table, *([""] if footer else []), *footer])


def as_html(snapshot: Snapshot) -> str:
    """Return the table as HTML, for a notebook, in the colors of the front end."""
    columns, found = _columns(snapshot), list(rows(snapshot))
    marks_visible = not all(row.is_visible for row in found)  # all is no choice to mark

    def line(row: Row) -> str:
        visible = "gm-here" if row.is_visible else "gm-hidden"
        chosen = " gm-chosen" if row.is_visible and marks_visible else ""
        cells = "".join(f"<td{_css(column)}>{_html(row, column)}</td>" for column in columns)
        return f"<tr class='gm-{row.usage} {visible}{chosen}'>{cells}</tr>"

    head = "".join(f"<th{_css(column)}>{column.heading}</th>" for column in columns)
    body = "".join(map(line, found))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if found else ""
    facts = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
        for name, text in _facts(snapshot)
    )
    table += f"<table class='gm-facts'><tbody>{facts}</tbody></table>"
    return html_block(_title(snapshot), table, _notes(snapshot))


def _columns(snapshot: Snapshot) -> Sequence[_Column]:
    """Return the columns as this process names itself: in a shell and in a script there is no kernel."""
    if snapshot.kernel.program != "python":
        return _COLUMNS
    return [column._replace(heading=column.heading.replace("kernel", "process")) for column in _COLUMNS]


def _html(row: Row, column: _Column) -> str:
    text = html.escape(column.text(row)).replace("\n", "<br>")
    if column.has_bar and text:
        text += f"<i class='gm-bar'><b style='width:{row.shares.used:.0%}'></b></i>"
    return text


def _css(column: _Column) -> str:
    names = f"{'gm-right' if column.is_right else ''} {column.css}".strip()
    return f" class='{names}'" if names else ""


def _title(snapshot: Snapshot) -> str:
    """Return the versions of the driver and of CUDA, whether the machine exists, and how many wait."""
    parts = []
    if snapshot.simulated:
        parts.append(f"SIMULATED machine ({snapshot.simulated}): these GPUs do not exist")
    if snapshot.driver_version is not UNKNOWN:
        parts.append(f"driver {snapshot.driver_version}")
    if snapshot.cuda_version is not UNKNOWN:
        parts.append(f"CUDA up to {snapshot.cuda_version}")
    if snapshot.waiting:
        parts.append(f"{snapshot.waiting} wait{'s' * (snapshot.waiting == 1)} for GPUs")
    return printable(" · ".join(parts)) or "GPUs"


def _facts(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Return what this kernel was started with, what is set now, and whether that can change."""
    view = snapshot.kernel
    now = _mask(view.mask)
    if view.order:
        now += f" (CUDA_DEVICE_ORDER={shortened(view.order, 40)})"
    started, vendors = _mask(view.inherited), snapshot.vendors
    if vendors == ("amd",):
        started, now = _hip(view.inherited_amd), _hip(view.amd)
    elif "amd" in vendors:
        started, now = f"{started}; AMD: {_hip(view.inherited_amd)}", f"{now}; AMD: {_hip(view.amd)}"
    if view.allotted:
        started = f"{started.removesuffix(_ALL)}; {view.allotted}"
    return [("Started with", started), ("Now", now), (runtime_of(view.vendor), view.cuda)]


def _hip(hiding: Iterable[tuple[str, str]]) -> str:
    if not hiding:
        return f"HIP_VISIBLE_DEVICES not set{_ALL}"
    values = (f"{name}={shortened(value, _LONGEST_MASK) or '(empty)'}" for name, value in hiding)
    return ", ".join(values)


def _mask(mask: str | None) -> str:
    if mask is None:
        return f"CUDA_VISIBLE_DEVICES not set{_ALL}"
    return (
        f"CUDA_VISIBLE_DEVICES={shortened(mask, _LONGEST_MASK)}"
        if mask
        else "CUDA_VISIBLE_DEVICES empty: no GPU"
    )


def problem_text(snapshot: Snapshot) -> str:
    """Return why no GPU can be read, and without a driver how gpu_magic can be tried; empty where one can."""
    if NO_LIBRARY not in snapshot.problem:
        return snapshot.problem
    is_shell = snapshot.kernel.program == "python"
    typed = f"{_SIMULATED} gpu-magic" if is_shell else f"%env {_SIMULATED}, then %gpus"
    return f"{snapshot.problem} To try gpu_magic without a GPU: {typed}."


def _notes(snapshot: Snapshot) -> list[str]:
    problems = filter(None, (problem_text(snapshot), snapshot.limitation))
    return [*problems, *snapshot.kernel.notes]


def record_of(device: Device) -> dict[str, Any]:
    """Return a device as JSON has it; null for what the driver would not tell."""
    status = device.status
    processes = None if status.processes is UNKNOWN else status.processes
    return {
        "index": device.index if isinstance(device, Gpu) else None,
        "vendor": device.vendor if isinstance(device, Gpu) else "nvidia",
        "gpu": device.index if isinstance(device, Gpu) else device.gpu_index,
        "uuid": _known(device.uuid),
        "name": _known(device.name),
        "memory_total": _known(device.memory_total),
        "memory_used": _known(status.memory_used),
        "utilization": _known(status.utilization),
        "temperature": _known(status.temperature),
        "power": _known(status.power),
        "problem": device.problem if isinstance(device, Gpu) else "",
        "processes": processes
        and [
            {name: _known(getattr(one, name)) for name in ("pid", "name", "owner", "memory")}
            for one in processes
        ],
    }


def _known(value: object) -> object:
    return None if value is UNKNOWN else value
