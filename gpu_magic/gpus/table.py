"""The machine's GPUs as `gpu_magic.gpus` returns them and `%gpus` shows them: as text, as HTML, and as JSON.

Text, HTML and the panel show the same rows. Names from the machine (a process, a user) are escaped in HTML,
and have no control characters in text.
"""

from __future__ import annotations

from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Literal, NamedTuple

from gpu_magic.devices.model import UNKNOWN, Device, Gpu, Unknown, UsedBy
from gpu_magic.devices.problems import Cause
from gpu_magic.devices.processes import ProcessNames, name_text
from gpu_magic.process.environment import KERNELS
from gpu_magic.process.session import current
from gpu_magic.process.view import Snapshot
from gpu_magic.process.visible import in_force
from gpu_magic.public import public
from gpu_magic.text import (
    GIB,
    TIB,
    bytes_text,
    escaped,
    html_bar,
    html_block,
    printable,
    shortened,
    simulated_title,
    text_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpu_magic.devices.model import Inventory
    from gpu_magic.process.given import Given
    from gpu_magic.process.mask import Variables

__all__ = ["Gpus", "Row", "as_html", "as_text", "gpus", "memory_texts", "problem_text", "rows"]

_UNKNOWN = "?"
_NOT_VISIBLE = "not visible"
_NOT_GIVEN = "not given"  # outside the CUDA_VISIBLE_DEVICES that the kernel was started with
_ALL = ": all GPUs"
_SIMULATED = "GPU_MAGIC_SIMULATE=8xA100-80GB"
# In a narrow output, "Used by" is below the other columns.
_USERS = (
    "<style>.gm-gpus.gm-gpus.gm-gpus{& .gm-by div{padding-left:1em;text-indent:-1em}"
    "@container(width<560px){display:grid;grid-template-columns:repeat(4,auto);"
    "& :is(thead,tbody,tr){display:contents}& .gm-by{grid-column:1/-1}& td.gm-by{padding:0 8px 8px 32px}"
    "}}</style>"
)
_LONGEST_MASK = 400  # characters: eight UUIDs and more

# The usage of a device: free, in use by others, in use only by this kernel, unknown, or the device cannot be
# read.
Usage = Literal["free", "busy", "mine", "unknown", "problem"]


class MemoryShares(NamedTuple):
    """Memory in use, as fractions of the device's total, from 0 to 1."""

    mine: float = 0.0  # what this process and its children hold
    others: float = 0.0  # what other processes hold, as far as is known
    used: float = 0.0  # all that is in use, also by unknown processes


_NO_SHARES = MemoryShares()


class Row(NamedTuple):
    """A GPU or a MIG instance, as it is shown."""

    device: Device
    label: (
        str  # nvidia-smi's number of a GPU. For a MIG instance, the branch of a tree and its number: `├ 2:1`
    )
    name: str  # of the product
    users: tuple[UsedBy, ...]  # the processes on it. Without any, the reason
    usage: Usage
    visible_as: str  # its name in frameworks here, or that it is not visible; empty if split by MIG
    ordinal: int | Unknown | None = None  # the i of its `cuda:i` in this process; None: not visible
    memory: str = ""  # used and total, `59.6 / 80.0 GiB`; empty for a GPU that cannot be read
    total: str = ""  # `80.0 GiB`
    shares: MemoryShares = _NO_SHARES
    # Percent, degrees Celsius, watts. None if the device has no such figure.
    utilization: int | Unknown | None = None
    temperature: int | Unknown | None = None
    power: float | Unknown | None = None

    @property
    def is_visible(self) -> bool:
        """Whether this process sees it and can use it."""
        return isinstance(self.ordinal, int) and self.usage != "problem"


def rows(snapshot: Snapshot) -> Iterator[Row]:
    """Return a row for each GPU in nvidia-smi's order, each followed by its MIG instances."""
    processes = (device.status.processes for device in snapshot.devices)
    names = ProcessNames(chain.from_iterable(found for found in processes if found is not UNKNOWN))
    for gpu in snapshot.gpus:
        name, now = _UNKNOWN if gpu.name is UNKNOWN else name_text(gpu.name), gpu.status
        row = _row(gpu, gpu.number_text, name, snapshot, names)
        if not gpu.problem:
            row = row._replace(utilization=now.utilization, temperature=now.temperature, power=now.power)
        yield row
        for part in gpu.mig:
            branch = "└" if part is gpu.mig[-1] else "├"
            # The profile comes first, because it tells instances apart if names are cut off.
            profile = "MIG" if part.name is UNKNOWN else name_text(part.name.rpartition("MIG ")[2])
            row = _row(part, f"{branch} {part.number_text}", f"{profile} {part.uuid[:12]}…", snapshot, names)
            yield row._replace(utilization=UNKNOWN)


def _row(device: Device, label: str, name: str, snapshot: Snapshot, names: ProcessNames) -> Row:
    """Return the row of a device, with no figures except memory."""
    is_split = isinstance(device, Gpu) and device.is_split
    ordinal = None if is_split else snapshot.ordinal(device)
    visible_as = "" if is_split else _visible_as(device, ordinal, snapshot.given)
    if isinstance(device, Gpu) and device.problem:
        return Row(device, label, name, (UsedBy(str(device.problem)),), "problem", visible_as, ordinal)
    users, usage = _users(device, names)
    launched = tuple(claim.used_by for name, claim in snapshot.launched if name == device.identity)
    if launched and usage == "free":  # a launched command that does not use it yet
        users, usage = launched, "mine"
    if usage == "free" and device.identity in snapshot.claimed:
        who = "kernel" if snapshot.program in KERNELS else "process"
        users, usage = (UsedBy(f"claimed by this {who}"),), "mine"
    texts, shares = memory_texts(device.status.memory_used, device.memory_total), _shares(device)
    return Row(device, label, name, users, usage, visible_as, ordinal, *texts, shares)


def _users(device: Device, names: ProcessNames) -> tuple[tuple[UsedBy, ...], Usage]:
    """Return who uses or has claimed a device, a line each, and its usage."""
    status = device.status
    if isinstance(device, Gpu) and device.is_split:
        return (UsedBy("split by MIG" if device.mig else "split by MIG, no instance made"),), "unknown"
    lines, usage = _users_by_figures(device, names)
    named = () if status.users is UNKNOWN else tuple(one.pid for one in status.users if one.is_seen)
    # The lines of processes already show idle times.
    claims = tuple((one._replace(idle=UNKNOWN) if one.pid in named else one).used_by for one in status.claims)
    can_use = not isinstance(device, Gpu) or not (device.is_prohibited or device.is_taken is not False)
    if status.is_parked and can_use:
        claims = tuple(claim._replace(since=f"{claim.since}: free to use") for claim in claims)
    if claims and usage == "free":  # a claimed device is not free
        lines, usage = claims, "busy"
    else:
        lines = (*lines, *claims)
    if isinstance(device, Gpu) and device.is_prohibited:
        there = lines if usage in ("busy", "mine") else ()
        return (*there, UsedBy("no process can use it (Prohibited)")), "unknown"
    if isinstance(device, Gpu) and device.is_exclusive:
        or_by_mps = ", or several by MPS" if status.mps_servers else ""
        lines = (*lines, UsedBy(f"one process at a time{or_by_mps} (Exclusive_Process)"))
    return lines, usage


def _users_by_figures(device: Device, names: ProcessNames) -> tuple[tuple[UsedBy, ...], Usage]:
    """Return who uses a device and its usage, as memory, utilization and processes show."""
    users, lines = device.status.users, list[UsedBy]()
    usage: Usage = "unknown"
    if users is not UNKNOWN and users:
        lines = list(map(names.line, users))
        usage = "mine" if device.status.used_only_by_us is True else "busy"
    elif device.is_busy is True:
        lines, usage = [UsedBy("in use (owner unknown)")], "busy"
    elif device.is_busy is False:
        lines, usage = [UsedBy("free")], "free"
    else:
        lines = [UsedBy(_UNKNOWN if users is UNKNOWN else "no process")]
    for server in device.status.mps_servers:
        name = _UNKNOWN if server.name is UNKNOWN else server.name
        memory = _UNKNOWN if server.memory is UNKNOWN else bytes_text(server.memory)
        lines.append(UsedBy("MPS server", name, memory))
    return tuple(lines), usage


def _visible_as(device: Device, ordinal: int | Unknown | None, given: Given) -> str:
    if ordinal is not None:
        return _UNKNOWN if ordinal is UNKNOWN else f"cuda:{ordinal}"
    is_outside = device.identity and given.devices is not UNKNOWN and given.outside((device,))
    return _NOT_GIVEN if is_outside else _NOT_VISIBLE


def memory_texts(used: int | Unknown, total: int | Unknown) -> tuple[str, str]:
    """Return used and total, `0.5 / 80.0 GiB`, and the total alone."""
    total_text, unit = ("", "GiB") if total is UNKNOWN else _size(total)
    used_text, unit_of_used = ("", unit) if used is UNKNOWN else _size(used)
    # The unit follows once, after both. But a GPU with terabytes can have gigabytes in use.
    used_text += f" {unit_of_used}" * (unit_of_used != unit)
    total_text = f"{total_text} {unit}" if total_text else _UNKNOWN
    return f"{used_text or _UNKNOWN} / {total_text}", total_text


def _size(size: int) -> tuple[str, str]:
    """Return bytes for a column of memory as a number and its unit, with megabytes as a part of a GiB."""
    return (f"{size / GIB:.1f}", "GiB") if round(size / GIB, 1) < TIB // GIB else (f"{size / TIB:.1f}", "TiB")


def _shares(device: Device) -> MemoryShares:
    status, total = device.status, device.memory_total
    if status.memory_used is UNKNOWN or total is UNKNOWN or not total:
        return _NO_SHARES
    mine = others = 0
    for process in () if status.processes is UNKNOWN else status.processes:
        size = 0 if process.memory is UNKNOWN else process.memory
        mine += size if process.is_this_process is True else 0
        others += size if process.is_this_process is False else 0
    # The driver can report processes that have more memory than the total.
    return MemoryShares(*(min(1.0, size / total) for size in (mine, others, status.memory_used)))


def _figure(value: float | Unknown | None, unit: str) -> str:
    if value is None:
        return ""
    return _UNKNOWN if value is UNKNOWN else f"{value:.0f}{unit}"


class _Column(NamedTuple):
    """A column: its heading, its text for a row (newlines separate lines), and its style."""

    heading: str
    text: Callable[[Row], str]
    css: str = ""
    is_right: bool = False  # aligned to the right
    has_bar: bool = False
    color: Callable[[Row], str] = lambda _: ""


_COLORS = {"free": "gm-green", "busy": "gm-amber", "mine": "gm-blue", "problem": "gm-soft", "unknown": ""}
_COLUMNS = (
    _Column("GPU", lambda row: row.label, is_right=True),
    _Column("Name", lambda row: row.name, css="gm-more"),
    _Column("Memory", lambda row: row.memory, is_right=True, has_bar=True),
    _Column("Util", lambda row: _figure(row.utilization, "%"), is_right=True),
    _Column("Temp", lambda row: _figure(row.temperature, "°C"), css="gm-more", is_right=True),
    _Column("Power", lambda row: _figure(row.power, " W"), css="gm-more", is_right=True),
    _Column(
        "In this kernel",
        lambda row: row.visible_as,
        color=lambda row: "gm-blue" if row.is_visible else "gm-soft",
    ),
    _Column(
        "Used by",
        lambda row: "\n".join(map(str, row.users)),
        css="gm-by",
        color=lambda row: _COLORS[row.usage],
    ),
)


def as_text(snapshot: Snapshot) -> str:
    """Return the table as text, for a terminal."""
    columns, found = _columns(snapshot), list(rows(snapshot))
    # A row has several lines if one of its cells has.
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
    head = "".join(f"<th{_class(column)}>{column.heading}</th>" for column in columns)
    lines = ("".join(_cell(row, column) for column in columns) for row in found)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    rows_of = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    table = f"{_USERS}<table class='gm-gpus'>{rows_of}</table>" if found else ""
    facts = "".join(
        f"<tr><th class='gm-soft'>{escaped(name)}</th><td>{escaped(text)}</td></tr>"
        for name, text in _facts(snapshot)
    )
    table += f"<table><tbody>{facts}</tbody></table>"
    return html_block(_title(snapshot), table, _notes(snapshot))


class Gpus(Snapshot):
    """The GPUs of this machine, as this process sees them. It shows itself as a table."""

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


@public
def gpus() -> Gpus:
    """Return the GPUs of this machine. The result shows itself as a table.

    Returns
    -------
    Gpus
        One `Gpu` for each physical GPU, in the order of nvidia-smi. The table also has the names of the GPUs
        in this process: `cuda:0`. Figures are in bytes, percent, degrees Celsius and watts. A figure that
        the driver does not give is UNKNOWN. If gpu_magic can read no GPU, the result is empty. Its
        `problem` has the reason.

    """
    return Gpus.take(current())


def _columns(snapshot: Snapshot) -> Sequence[_Column]:
    """Return the columns. Without a kernel or IPython, a heading has "process" instead of "kernel"."""
    if snapshot.program != "python":
        return _COLUMNS
    return [column._replace(heading=column.heading.replace("kernel", "process")) for column in _COLUMNS]


def _cell(row: Row, column: _Column) -> str:
    first, *more = map(escaped, column.text(row).split("\n"))
    text = "".join(f"<div>{line}</div>" for line in (first, *more)) if more else first
    bar = html_bar(row.shares.used) if column.has_bar and text else ""
    return f"<td{_class(column, column.color(row))}{bar}>{text}</td>"


def _class(column: _Column, color: str = "") -> str:
    names = " ".join(filter(None, ("gm-right" * column.is_right, column.css, color)))
    return f" class='{names}'" if names else ""


def _title(snapshot: Snapshot) -> str:
    """Return a title: the versions of driver and CUDA, whether the machine is simulated, how many wait."""
    parts = []
    if snapshot.simulated:
        parts.append(simulated_title(snapshot.simulated))
    if snapshot.driver_version is not UNKNOWN:
        parts.append(f"driver {snapshot.driver_version}")
    if snapshot.cuda_version is not UNKNOWN:
        parts.append(f"CUDA up to {snapshot.cuda_version}")
    if snapshot.waiting:
        parts.append(f"{snapshot.waiting} wait{'s' * (snapshot.waiting == 1)} for GPUs")
    return printable(" · ".join(parts)) or "GPUs"


def _facts(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Return the variables at the start, the variables now, and whether they can change."""
    allotted = snapshot.given.text
    started = _variables(snapshot.inherited, snapshot.machine, unset="" if allotted else _ALL)
    now = _variables(snapshot.now, snapshot.machine, with_order=True)
    if snapshot.is_as_begun:
        now += ", chosen when the kernel started"
    if allotted:
        started += f"; {allotted}"
    facts = [("Started with", started), ("Now", now), (snapshot.guard.runtime, snapshot.guard.sentence)]
    if snapshot.parked:
        from gpu_magic.process.parked import parked_text  # rarely needed

        facts.append(("Parked", f"{parked_text(snapshot.parked)}. To bring it back: %gpu_unpark"))
    return facts


def _variables(
    variables: Variables, machine: Inventory, *, unset: str = _ALL, with_order: bool = False
) -> str:
    """Return the variables that name GPUs, in words."""
    if machine.vendor == "amd":
        hiding = in_force(variables, machine).items()
        values = (f"{name}={shortened(value, _LONGEST_MASK) or '(empty)'}" for name, value in hiding)
        return ", ".join(values) or f"HIP_VISIBLE_DEVICES not set{unset}"
    mask, order = variables.mask, variables.order
    value = f"={shortened(mask, _LONGEST_MASK)}" if mask else " empty: no GPU"
    shown = f"CUDA_VISIBLE_DEVICES{f' not set{unset}' if mask is None else value}"
    if with_order and order:
        shown += f" (CUDA_DEVICE_ORDER={shortened(order, 40)})"
    return shown


def problem_text(snapshot: Snapshot) -> str:
    """Return why no GPU can be read, and without a driver, how to try gpu_magic. Empty if one can."""
    if snapshot.problem is None or snapshot.problem.cause is not Cause.NO_LIBRARY:
        return str(snapshot.problem or "")
    is_shell = snapshot.program == "python"
    typed = f"{_SIMULATED} gpu-magic" if is_shell else f"%env {_SIMULATED}"
    return f"{snapshot.problem} To try gpu_magic without a GPU: {typed}"


def _notes(snapshot: Snapshot) -> list[str]:
    facts = (problem_text(snapshot), snapshot.limitation, *snapshot.notes, snapshot.others)
    return [str(one) for one in facts if one]
