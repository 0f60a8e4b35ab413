"""What is installed in this Python: the frameworks' builds, NVML's binding, the widget's packages."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic.devices.binding import PROBLEM
from gpu_magic.diagnosis.builds import installed, loaded_version, read_builds
from gpu_magic.diagnosis.facts import Packages

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["read_packages"]

_NAMED = ("nvidia-ml-py", "pynvml", "anywidget", "ipywidgets", "ipykernel", "ipython")
# They are built against one build of PyTorch: another one's do not load.
_SIBLINGS = ("torchvision", "torchaudio")


def read_packages(paths: Sequence[str] | None = None, root: Path = Path("/")) -> Packages:
    """Read the metadata of what is installed; nothing is imported but NVML's binding, which is ours to use.

    Parameters
    ----------
    paths, root
        As in `read_builds`.

    """
    places = list(sys.path if paths is None else paths)
    found = {name: dist for name in (*_NAMED, *_SIBLINGS) if (dist := installed(name, places))}
    binding = found.get("pynvml")
    files = {str(file) for file in (binding.files if binding else None) or ()}
    return Packages(
        read_builds(places, root),
        tuple((name, found[name].version) for name in _NAMED if name in found),
        tuple((name, found[name].version) for name in _SIBLINGS if name in found),
        "pynvml.py" in files,
        PROBLEM,
        platform.python_version(),
        loaded_version("gpu_magic"),
    )
