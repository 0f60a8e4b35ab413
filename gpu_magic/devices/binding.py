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
_INSTALLED = {"site-packages", "dist-packages"}


def _check_is_not_hidden() -> None:
    """Raise BindingError where a file of somebody's own is found in place of NVIDIA's."""
    spec = PathFinder.find_spec("pynvml")
    file = Path((spec and spec.origin) or "")
    # Beside what pip has installed anywhere else, as with --target, its record stands.
    is_installed = not _INSTALLED.isdisjoint(file.parts) or any(file.parent.glob("nvidia_ml_py-*"))
    if file.name == "pynvml.py" and not is_installed:
        mend = "rename it, and restart Python"
        raise BindingError(f"{printable(str(file))} hides NVIDIA's module of this name: {mend}.")


_check_is_not_hidden()
try:
    with warnings.catch_warnings():
        # The wrapper warns in the name of the file that imports it, and this one is not to blame.
        warnings.simplefilter("ignore", FutureWarning)
        import pynvml
except ImportError as error:
    raise BindingError(
        "NVIDIA's package nvidia-ml-py is missing: pip install nvidia-ml-py, and restart Python."
    ) from error

# Why GPUs can't be read with it, as a sentence; empty where they can.
PROBLEM = ""
if not all(hasattr(pynvml, name) for name in _NEEDED):
    PROBLEM = (
        "The module pynvml here is too old, or not NVIDIA's: pip uninstall pynvml, then "
        "pip install --force-reinstall nvidia-ml-py, and restart Python."
    )
