"""CuPy."""

from __future__ import annotations

__all__ = ["FRAMEWORK"]


class CuPy:
    """`cupy`, through `cupy.cuda`."""

    name = "CuPy"

    def has_gpu(self) -> bool:
        """Tell nothing: CuPy keeps no flag that can be read without starting CUDA."""
        return False

    def line_for(self, ordinal: int) -> str:
        return f"cupy.cuda.Device({ordinal}).use()"


FRAMEWORK = CuPy()
