"""The memory that is left on the host, by files as Linux has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpu_magic.objects.host import free_host_bytes

if TYPE_CHECKING:
    from pathlib import Path

MEMINFO = "MemTotal:       65536000 kB\nMemFree:         100 kB\nMemAvailable:    1000 kB\n"
V1, V2 = "4:memory:/slurm/job_7\n3:cpu,cpuacct:/slurm\n", "0::/user.slice/a.scope\n"
GROUP = "sys/fs/cgroup/user.slice/a.scope"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


FOUND: dict[str, tuple[dict[str, str], int | None]] = {
    "no group": ({}, 1000 << 10),
    "a group without a limit": (
        {"proc/self/cgroup": V2, f"{GROUP}/memory.max": "max\n", f"{GROUP}/memory.current": "5\n"},
        1000 << 10,
    ),
    "a group's limit, without the files that it can drop": (
        {
            "proc/self/cgroup": V2,
            f"{GROUP}/memory.max": "5000\n",
            f"{GROUP}/memory.current": "4500\n",
            f"{GROUP}/memory.stat": "active_file 7\ninactive_file 200\n",
        },
        700,
    ),
    "the limit of a group around it": (
        {
            "proc/self/cgroup": V2,
            f"{GROUP}/memory.max": "max\n",
            "sys/fs/cgroup/user.slice/memory.max": "300\n",
            "sys/fs/cgroup/user.slice/memory.current": "100\n",
        },
        200,
    ),
    "more in use than the limit": (
        {"proc/self/cgroup": V2, f"{GROUP}/memory.max": "10\n", f"{GROUP}/memory.current": "20\n"},
        0,
    ),
    "the first version, in a container that sees the host's path": (
        {
            "proc/self/cgroup": V1,
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "6000\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "5000\n",
        },
        1000,
    ),
    "unknown": ({"proc/meminfo": "MemFree: 100 kB\n"}, None),
}


@pytest.mark.parametrize("case", FOUND)
def test_the_least_that_is_left(tmp_path: Path, case: str) -> None:
    files, left = FOUND[case]
    write(tmp_path, {"proc/meminfo": MEMINFO, **files})
    assert free_host_bytes(tmp_path) == left
