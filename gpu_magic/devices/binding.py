"""NVIDIA's Python binding for NVML, nvidia-ml-py (`import pynvml`), or why what is there can't be used.

A package on PyPI has the same module name. Up to 11.4.1 it is another binding, which is found in place of
nvidia-ml-py and lacks what came with the driver R510; from 12.0 on it is a deprecated wrapper.
"""

from __future__ import annotations

import warnings
from importlib.machinery import PathFinder
from pathlib import Path

from gpu_magic.errors import BindingError
from gpu_magic.text import printable

__all__ = ["PROBLEM", "pynvml"]

_NEEDED = ("nvmlMemory_v2", "c_nvmlProcessInfo_v3_t")


def _hiding() -> str:
    """Return what is said of a file of somebody's own that is found in place of NVIDIA's; empty for none."""
    spec = PathFinder.find_spec("pynvml")
    file = Path((spec and spec.origin) or "")
    if file.name != "pynvml.py" or not {"site-packages", "dist-packages"}.isdisjoint(file.parts):
        return ""
    return f"{printable(str(file))} hides NVIDIA's module of this name: rename it, and restart Python."


try:
    with warnings.catch_warnings():
        # The wrapper warns in the name of the file that imports it, and this one is not to blame.
        warnings.simplefilter("ignore", FutureWarning)
        import pynvml
except Exception as error:  # a file of this name can raise anything
    missing = "NVIDIA's package nvidia-ml-py can't be imported: pip install --force-reinstall nvidia-ml-py"
    raise BindingError(_hiding() or f"{missing}, and restart Python.") from error

# Why GPUs can't be read with it, as a sentence; empty where they can.
PROBLEM = ""
if not all(hasattr(pynvml, name) for name in _NEEDED):
    if hiding := _hiding():  # it need not have anything of what other modules use as they are loaded
        raise BindingError(hiding)
    PROBLEM = (
        "The module pynvml here is too old, or not NVIDIA's: pip uninstall pynvml, then "
        "pip install --force-reinstall nvidia-ml-py, and restart Python."
    )
