"""A package that starts CUDA when it is imported, as some real ones do."""

import colorsys  # noqa: F401 - what is imported before it
import ctypes

ctypes.CDLL("libcuda.so.1").cuInit(0)

import wave  # noqa: E402, F401 - and what after it
