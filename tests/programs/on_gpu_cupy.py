"""`on_gpu` with a CuPy that can't use CUDA."""

import cupy

from gpu_magic import on_gpu
from tests.programs.errors import placement_error


def made():
    with on_gpu(0):
        raise AssertionError(cupy)


def refused():
    return placement_error(made)
