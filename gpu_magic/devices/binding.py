"""NVIDIA's Python binding for NVML, nvidia-ml-py (`import pynvml`), or why what is there can't be used.

A package on PyPI has the same module name. Up to 11.4.1 it is another binding, which is found in place of
nvidia-ml-py and lacks what came with the driver R510; from 12.0 on it is a deprecated wrapper.
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # The wrapper warns in the name of the file that imports it, and this one is not to blame.
    warnings.simplefilter("ignore", FutureWarning)
    import pynvml

__all__ = ["PROBLEM", "pynvml"]

_NEEDED = ("nvmlMemory_v2", "c_nvmlProcessInfo_v3_t")

# Why GPUs can't be read with it, as a sentence; empty where they can.
PROBLEM = ""
if not all(hasattr(pynvml, name) for name in _NEEDED):
    PROBLEM = (
        "The module pynvml here is too old, or not NVIDIA's: pip uninstall pynvml, then "
        "pip install --force-reinstall nvidia-ml-py, and restart Python."
    )
