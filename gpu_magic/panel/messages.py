"""The messages between pages and the kernel: JSON objects, each with a `type`.

The kernel sends
  state     everything that a page shows (see `PanelState.state`), once a second, for a chip alone every 5 s,
            and after each event.
            `pause`: the seconds in which no other state may come, because the kernel does not hear the page
            during a cell
  same      {second, pause}: the state is the same except for these
  restart   {kernel, page}: restart the kernel with this id (empty: unknown) through the Jupyter server. The
            page with the name `page` does this: a panel, or rerun.js, which then runs cells. If `page` is
            empty, every page answers whether it can
  refused   {page, text}: the choice that `page` asked for was made without a restart, or not at all, and why
  attached  {page, script, style, state}: the answer to `attach`
  closed    {}: gpu_magic was unloaded, so pages without a widget no longer have a kernel

Pages send what `CHECKS` lists:
  look            whether a view is "watched" (visible to a person who used the page in the last ten minutes),
                  "unwatched" or "hidden", and its open rows (null: it is a chip, which gets fewer states);
                  sent when these change, and every 15 s while the view is watched or, during a cell, not
                  hidden. Unless it is hidden, the answer is a state with the last minutes.
  choose          choose the clicked GPUs as soon as no cell runs. If `restart` is true, restart the kernel
                  if necessary
  wait            choose the clicked GPUs as soon as they are free and no cell runs; `stop_waiting` cancels it
  answer_restart  whether this page can restart the kernel; also sent when a restart failed
  end_process     end one of the user's own processes with TERM, or with KILL if TERM did not end it
  free            free memory as `%gpu_free` does, as soon as no cell runs
  attach          send the panel's script, style and state to a page without a widget

The *key* of a device is what users type for it after `%gpus`: `3`, `MIG-41b7…`. A *request* is the whole text
after `%gpus`: `3,1`, `none`, `3,1 --growth --memory-limit 8GB`. A *page* is a copy of a widget's model in a
browser tab. A *view* is a place in the page that shows a panel. The page makes up the names of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpu_magic.errors import GpuMagicError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CHECKS", "NotUnderstoodError", "page_that_chooses", "read"]

_LONGEST_NAME = 64  # characters of a page's or a view's name, or of a key
_MOST_OPEN = 256  # rows of a view
_HIGHEST_PID = (1 << 31) - 1  # pid_t
_HIGHEST_NUMBER = (1 << 53) - 1  # Number.MAX_SAFE_INTEGER


class NotUnderstoodError(GpuMagicError):
    """A page sent an invalid message."""

    def __init__(self) -> None:
        super().__init__("The page sent an invalid message. Nothing was changed.")


def _is_text(value: object) -> bool:
    """Return whether a value is printable text. A lone surrogate would make every later message fail."""
    return isinstance(value, str) and value.isprintable()


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME and _is_text(value)


def _is_keys(value: object) -> bool:
    return isinstance(value, list) and len(value) <= _MOST_OPEN and all(map(_is_name, value))


def _is_keys_or_null(value: object) -> bool:
    return value is None or _is_keys(value)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_number(value: object) -> bool:
    """Return whether a value is a whole number that JavaScript represents exactly."""
    return type(value) is int and 0 <= value <= _HIGHEST_NUMBER


def _is_pid(value: object) -> bool:
    return type(value) is int and 0 < value <= _HIGHEST_PID


def _is_visibility(value: object) -> bool:
    return value in ("watched", "unwatched", "hidden")


# For each type of message, its other keys with the checks of their values.
CHECKS: dict[str, dict[str, Callable[[object], bool]]] = {
    "look": {"view": _is_name, "visibility": _is_visibility, "open": _is_keys_or_null},
    "choose": {"request": _is_text, "restart": _is_bool, "page": _is_name},
    "wait": {"request": _is_text},
    "stop_waiting": {},
    "answer_restart": {"page": _is_name, "can": _is_bool},
    "end_process": {"pid": _is_pid, "started": _is_number, "kill": _is_bool},
    "free": {},
    "attach": {"page": _is_name},
}


def read(message: object) -> tuple[str, dict[str, Any]]:
    """Return the type of a message and its other keys. A page can send any JSON.

    Raises
    ------
    NotUnderstoodError
        The message fits none of `CHECKS`.

    """
    if isinstance(message, dict) and isinstance(kind := message.get("type"), str) and kind in CHECKS:
        checks = CHECKS[kind]
        if all(name in message and is_valid(message[name]) for name, is_valid in checks.items()):
            return kind, {name: message[name] for name in checks}
    raise NotUnderstoodError


def page_that_chooses(message: object) -> str:
    """Return the page that asks for a choice. Empty: the message is another one."""
    page = message.get("page") if isinstance(message, dict) and message.get("type") == "choose" else None
    return str(page) if _is_name(page) else ""
