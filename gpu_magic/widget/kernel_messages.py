"""The messages that the kernel sends to pages.

A message is a JSON object. Its `type` is one of the names in `_TYPES`; its other keys are the fields of the
class here. `protocol.js` lists the same. `page_messages.py` says what a *key*, a *request*, a *page* and the
*draft* are.

A reading's time is a *second*: a whole number on a clock of the kernel's that never goes back.

A row's *detail* is what is shown below it where it is opened. It goes only to pages that have said which rows
are open; `detail.py` has what is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Attached",
    "Changes",
    "Closed",
    "Detail",
    "DeviceRow",
    "Draft",
    "Figures",
    "FullState",
    "Header",
    "Heartbeat",
    "KernelMessage",
    "Notice",
    "NoticeKind",
    "Outdated",
    "Paused",
    "Restart",
    "Restarting",
    "State",
    "Waiting",
    "as_arrays",
    "to_json",
]

Json = dict[str, Any]
NoticeKind = Literal["info", "done", "warning", "error"]

# First the parts of the machine's state, then the messages.


class Header(TypedDict):
    """What is shown around the rows."""

    host: str
    driver: str  # "driver 580.65.06", or empty
    simulated: str  # the profile of a simulated machine, or empty
    problem: str  # why no GPU can be read, or empty
    cuda_state: str  # whether the choice can change: see `process.state.State`
    cuda_text: str  # the same as a sentence
    runtime: str  # what these are about: "CUDA" or "ROCm"
    notes: list[str]  # what is wrong with CUDA_VISIBLE_DEVICES, a sentence each
    asked: list[str]  # what others ask for that this process has claimed, a sentence each
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
    is_claimed: bool  # whether another process has claimed it
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
    said: tuple[str, NoticeKind]  # the latest text for all, empty where it is of something that is over
    waiting: str  # see `Waiting`
    is_paused: bool  # see `Paused`


class State(NamedTuple):
    """Everything: sent to a page that has missed something, and to all when devices come and go."""

    state: FullState


class Changes(NamedTuple):
    """What one reading has changed; sent to all. Nothing is sent where nothing changed.

    Parameters
    ----------
    second, version
        As in `FullState`. A page for which a version is missing asks for the `State`.
    unbroken
        Since which second the machine has been read in each. A page that has heard nothing for some seconds
        knows by it those whose readings changed nothing, and those that were not read.
    header
        The fields that have changed.
    rows
        For each device whose row has changed, the fields that have.
    figures
        For each device whose figures have changed, all of them, as arrays.

    """

    second: int
    unbroken: int
    version: int
    header: Json
    rows: dict[str, Json]
    figures: dict[str, list[Any]]


class Heartbeat(NamedTuple):
    """Nothing has changed: an answer to `SetVisibility`, and sent to all after ten seconds without a message.

    Without it, a page would say that there are no figures.

    Parameters
    ----------
    second, unbroken
        As in `Changes`.

    """

    second: int
    unbroken: int


class Draft(NamedTuple):
    """What was clicked on some page and is not applied yet; sent to all.

    Also sent to a page whose click was refused: the draft is as it was, and that click is void.

    Parameters
    ----------
    request
        As in `SetDraft`.
    number, clicks
        As in `FullState`.
    page
        Which has changed it; empty where the kernel has.
    version
        As in `FullState`; 0 in an answer to one page, which no other misses.

    """

    request: str | None
    number: int
    clicks: dict[str, int]
    page: str
    version: int


class Outdated(NamedTuple):
    """An answer to `SetDraft`: the draft was changed elsewhere, so the page repeats its clicks on this one.

    Parameters
    ----------
    request, number, clicks
        As in `Draft`.

    """

    request: str | None
    number: int
    clicks: dict[str, int]


class Notice(NamedTuple):
    """A text to show in place of the one before; empty to clear it. Sent to all, or in answer to a page.

    Parameters
    ----------
    text, kind
        As `said` in `FullState`.
    version
        As in `FullState`; 0 in an answer to one page, which no other misses.

    """

    text: str
    kind: NoticeKind
    version: int


class Waiting(NamedTuple):
    """Who has the GPUs that are waited for, and since when, as a line; sent to all, after each look.

    Parameters
    ----------
    text
        The line; empty where nothing is waited for.
    version
        As in `FullState`.

    """

    text: str
    version: int


class Paused(NamedTuple):
    """The extension was unloaded (True), so that nothing can be chosen, or is loaded again (False)."""

    is_paused: bool


class Restarting(NamedTuple):
    """The kernel is about to be restarted; sent to all."""


class Restart(NamedTuple):
    """A request to restart the kernel through the Jupyter server; see `gpu_magic.restart.restart`.

    Parameters
    ----------
    kernel
        The server's id of this kernel; empty where it is not known.
    page
        The page that is to do it; empty: every page is asked whether it can.

    """

    kernel: str
    page: str


class Detail(NamedTuple):
    """A row's detail: sent where the row is open.

    Parameters
    ----------
    second, unbroken
        As in `Changes`.
    key
        The device.
    detail
        The parts that have changed since the last one; in an answer to `SetDetails` all parts, and the
        history of its memory. See `gpu_magic.widget.detail`.

    """

    second: int
    unbroken: int
    key: str
    detail: Json


class Attached(NamedTuple):
    """The answer to `Attach`: what shows a panel comes from the kernel, so that it fits its messages.

    Parameters
    ----------
    page
        The page that asked; all that share the comm hear it.
    script, style
        The panel's.
    state
        Everything.

    """

    page: str
    script: str
    style: str
    state: FullState


class Closed(NamedTuple):
    """The extension was unloaded, and the comm for pages has gone."""


KernelMessage = (
    State
    | Changes
    | Heartbeat
    | Draft
    | Outdated
    | Notice
    | Waiting
    | Paused
    | Restarting
    | Restart
    | Detail
    | Attached
    | Closed
)

_TYPES: dict[type[KernelMessage], str] = {
    State: "state",
    Changes: "changes",
    Heartbeat: "heartbeat",
    Draft: "draft",
    Outdated: "outdated",
    Notice: "notice",
    Waiting: "waiting",
    Paused: "paused",
    Restarting: "restarting",
    Restart: "restart",
    Detail: "detail",
    Attached: "attached",
    Closed: "closed",
}


def as_arrays(figures: Mapping[str, Figures]) -> dict[str, list[Any]]:
    """Return figures as they are sent: orjson, which Jupyter uses if installed, takes no named tuples."""
    return {key: list(device) for key, device in figures.items()}


def to_json(message: KernelMessage) -> Json:
    """Return a message as it is sent; of `Changes`, parts without a change are left out."""
    fields = {name: value for name, value in message._asdict().items() if value != {}}
    return {"type": _TYPES[type(message)], **fields}
