"""The messages that the kernel sends to pages.

A message is a JSON object. Its `type` is one of the names in `_TYPES`; its other keys are the fields of the
class here. `protocol.js` lists the same. `page_messages.py` says what a *key*, a *request*, a *page* and the
*draft* are.

A reading's time is a *second*: a whole number on a clock of the kernel's that never goes back.

A row's *detail* is what is shown below it where it is opened. It goes only to pages that have said which rows
are open; `detail.py` has what is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from gpu_magic.widget.page_state import FullState, NoticeKind

__all__ = [
    "Attached",
    "Changes",
    "Closed",
    "Detail",
    "Draft",
    "Heartbeat",
    "KernelMessage",
    "Notice",
    "Outdated",
    "Paused",
    "Restart",
    "Restarting",
    "State",
    "Waiting",
    "to_json",
]

Json = dict[str, Any]


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
    text, kind, warnings
        As `said` in `FullState`.
    version
        As in `FullState`; 0 in an answer to one page, which no other misses.

    """

    text: str
    kind: NoticeKind
    warnings: list[str]
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


def to_json(message: KernelMessage) -> Json:
    """Return a message as it is sent; of `Changes`, parts without a change are left out."""
    fields = {name: value for name, value in message._asdict().items() if value != {}}
    return {"type": _TYPES[type(message)], **fields}
