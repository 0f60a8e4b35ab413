"""What a page knows of the kernel: the machine, what was clicked and what was said.

It gets all of it in one message, `State`, and what changes in others: see `kernel_messages.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DeviceRow", "Figures", "FullState", "Header", "NoticeKind", "as_arrays"]

NoticeKind = Literal["info", "done", "warning", "error"]


class Header(TypedDict):
    """What is shown around the rows."""

    host: str
    driver: str  # "driver 580.65.06", or empty
    simulated: str  # the profile of a simulated machine, or empty
    problem: str  # why no GPU can be read, or empty
    cuda_state: str  # whether the choice can change: see `process.drivers.State`
    cuda_text: str  # the same as a sentence
    runtime: str  # what these are about: "CUDA" or "ROCm"
    notes: list[str]  # what is wrong with CUDA_VISIBLE_DEVICES, a sentence each
    allotted: str  # who gave it which GPUs: "allotted by Slurm job 123: GPUs 2, 5", or empty
    launch_devices: str  # the devices that "reset" amounts to; empty where that is not known
    hides_devices: bool  # whether this process is known to see some of the devices only
    memory_options: str  # " --growth", as it was chosen last; empty where nothing was chosen
    least_busy: str  # all devices that "auto" picks from, the least busy first


class DeviceRow(TypedDict):
    """A GPU or MIG instance, without the figures that change each second."""

    label: str  # nvidia-smi's number; a branch and the number, for an instance
    name: str
    total: str  # memory: "80.0 GiB"
    total_gib: float | None  # the same as a number; None: unknown
    memory_shares: list[int]  # of the memory, in thousandths: this kernel's, other processes'
    users: list[str]  # who uses it, a line each, or what else there is to say
    usage: str  # free, busy, mine, unknown, problem
    visible_as: str  # what frameworks in this process call it: "cuda:0", "not visible", "not given", or empty
    is_held: bool  # whether another process uses or has claimed it
    unavailable: str  # why it can't be chosen; empty where it can
    parent: str  # the index of the GPU that an instance belongs to; empty for a GPU


class Figures(NamedTuple):
    """A device's figures of one reading, sent as an array. None: unknown; "": it has no such figure."""

    used: float | None  # GiB
    used_share: int  # of the memory, in thousandths
    utilization: int | str | None  # percent
    temperature: int | str | None  # degrees Celsius
    power: int | str | None  # watts


class FullState(TypedDict):
    """All that a page needs to begin with; Jupyter also saves it with a notebook, as the widget's state."""

    process: str  # a random name of this process, by which a page knows another from it after a restart
    second: int  # of the latest reading
    version: int  # how many messages were sent that a page must not miss
    header: Header
    rows: dict[str, DeviceRow]
    figures: dict[str, list[Any]]  # `Figures` as arrays
    order: list[str]  # the keys as shown; the order in an object of JavaScript's puts numbers first
    # Utilization in percent, an item each second, `second` last; None: not known, or nothing was read then.
    history: dict[str, list[int | None]]
    draft: str | None  # see `SetDraft`
    draft_number: int
    clicks: dict[str, int]  # the number of each page's latest click that is in the draft, or was refused
    is_waiting: bool  # whether a choice waits until no cell runs
    # The latest text for all, empty where it is of something that is over, and those of its lines that warn.
    said: tuple[str, NoticeKind, list[str]]
    waiting: str  # see `Waiting`
    is_paused: bool  # see `Paused`


def as_arrays(figures: Mapping[str, Figures]) -> dict[str, list[Any]]:
    """Return figures as they are sent: orjson, which Jupyter uses if installed, takes no named tuples."""
    return {key: list(device) for key, device in figures.items()}
