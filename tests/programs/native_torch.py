"""What PyTorch makes of masks, through NVML: a parser that nobody here wrote."""

from __future__ import annotations

import os

import torch


def counts(masks: list[str | None]) -> list[int]:
    """Return how many devices there are with each mask."""
    found = []
    for mask in masks:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        if mask is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = mask
        found.append(torch.cuda._device_count_nvml())
    return found


def uuids() -> list[str]:
    """Return the UUIDs that PyTorch reads of all GPUs."""
    return torch.cuda._raw_device_uuid_nvml()
