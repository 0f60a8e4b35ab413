"""What is looked at within the kernel after each cell: its environment, its variables, what was logged."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import traceback

__all__ = ["begin", "tell", "tell_traceback"]

_raised: list[str] = []


class _Errors(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _raised.append(self.format(record))


def begin() -> None:
    """Note what is raised where no cell shows it: in threads, in destructors and in handlers of messages."""

    def note(raised) -> None:
        _raised.append("".join(traceback.format_exception(raised.exc_value)))

    threading.excepthook = sys.unraisablehook = note
    for name in ("", "traitlets", "tornado", "asyncio"):
        logging.getLogger(name).addHandler(_Errors(logging.ERROR))


def tell(namespace: dict) -> None:
    """Print all of it, as JSON."""
    found = {
        "environment": dict(os.environ),
        "variables": _values(namespace),
        "raised": list(_raised),
    }
    _raised.clear()
    print(json.dumps(found), end="")


def _values(namespace: dict) -> dict[str, str]:
    """Return the user's variables, as text."""
    found = {}
    for name in ("number", "words", "x", "batch"):
        value = namespace.get(name, "lost")
        found[name] = repr(value if not isinstance(value, dict) else sorted(value.items()))
    # The same tensor, wherever it is by now.
    if "batch" in namespace:
        found["is shared"] = str(namespace["batch"]["x"] is namespace["x"])
        found["x"] = found["batch"] = repr(namespace["x"].tolist())
    return found


def tell_traceback(shell, error: BaseException) -> str:
    """Return the frames of ours in what IPython would show of an error; empty for none."""
    if hasattr(error, "_render_traceback_"):
        shown = error._render_traceback_()
    else:
        shown = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
    ours = [line for line in shown if "/gpu_magic/" in line]
    # What comes before a magic, or the extension, begins, or after it has ended, is shown by IPython.
    doors = "/gpu_magic/__init__.py", "/gpu_magic/shell/extension.py"
    return ", ".join(ours) if any(not any(door in line for door in doors) for line in ours) else ""
