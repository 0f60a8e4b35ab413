"""Which processes work with this one, and what it calls itself."""

from __future__ import annotations

import os
import sys
from pathlib import PurePath
from typing import TYPE_CHECKING

from gpu_magic.devices.processes import descends_from, is_mine
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from gpu_magic.devices.unknown import Unknown

__all__ = ["LONGEST_NAME", "has_started_us", "is_ours", "notebook_name"]

LONGEST_NAME = 60  # characters


def is_ours(pid: int | Unknown) -> bool:
    """Return whether a process is this one, or one that it has started."""
    return pid is not UNKNOWN and is_mine(pid)


def has_started_us(pid: int | Unknown) -> bool:
    """Return whether a process has started this one, or is this one."""
    return pid is not UNKNOWN and descends_from(os.getpid(), (pid,))


def notebook_name() -> str:
    """Return the name of this process's notebook, or of its script; empty where it has none."""
    name = PurePath(os.environ.get("JPY_SESSION_NAME") or sys.argv[0]).name
    is_nameless = name in ("-c", "-m", "__main__.py", "ipykernel_launcher.py")
    return "" if is_nameless else shortened(name, LONGEST_NAME)
