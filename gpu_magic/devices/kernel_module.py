"""The GPUs as NVIDIA's kernel module lists them in /proc: what is known of them where NVML is not there.

A container without the driver capability "utility" has CUDA, and no NVML. `/proc/driver/nvidia/gpus` has a
folder for each GPU of the machine, with its name and its UUID. Those that a process here can use have a
device file that it may open.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from gpu_magic.devices.model import Gpu
from gpu_magic.devices.unknown import UNKNOWN

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["NO_NVML", "list_gpus"]

NO_NVML = (
    "NVML is not here (libnvidia-ml.so.1), so neither figures nor processes are known: a container has it "
    "when it is started with NVIDIA_DRIVER_CAPABILITIES=compute,utility."
)

_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # before its first use: "GPU-????????-…"


def list_gpus(root: Path) -> tuple[Gpu, ...]:
    """Return the GPUs that can be used here, in the order of their bus IDs, which is NVML's.

    Parameters
    ----------
    root
        The folder that has `proc` and `dev`.

    """
    folders = (root / "proc/driver/nvidia/gpus").glob("*:*:*.*")  # bus IDs: `0000:07:00.0`
    gpus: list[Gpu] = []
    for folder in sorted(folders, key=lambda folder: (len(folder.name), folder.name)):
        facts = _read(folder / "information")
        if not re.fullmatch(r"[0-9]{1,4}", minor := facts.get("Device Minor", "")):
            continue
        if os.access(root / f"dev/nvidia{minor}", os.R_OK | os.W_OK) and facts.get("GPU Excluded") != "Yes":
            gpus.append(_gpu(len(gpus), folder.name, facts))
    return tuple(gpus)


def _read(file: Path) -> dict[str, str]:
    """Return the facts of a file, by name; none where it can't be read."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    facts = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in facts}


def _gpu(index: int, bus_id: str, facts: dict[str, str]) -> Gpu:
    uuid = facts.get("GPU UUID", "")
    return Gpu(
        index=index,
        uuid=uuid if _UUID.fullmatch(uuid) else UNKNOWN,
        name=facts.get("Model") or UNKNOWN,
        bus_id=bus_id.rjust(len("00000000:07:00.0"), "0").upper(),
    )
