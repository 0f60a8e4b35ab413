"""The memory that this process can still have on the host: of the machine, and of its control groups."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["free_host_bytes"]


class _Group(NamedTuple):
    """The files of a control group."""

    folder: str
    limit: str
    used: str
    dropped: str  # in memory.stat: cached files that Linux drops if memory is short


_V2 = _Group("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")
_V1 = _Group("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def free_host_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes that are free here, as Linux reports them (proc(5), cgroups(7)). None if unknown.

    Caches that Linux can drop count as free. A container or a scheduler can limit its processes.
    """
    found = re.search(r"^MemAvailable: +(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    return min([int(found[1]) << 10, *_left_in_groups(root)]) if found else None


def _left_in_groups(root: Path) -> Iterator[int]:
    """Yield the bytes up to the limit of each control group that this process is in."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        names = _V1 if controllers else _V2
        top = root / names.folder
        group = top / path.lstrip("/")  # in a container, the path can be that of the host, and not exist
        for folder in {top, group, *(one for one in group.parents if one.is_relative_to(top))}:
            with contextlib.suppress(ValueError):  # no such file, or "max"
                left = int(_text(folder / names.limit)) - int(_text(folder / names.used))
                cached = re.search(rf"^{names.dropped} (\d+)$", _text(folder / "memory.stat"), re.MULTILINE)
                yield max(0, left + int(cached[1] if cached else 0))


def _text(file: Path) -> str:
    """Return the text of a file. Empty if it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return file.read_text(encoding="ascii")
    return ""
