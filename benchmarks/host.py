"""Describes the machine that figures are taken on, without names, paths and addresses."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import gpu_magic
from benchmarks.peers import MEASURED
from benchmarks.timing import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["describe", "load", "name_of_results"]

_UNLIMITED = 1 << 60  # bytes: what version 1 of cgroups writes for no limit, or more
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def describe() -> dict[str, str]:
    """Return what figures depend on: the machine, Python, gpu_magic, and each package that is measured."""
    installed = {name: _version(name) for name in MEASURED}
    return {
        "gpu_magic": f"{gpu_magic.__version__}{_commit()}",
        "processor": f"{_processor()}, {_cores()}",
        "memory": f"{_memory() / (1 << 30):.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "packages": ", ".join(f"{name} {version}" for name, version in installed.items() if version),
        "not installed": ", ".join(name for name, version in installed.items() if not version) or "none",
    }


def name_of_results(machine: Mapping[str, str]) -> str:
    """Return a file's name that is the same on the same machine: `amd-epyc-2-cores`."""
    return re.sub(r"[^a-z0-9]+", "-", machine["processor"].lower()).strip("-") or "unknown"


def load() -> str:
    """Return the load average of the last one, five and fifteen minutes."""
    return " ".join(f"{one:.1f}" for one in os.getloadavg())


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _commit() -> str:
    """Return the commit that is measured, in a clone; empty elsewhere."""
    found = _git("rev-parse", "--short=10", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "gpu_magic", "benchmarks/*.py")
    return f", commit {found}{' with changes' if changed else ''}" if found else ""


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:  # there is no git
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _processor() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    name = found[1] if found else platform.machine()
    return re.sub(r"\((?:R|TM)\)|\bCPU\b|@.*", "", name).strip()


def _cores() -> str:
    total, usable = os.cpu_count() or 0, len(os.sched_getaffinity(0))
    return f"{total} cores" if usable == total else f"{usable} of {total} cores"


def _memory() -> int:
    """Return the bytes of memory that this process could use: the machine's, or its container's limit."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [int(text) for text in map(_read, _LIMITS) if text.strip().isdecimal()]
    return min([total, *(limit for limit in limits if limit < _UNLIMITED)])


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
