"""What `choose` says once CUDA is initialized, and PyTorch is there."""

import warnings

import torch  # noqa: F401 - it is to be imported

from gpu_magic import choose
from tests.programs.choosing import start_cuda


def refused():
    choose("1,2")
    start_cuda()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        choose("2")
    return [str(one.message) for one in caught]
