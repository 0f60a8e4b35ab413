"""AMD's Python binding for AMD SMI, amdsmi (`import amdsmi`), where it and its library are there.

Without the library, importing amdsmi prints two lines and ends with a KeyError (7.0.2, amdsmi_wrapper.py). So
the library is opened first, from where amdsmi looks for it. Opening it starts nothing.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MISFIT", "find_amdsmi"]

_LIBRARY = "libamd_smi.so"
_ROCM = "/opt/rocm"

MISFIT = (
    "AMD's GPUs can't be read: the module amdsmi does not fit the library libamd_smi.so here. "
    "ROCm brings one that does: pip install /opt/rocm/share/amd_smi."
)


def find_amdsmi() -> Any:
    """Return the module amdsmi; None where it, or its library, is not there.

    Raises
    ------
    ImportError
        The two do not fit: the library lacks a function of the module's.

    """
    if (loaded := sys.modules.get("amdsmi")) is not None:
        return loaded
    spec = PathFinder.find_spec("amdsmi")  # 0.1 ms, on machines without it as well
    if spec is None or spec.origin is None or not any(map(_opens, _places(Path(spec.origin).parent))):
        return None
    try:
        import amdsmi
    except (AttributeError, KeyError, OSError) as error:
        raise ImportError(MISFIT) from error
    return amdsmi


def _places(package: Path) -> Iterator[str]:
    """Yield the places where amdsmi looks for its library, in its order (`find_smi_library`, 7.0.2)."""
    if rocm := os.environ.get("ROCM_HOME", os.environ.get("ROCM_PATH")):
        yield str(Path(rocm, "lib", _LIBRARY))
    yield _LIBRARY  # where the loader finds it
    yield str(package / _LIBRARY)
    yield str(Path(os.environ.get("ROCM_PATH", _ROCM), "lib", _LIBRARY))


def _opens(place: str) -> bool:
    import ctypes  # pynvml has imported it

    try:
        ctypes.CDLL(place)
    except OSError:
        return False
    return True
