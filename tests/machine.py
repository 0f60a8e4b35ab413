"""The machine that processes and kernels in the tests look at, through the pretend driver libraries."""

from __future__ import annotations

import os
from pathlib import Path

from tests.native import Card, Driver, Instance, amd_environment, environment

__all__ = [
    "AMD_CARDS",
    "CARDS",
    "GIB",
    "IN_CONTAINER",
    "MIG",
    "Card",
    "Driver",
    "Instance",
    "amd_environment",
    "clean_environment",
    "environment",
]

GIB = 1 << 30

# There the driver's process numbers are not ours, so no owner and no name is told.
IN_CONTAINER = str(Path("/proc/self/ns/pid").readlink()) != "pid:[4026531836]"

CARDS = tuple(
    Card(
        f"GPU-{number}a000000-0000-4000-8000-0123456789ab",
        "NVIDIA A100-SXM4-80GB",
        f"00000000:{7 + 8 * number:02X}:00.0",
        total=80 * GIB,
        used=GIB // 2,
        util=0,
        temperature=31 + number,
        milliwatts=56_000,
    )
    for number in range(4)
)

# HIP counts the first two the other way round.
AMD_CARDS = tuple(
    Card(
        f"GPU-{number}c0ffee000000001",
        "AMD Instinct MI300X",
        f"0000:{5 + 16 * number:02X}:00.0",
        total=192 * GIB,
        used=GIB // 2,
        util=0,
        temperature=40 + number,
        milliwatts=140_000,
        hip=(1, 0, 2, 3)[number],
    )
    for number in range(4)
)

MIG = tuple(
    Instance(
        f"MIG-{number}b000000-0000-4000-8000-0123456789ab", f"NVIDIA A100 MIG {kind}", 40 * GIB, GIB // 4
    )
    for number, kind in enumerate(("3g.40gb", "4g.40gb"))
)


def clean_environment(*prefixes: str) -> dict[str, str]:
    """Return our environment without variables that say which GPUs there are, or change what is shown; also without those by prefix.

    Claims are still those of this run alone, and waits look often.
    """
    removed = "CUDA_", "GPU_MAGIC", "SLURM_", "LSB_", "PBS_", "NVIDIA_VISIBLE", "PYTHONUNBUFFERED", *prefixes
    kept = "GPU_MAGIC_CLAIMS", "GPU_MAGIC_PACE"
    return {name: value for name, value in os.environ.items() if name in kept or not name.startswith(removed)}
