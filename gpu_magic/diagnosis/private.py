"""What a report for others must not have: names of people and machines, paths, whole UUIDs."""

from __future__ import annotations

import os
import re
import socket
from pathlib import PurePath
from typing import TYPE_CHECKING

from gpu_magic.devices.owner import owner_name
from gpu_magic.devices.unknown import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["private_names", "without_private"]

_UUID = re.compile(r"\b((?:GPU|MIG|MIG-GPU)-[0-9a-fA-F]{4})[0-9a-fA-F]*(?:-[0-9a-fA-F]+)*(?:/\d+/\d+)?")
# A path that is not behind a word or a slash, as those of an URL and of `image/png` are.
_PATH = re.compile(r"(?<![\w:/.~>])(?:~|/)[^\s'\",;:()<>|*]+(?:/[^\s'\",;:()<>|*]*)*")
# One in quotes can have spaces.
_QUOTED = re.compile(r"(?<=')(?:~|/)[^']*(?=')|(?<=\")(?:~|/)[^\"]*(?=\")")
# Those of the system itself, which are the same everywhere, and say what is meant.
_SYSTEM = (
    "/dev/nvidia",
    "/dev/dxg",
    "/dev/kfd",
    "/proc/driver/nvidia",
    "/usr/lib/wsl",
    "/usr/local/cuda",
    "/etc/ld.so",
)
_SHORTEST = 2  # characters of a name: a single letter is in every word's way


def private_names(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of this user and this host, and the home folder, the longest first."""
    owner = owner_name(os.getuid()) if hasattr(os, "getuid") else UNKNOWN
    host = socket.gethostname()
    home = environment.get("HOME", "")
    names = {
        "" if owner is UNKNOWN else owner,
        *(environment.get(name, "") for name in ("USER", "LOGNAME", "JUPYTERHUB_USER", "HOSTNAME")),
        host,
        host.partition(".")[0],
        home,
        PurePath(home).name,
    }
    found = sorted((name for name in names if len(name) >= _SHORTEST and name != "/"), key=len, reverse=True)
    return tuple(found)


def without_private(text: str, names: Iterable[str]) -> str:
    """Return a text without names, with paths left out and UUIDs shortened."""
    listed = list(names)
    shown = text
    for folder in (name for name in listed if "/" in name):  # before it is taken apart at its spaces
        shown = re.sub(rf"{re.escape(folder)}(?![\w-])", "~", shown)
    shown = _UUID.sub(r"\1…", _PATH.sub(_path, _QUOTED.sub(_path, shown)))
    for name in listed:
        shown = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "…", shown)
    return shown


def _path(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith(_SYSTEM) else "…"
