"""A package that starts CUDA last of all, when nothing more is imported."""

import ctypes

ctypes.CDLL("libcuda.so.1").cuInit(0)
