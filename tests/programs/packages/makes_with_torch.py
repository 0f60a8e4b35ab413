"""What `hides_torch` is made with."""

import torch


def make():
    return torch.ones(1)
