"""The messages between the pages that show a panel and the kernel, in both directions.

A message is a JSON object. Its `type` is one of the names that `parse` and `_TYPES` have; its other keys are
the fields of the class here. `protocol.js` lists the same. A page's message can be any JSON, as whoever has
the page can send any: `parse` checks it strictly.

A device is called by its *key*, which is what one types after `%gpus` for it: `3`, `MIG-41b7…`. A *request*
is all that one types: `3,1`, `none`, `reset`. A *page* is one copy of a widget's model in a browser tab; a
*view* is one place of a page in which a panel is shown. Both are random names that the page makes up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "AnswerRestart",
    "Changes",
    "Choose",
    "DeviceRow",
    "Draft",
    "Figures",
    "FullState",
    "Header",
    "Heartbeat",
    "KernelMessage",
    "Notice",
    "NoticeKind",
    "PageMessage",
    "Paused",
    "Restart",
    "Restarting",
    "SetDraft",
    "SetVisibility",
    "State",
    "as_arrays",
    "parse",
    "to_json",
]

_LONGEST_NAME = 64  # characters in the name of a view

Json = dict[str, Any]
NoticeKind = Literal["info", "done", "warning", "error"]


# What a page sends.


class SetVisibility(NamedTuple):
    """A view came into sight, is still in sight (every 15 s), or is not any more.

    The kernel reads the machine only while some view is visible. It answers with a `State` where the page has
    missed something, else with a `Heartbeat`.

    Parameters
    ----------
    view
        The view.
    visible
        Whether a person can see it.
    version
        The page's `FullState.version`.

    """

    view: str
    visible: bool
    version: int


class SetDraft(NamedTuple):
    """Somebody clicked devices that are not applied yet; the other pages show them, too.

    Parameters
    ----------
    request
        The devices in the order of the clicks; empty: none so far; None: what was clicked is dropped.
    page
        The page on which they were clicked.

    """

    request: str | None
    page: str


class Choose(NamedTuple):
    """Somebody clicked "Use these": choose, as soon as no cell runs.

    Parameters
    ----------
    request
        The devices.
    restart
        Whether to restart the kernel, where CUDA has been initialized with others.
    page
        The page that was clicked on: it is the one to restart the kernel.

    """

    request: str
    restart: bool
    page: str


class AnswerRestart(NamedTuple):
    """The answer to `Restart`: a page can restart the kernel through its Jupyter server, or has failed to.

    Parameters
    ----------
    page
        The page that answers.
    can
        Whether it can.

    """

    page: str
    can: bool


PageMessage = SetVisibility | SetDraft | Choose | AnswerRestart


def parse(message: object) -> PageMessage | None:
    """Return what a page asks for; None where its message is not one of those above."""
    match message:
        case {"type": "set_visibility", "view": str(view), "visible": bool(visible), "version": int(version)}:
            return SetVisibility(view, visible, version) if 0 < len(view) <= _LONGEST_NAME else None
        case {"type": "set_draft", "request": str() | None as request, "page": str(page)}:
            return SetDraft(request, page)
        case {"type": "choose", "request": str(request), "restart": bool(restart), "page": str(page)}:
            return Choose(request, restart, page)
        case {"type": "answer_restart", "page": str(page), "can": bool(can)}:
            return AnswerRestart(page, can)
    return None


# What the kernel sends: first the parts of the machine's state, then the messages.


class Header(TypedDict):
    """What is shown around the rows."""

    host: str
    driver: str  # "driver 580.65.06", or empty
    simulated: str  # the profile of a simulated machine, or empty
    problem: str  # why no GPU can be read, or empty
    cuda_state: str  # whether the choice can change: see `process.state.State`
    cuda_text: str  # the same as a sentence
    notes: list[str]  # what is wrong with CUDA_VISIBLE_DEVICES, a sentence each
    launch_devices: str  # the request that "reset" amounts to; empty where that is not known
    hides_devices: bool  # whether this process is known to see some of the devices only
    least_busy: str  # a request for all that "auto" picks from, the least busy first


class DeviceRow(TypedDict):
    """A GPU or MIG instance, without the figures that change each second."""

    label: str  # nvidia-smi's number; a branch, for an instance
    name: str
    total: str  # memory: "80.0 GiB"
    memory_shares: list[int]  # of the memory, in thousandths: this kernel's, other processes'
    users: list[str]  # who uses it, a line each, or what else there is to say
    usage: str  # free, busy, mine, unknown, problem
    visible_as: str  # what frameworks in this process call it: "cuda:0", "not visible", "not given", or empty
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

    time: float  # when it was made, in seconds since 1970
    tick: int  # how many times the machine was read
    version: int  # how many messages were sent that a page must not miss
    header: Header
    rows: dict[str, DeviceRow]
    figures: dict[str, list[Any]]  # `Figures` as arrays
    order: list[str]  # the keys as shown; the order in an object of JavaScript's puts numbers first
    history: dict[str, list[int | None]]  # utilization in percent, a reading each second, the newest last
    draft: str | None  # see `SetDraft`
    is_paused: bool  # see `Paused`


class State(NamedTuple):
    """Everything: sent to a page that has missed something, and to all when devices come and go."""

    state: FullState


class Changes(NamedTuple):
    """What one reading has changed; sent to all. Nothing is sent where nothing changed.

    Parameters
    ----------
    tick, version
        As in `FullState`. A page for which a version is missing asks for the `State`. Ticks that are missing
        are readings that changed nothing.
    header
        The fields that have changed.
    rows
        For each device whose row has changed, the fields that have.
    figures
        For each device whose figures have changed, all of them, as arrays.

    """

    tick: int
    version: int
    header: Json
    rows: dict[str, Json]
    figures: dict[str, list[Any]]


class Heartbeat(NamedTuple):
    """Nothing has changed: an answer to `SetVisibility`, and sent to all after ten seconds without a message.

    Without it, a page would say that there are no figures.

    Parameters
    ----------
    tick
        As in `FullState`.

    """

    tick: int


class Draft(NamedTuple):
    """What was clicked on some page and is not applied yet; sent to all.

    Parameters
    ----------
    request, page
        As in `SetDraft`; `page` is empty where the kernel made the change. The named page has it already.
    version
        As in `FullState`.

    """

    request: str | None
    page: str
    version: int


class Notice(NamedTuple):
    """A text to show in place of the one before; empty to clear it. Sent to all, or in answer to a page."""

    text: str
    kind: NoticeKind


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


KernelMessage = State | Changes | Heartbeat | Draft | Notice | Paused | Restarting | Restart

_TYPES: dict[type[KernelMessage], str] = {
    State: "state",
    Changes: "changes",
    Heartbeat: "heartbeat",
    Draft: "draft",
    Notice: "notice",
    Paused: "paused",
    Restarting: "restarting",
    Restart: "restart",
}


def as_arrays(figures: Mapping[str, Figures]) -> dict[str, list[Any]]:
    """Return figures as they are sent: orjson, which Jupyter uses if installed, takes no named tuples."""
    return {key: list(device) for key, device in figures.items()}


def to_json(message: KernelMessage) -> Json:
    """Return a message as it is sent; of `Changes`, parts without a change are left out."""
    fields = {name: value for name, value in message._asdict().items() if value != {}}
    return {"type": _TYPES[type(message)], **fields}
