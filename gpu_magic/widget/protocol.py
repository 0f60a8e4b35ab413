"""The messages between the pages that show a panel and the kernel, in both directions.

A message is a JSON object. Its `type` is one of the names that `parse` and `_TYPES` have; its other keys are
the fields of the class here. `protocol.js` lists the same. A page's message can be any JSON, as whoever has
the page can send any: `parse` checks it strictly.

A device is called by its *key*, which is what one types after `%gpus` for it: `3`, `MIG-41b7…`. A *request*
is all that one types: `3,1`, `none`, `reset`, `3,1 --growth --memory-limit 8GB`. A *page* is one copy of a
widget's model in a browser tab; a *view* is one place of a page in which a panel is shown. Both are random
names that the page makes up.

The *draft* is what was clicked and is not applied yet. There is one, in the kernel, and each change of it
has a number. A page shows its own clicks at once and sends each with the number that it knows. Where the
draft has been changed elsewhere meanwhile, the kernel answers with the latest one, and the page repeats its
clicks on it. With a draft the kernel always says which clicks of each page it has.

A reading's time is a *second*: a whole number on a clock of the kernel's that never goes back.

A row's *detail* is what is shown below it where it is opened. It goes only to pages that have said which rows
are open; `detail.py` has what is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "AnswerRestart",
    "Attach",
    "Attached",
    "Changes",
    "Choose",
    "Closed",
    "Detail",
    "DeviceRow",
    "Draft",
    "EndProcess",
    "Figures",
    "Free",
    "FullState",
    "Header",
    "Heartbeat",
    "KernelMessage",
    "Notice",
    "NoticeKind",
    "Outdated",
    "PageMessage",
    "Paused",
    "Restart",
    "Restarting",
    "SetDetails",
    "SetDraft",
    "SetVisibility",
    "State",
    "Visibility",
    "as_arrays",
    "parse",
    "to_json",
]

_LONGEST_NAME = 64  # characters in the name of a view, or in the key of a device
_MOST_DETAILS = 256  # in a view
_HIGHEST_PID = (1 << 31) - 1  # pid_t

Json = dict[str, Any]
NoticeKind = Literal["info", "done", "warning", "error"]
# Of a view: in sight of a person who uses the page, in sight of nobody who does, or not in sight.
Visibility = Literal["watched", "unwatched", "hidden"]
_VISIBILITIES: tuple[Visibility, ...] = get_args(Visibility)


# What a page sends.


class SetVisibility(NamedTuple):
    """Whether a view is visible: said when that changes, and every 15 s while it is watched.

    The kernel reads the machine while some view is watched; during a cell also while one is unwatched. It
    answers with a `State` where the page has missed something, else with a `Heartbeat`. An unwatched page
    says nothing more, so that a Jupyter server can tell that nobody uses the kernel.

    Parameters
    ----------
    view
        The view.
    visibility
        "watched": a person can see it, and has used the page within the last ten minutes. "unwatched": nobody
        has. "hidden": it is behind another tab, scrolled away or closed.
    version
        The page's `FullState.version`.

    """

    view: str
    visibility: Visibility
    version: int


class SetDraft(NamedTuple):
    """Somebody clicked devices that are not applied yet; the other pages show them, too.

    Parameters
    ----------
    request
        The devices in the order of the clicks, and options; empty: none so far; None: what was clicked is
        dropped.
    page
        The page on which they were clicked.
    click
        The number of the click on that page.
    number
        The number of the draft on which it was clicked, as far as the page knew.

    """

    request: str | None
    page: str
    click: int
    number: int


class Choose(NamedTuple):
    """Somebody clicked "Use these": choose, as soon as no cell runs.

    Parameters
    ----------
    request
        What.
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


class SetDetails(NamedTuple):
    """Which rows of a view are open: said when that changes, and again with `SetVisibility`.

    It is answered with a whole `Detail` of each.

    Parameters
    ----------
    view
        The view.
    keys
        The devices.

    """

    view: str
    keys: tuple[str, ...]


class EndProcess(NamedTuple):
    """Somebody wants to end a process of their own, and was asked whether they do.

    Parameters
    ----------
    key
        A device that the process is on.
    pid, started
        The process, as in a `Detail`.
    kill
        Whether to send KILL, as TERM was of no use.

    """

    key: str
    pid: int
    started: int
    kill: bool


class Free(NamedTuple):
    """Somebody clicked "Free what can be freed": do what `%gpu_free` does, as soon as no cell runs."""


class Attach(NamedTuple):
    """A page has found the comm for pages, and asks for what it needs: the answer is `Attached`.

    Parameters
    ----------
    page
        The page.

    """

    page: str


PageMessage = SetVisibility | SetDraft | Choose | AnswerRestart | SetDetails | EndProcess | Free | Attach


def parse(message: object) -> PageMessage | None:
    """Return what a page asks for; None where its message is not one of those above."""
    match message:
        case {"type": "set_visibility", "view": str(view), "visibility": visibility, "version": int(version)}:
            is_valid = 0 < len(view) <= _LONGEST_NAME and visibility in _VISIBILITIES
            return SetVisibility(view, visibility, version) if is_valid else None
        case {
            "type": "set_draft",
            "request": str() | None as request,
            "page": str(page),
            "click": int(click),
            "number": int(number),
        }:
            return SetDraft(request, page, click, number)
        case {"type": "choose", "request": str(request), "restart": bool(restart), "page": str(page)}:
            return Choose(request, restart, page)
        case {"type": "answer_restart", "page": str(page), "can": bool(can)}:
            return AnswerRestart(page, can)
        case {"type": "set_details", "view": str(view), "keys": list(keys)}:
            is_valid = _is_name(view) and len(keys) <= _MOST_DETAILS and all(map(_is_name, keys))
            return SetDetails(view, tuple(keys)) if is_valid else None
        case {"type": "end_process", "key": str(key), "pid": pid, "started": started, "kill": bool(kill)}:
            is_valid = _is_name(key) and type(pid) is type(started) is int and 0 < pid <= _HIGHEST_PID
            return EndProcess(key, pid, started, kill) if is_valid else None
        case {"type": "free"}:
            return Free()
        case {"type": "attach", "page": str(page)}:
            return Attach(page)
    return None


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME


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
    launch_devices: str  # the devices that "reset" amounts to; empty where that is not known
    hides_devices: bool  # whether this process is known to see some of the devices only
    memory_options: str  # " --growth", as it was chosen last; empty where nothing was chosen
    least_busy: str  # all devices that "auto" picks from, the least busy first


class DeviceRow(TypedDict):
    """A GPU or MIG instance, without the figures that change each second."""

    label: str  # nvidia-smi's number; a branch, for an instance
    name: str
    total: str  # memory: "80.0 GiB"
    total_gib: float | None  # the same as a number; None: unknown
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
