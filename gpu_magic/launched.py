"""The environment that this process was started with."""

from __future__ import annotations

import os
import re

__all__ = ["launch_environment"]


def launch_environment() -> dict[str, str]:
    """Return the environment this process was started with, whatever was set since (Linux: /proc).

    Elsewhere, and where a program has written its title over it (setproctitle does), it is that of now.
    """
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
            entries = file.read().split(b"\0")
    except OSError:
        return dict(os.environ)
    launched: dict[str, str] = {}
    for name, equals, value in (entry.partition(b"=") for entry in entries):
        if equals and not re.fullmatch(rb"[^\s=]+", name):
            return dict(os.environ)
        if equals:
            launched.setdefault(os.fsdecode(name), os.fsdecode(value))  # getenv takes the first, too
    return launched or dict(os.environ)
