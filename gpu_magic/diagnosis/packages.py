"""What is installed in this Python: the frameworks' builds, NVML's binding, the widget's packages."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic.devices.binding import PROBLEM
from gpu_magic.diagnosis.builds import installed, loaded_version, module_places, read_builds
from gpu_magic.diagnosis.facts import Packages

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.metadata import Distribution

__all__ = ["read_packages"]

_NAMED = ("nvidia-ml-py", "pynvml", "anywidget", "ipywidgets", "ipykernel", "ipython")
# They are built against one build of PyTorch: another one's do not load.
_SIBLINGS = ("torchvision", "torchaudio")


def read_packages(
    paths: Sequence[str] | None = None, root: Path = Path("/"), library_path: str = ""
) -> Packages:
    """Read the metadata of what is installed; nothing is imported but NVML's binding, which is ours to use.

    Parameters
    ----------
    paths, root, library_path
        As in `read_builds`.

    """
    places = module_places() if paths is None else list(paths)
    found = {name: dist for name in (*_NAMED, *_SIBLINGS) if (dist := installed(name, places))}
    return Packages(
        read_builds(places, root, library_path),
        tuple((name, found[name].version) for name in _NAMED if name in found),
        tuple((name, found[name].version) for name in _SIBLINGS if name in found),
        _has_file(found.get("pynvml"), "pynvml.py"),
        PROBLEM,
        platform.python_version(),
        loaded_version("gpu_magic"),
    )


def _has_file(found: Distribution | None, name: str) -> bool:
    """Return whether a distribution has brought a file, as far as its RECORD can be read."""
    try:
        return any(str(file) == name for file in (found.files if found else None) or ())
    except Exception:  # noqa: BLE001 - it can hold anything, and each version of Python raises another error
        return False
