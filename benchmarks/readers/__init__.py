"""One file for each way to take a snapshot of a machine's GPUs.

Each has `read()`, which prepares and returns the call that is timed, and `plain(answer)`, which brings its
answer into one form, so that `benchmarks.snapshot` can see that all of them read the same.
"""

from __future__ import annotations

__all__ = ["MIB", "Plain"]

MIB = 1 << 20

# For each GPU: MiB used, percent, degrees Celsius, watts, and for each process PID, owner, name and MiB.
Plain = list[tuple[int, int, int, int, list[tuple[int, str, str, int]]]]
