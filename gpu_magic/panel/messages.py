"""What pages and the kernel send each other: JSON objects, each with a `type`.

The kernel sends
  state     all that a page shows: see `PanelState.state`; once a second, and when something happens
  restart   {kernel, page}: restart the kernel of this id (empty: not known) through the Jupyter server; the
            page that is to do it, or, where it is empty, every page is asked whether it can
  attached  {page, script, style, state}: the answer to `attach`
  closed    {}: gpu_magic was unloaded, so that pages without a widget have no kernel any more

and pages what `CHECKS` lists:
  look            whether a view is "watched" (seen by a person who has used the page within ten minutes),
                  "unwatched" or "hidden", and which rows are open in it; said when that changes, and every
                  15 s while it is watched. The answer is a state with the last minutes.
  choose          choose what was clicked, as soon as no cell runs; restart: and restart the kernel where that
                  is needed
  wait            the same, as soon as nobody else has these GPUs, too; `stop_waiting` ends it
  answer_restart  whether this page can restart the kernel, or has failed to
  end_process     end a process of one's own: by TERM, or where that was of no use by KILL
  free            do what `%gpu_free` does, as soon as no cell runs
  attach          a page that has no widget asks for what shows a panel

A device is called by its *key*, which is what one types after `%gpus` for it: `3`, `MIG-41b7…`. A *request*
is all that one types: `3,1`, `none`, `3,1 --growth --memory-limit 8GB`. A *page* is one copy of a widget's
model in a browser tab, a *view* one place of it that shows a panel: both are names that the page makes up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpu_magic.errors import GpuMagicError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CHECKS", "NotUnderstoodError", "read"]

_LONGEST_NAME = 64  # characters of a page's or a view's name, or of a key
_MOST_OPEN = 256  # rows of a view
_HIGHEST_PID = (1 << 31) - 1  # pid_t
_HIGHEST_NUMBER = (1 << 53) - 1  # Number.MAX_SAFE_INTEGER


class NotUnderstoodError(GpuMagicError):
    """A page has sent what is no message."""

    def __init__(self) -> None:
        super().__init__("The page sent an invalid message. Nothing was changed.")


def _is_text(value: object) -> bool:
    """Return whether a value can be sent back: with half of a surrogate pair, no later message could be."""
    return isinstance(value, str) and value.isprintable()


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME and _is_text(value)


def _is_keys(value: object) -> bool:
    return isinstance(value, list) and len(value) <= _MOST_OPEN and all(map(_is_name, value))


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_number(value: object) -> bool:
    """Return whether a value is a whole number that JavaScript has, too."""
    return type(value) is int and 0 <= value <= _HIGHEST_NUMBER


def _is_pid(value: object) -> bool:
    return type(value) is int and 0 < value <= _HIGHEST_PID


def _is_visibility(value: object) -> bool:
    return value in ("watched", "unwatched", "hidden")


# By the type of a message, its other keys, and what their values must be.
CHECKS: dict[str, dict[str, Callable[[object], bool]]] = {
    "look": {"view": _is_name, "visibility": _is_visibility, "open": _is_keys},
    "choose": {"request": _is_text, "restart": _is_bool, "page": _is_name},
    "wait": {"request": _is_text},
    "stop_waiting": {},
    "answer_restart": {"page": _is_name, "can": _is_bool},
    "end_process": {"pid": _is_pid, "started": _is_number, "kill": _is_bool},
    "free": {},
    "attach": {"page": _is_name},
}


def read(message: object) -> tuple[str, dict[str, Any]]:
    """Return the type of a message and its other keys. It can be any JSON: whoever has the page sends any.

    Raises
    ------
    NotUnderstoodError
        It is none of `CHECKS`.

    """
    if isinstance(message, dict) and isinstance(kind := message.get("type"), str) and kind in CHECKS:
        checks = CHECKS[kind]
        if all(name in message and is_valid(message[name]) for name, is_valid in checks.items()):
            return kind, {name: message[name] for name in checks}
    raise NotUnderstoodError
