"""What `hides_torch` is made with."""

import torch


def make():
    return torch.ones(1)


def make_with_a_generator():
    return torch.rand(1, generator=torch.Generator().manual_seed(0))


def make_with_normal():
    return torch.normal(0.0, 1.0, (1,))
