"""The GPUs as NVIDIA's kernel module lists them in /proc: what is known of them where NVML is not there."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from gpu_magic.devices.model import Gpu
from gpu_magic.devices.unknown import UNKNOWN

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["list_gpus"]

_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # before its first use: "GPU-????????-…"


def list_gpus(root: Path) -> tuple[Gpu, ...]:
    """Return the GPUs that can be used here, in the order of their bus IDs, which is NVML's.

    A container without the driver capability "utility" has CUDA, and no NVML. `/proc/driver/nvidia/gpus` has
    a folder for each GPU of the machine. Those that a process here can use have a device file that it may
    open.

    Parameters
    ----------
    root
        The folder that has `proc` and `dev`.

    """
    folders = (root / "proc/driver/nvidia/gpus").glob("*:*:*.*")  # bus IDs: `0000:07:00.0`
    gpus: list[Gpu] = []
    for folder in sorted(folders, key=lambda folder: (len(folder.name), folder.name)):
        try:
            lines = (folder / "information").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        minor, uuid = facts.get("Device Minor", ""), facts.get("GPU UUID", "")
        if not re.fullmatch(r"[0-9]{1,4}", minor) or facts.get("GPU Excluded") == "Yes":
            continue
        if os.access(root / f"dev/nvidia{minor}", os.R_OK | os.W_OK):
            gpu = Gpu(
                index=len(gpus),
                uuid=uuid if _UUID.fullmatch(uuid) else UNKNOWN,
                name=facts.get("Model") or UNKNOWN,
                bus_id=folder.name.rjust(len("00000000:07:00.0"), "0").upper(),
            )
            gpus.append(gpu)
    return tuple(gpus)
