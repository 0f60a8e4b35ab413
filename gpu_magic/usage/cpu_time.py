"""The CPU time of this process, as `%time` counts it."""

from __future__ import annotations

import os

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

__all__ = ["cpu_time"]


def cpu_time() -> tuple[float, float]:
    """Return the seconds that this process has spent in its own code, and in the system's, in all threads."""
    if resource is None:
        return os.times()[:2]
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime, used.ru_stime
