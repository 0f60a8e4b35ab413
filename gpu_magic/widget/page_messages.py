"""The messages that pages send to the kernel.

A message is a JSON object. Its `type` is one of the names that `parse` has; its other keys are the fields of
the class here. `protocol.js` lists the same. It can be any JSON, as whoever has the page can send any:
`parse` checks it strictly.

A device is called by its *key*, which is what one types after `%gpus` for it: `3`, `MIG-41b7…`. A *request*
is all that one types: `3,1`, `none`, `reset`, `3,1 --growth --memory-limit 8GB`. A *page* is one copy of a
widget's model in a browser tab; a *view* is one place of a page in which a panel is shown. Both are random
names that the page makes up.

The *draft* is what was clicked and is not applied yet. There is one, in the kernel, and each change of it
has a number. A page shows its own clicks at once and sends each with the number that it knows. Where the
draft has been changed elsewhere meanwhile, the kernel answers with the latest one, and the page repeats its
clicks on it. With a draft the kernel always says which clicks of each page it has.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

__all__ = [
    "AnswerRestart",
    "Attach",
    "Choose",
    "EndProcess",
    "Free",
    "PageMessage",
    "SetDetails",
    "SetDraft",
    "SetVisibility",
    "StopWaiting",
    "Visibility",
    "Wait",
    "parse",
]

_LONGEST_NAME = 64  # characters in the name of a view, or in the key of a device
_MOST_DETAILS = 256  # in a view
_HIGHEST_PID = (1 << 31) - 1  # pid_t
_HIGHEST_NUMBER = (1 << 53) - 1  # Number.MAX_SAFE_INTEGER

# Of a view: in sight of a person who uses the page, in sight of nobody who does, or not in sight.
Visibility = Literal["watched", "unwatched", "hidden"]
_VISIBILITIES: tuple[Visibility, ...] = get_args(Visibility)


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


class Wait(NamedTuple):
    """Somebody clicked "Wait for it": choose, as soon as nobody else has these GPUs, and no cell runs.

    It is answered with `Waiting`. A change of the draft, another choice and `StopWaiting` end it.

    Parameters
    ----------
    request
        What.

    """

    request: str


class StopWaiting(NamedTuple):
    """Somebody clicked "Cancel": wait no longer."""


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
    pid, started
        The process, as in a `Detail`.
    kill
        Whether to send KILL, as TERM was of no use.

    """

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


PageMessage = (
    SetVisibility
    | SetDraft
    | Choose
    | Wait
    | StopWaiting
    | AnswerRestart
    | SetDetails
    | EndProcess
    | Free
    | Attach
)


def parse(message: object) -> PageMessage | None:
    """Return what a page asks for; None where its message is not one of those above."""
    match message:
        case {"type": "set_visibility", "view": str(view), "visibility": visibility, "version": int(version)}:
            is_valid = _is_name(view) and visibility in _VISIBILITIES and _is_number(version)
            return SetVisibility(view, visibility, version) if is_valid else None
        case {
            "type": "set_draft",
            "request": str() | None as request,
            "page": str(page),
            "click": int(click),
            "number": int(number),
        }:
            is_valid = _is_name(page) and _is_number(click) and _is_number(number)
            return SetDraft(request, page, click, number) if is_valid and _is_request(request) else None
        case {"type": "choose", "request": str(request), "restart": bool(restart), "page": str(page)}:
            return Choose(request, restart, page) if _is_name(page) and _is_request(request) else None
        case {"type": "wait", "request": str(request)}:
            return Wait(request) if _is_request(request) else None
        case {"type": "answer_restart", "page": str(page), "can": bool(can)}:
            return AnswerRestart(page, can) if _is_name(page) else None
        case {"type": "set_details", "view": str(view), "keys": list(keys)}:
            is_valid = _is_name(view) and len(keys) <= _MOST_DETAILS and all(map(_is_name, keys))
            return SetDetails(view, tuple(keys)) if is_valid else None
        case {"type": "end_process", "pid": pid, "started": started, "kill": bool(kill)}:
            is_valid = _is_number(pid) and _is_number(started) and 0 < pid <= _HIGHEST_PID
            return EndProcess(pid, started, kill) if is_valid else None
        case {"type": "free" | "stop_waiting" as name}:
            return Free() if name == "free" else StopWaiting()
        case {"type": "attach", "page": str(page)}:
            return Attach(page) if _is_name(page) else None
    return None


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME and _can_be_sent(value)


def _is_request(value: str | None) -> bool:
    """Return whether a value is a request, whatever it asks for, or None."""
    return value is None or _can_be_sent(value)


def _is_number(value: object) -> bool:
    """Return whether a value is a whole number that JavaScript has, too."""
    return type(value) is int and abs(value) <= _HIGHEST_NUMBER


def _can_be_sent(text: str) -> bool:
    """Return whether a text can be sent back: with half of a surrogate pair, no later message could be."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
