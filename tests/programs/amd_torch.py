"""What PyTorch for ROCm counts: its own code, with the real amdsmi over the pretend library."""

from __future__ import annotations

import amdsmi
import torch
import torch.cuda


def become_rocm() -> None:
    """Have PyTorch take itself for the build for ROCm, as far as counting goes."""
    torch.version.hip = "6.4"
    torch.cuda.amdsmi = amdsmi
    torch.cuda._HAS_AMDSMI = True


def count() -> int:
    become_rocm()
    return int(torch.cuda._device_count_amdsmi())
