"""Guides with PyTorch, cell by cell."""

import torch

from tests.programs.cells import run_guide


def state():
    current = torch.accelerator.current_device_index()
    return [str(torch.get_default_device()), str(torch.ones(1).device), current]


def guide(name):
    return run_guide(name, "1", state)
