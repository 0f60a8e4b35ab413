"""CuPy."""

from __future__ import annotations

import sys

__all__ = ["CuPy"]


class CuPy:
    """`cupy`, through `cupy.cuda`."""

    name = "CuPy"

    def is_imported(self) -> bool:
        return "cupy" in sys.modules

    def is_started(self) -> bool:
        """Tell nothing: CuPy keeps no flag that can be read without starting CUDA."""
        return False

    def line_for(self, ordinal: int) -> str:
        return f"cupy.cuda.Device({ordinal}).use()"
