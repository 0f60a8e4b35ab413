"""What can be set in IPython's configuration."""

from __future__ import annotations

from traitlets import Enum
from traitlets.config import Configurable

__all__ = ["GpuMagics"]


class GpuMagics(Configurable):
    """The magics of gpu_magic; `%config GpuMagics` shows what can be set."""

    on_frozen = Enum(
        ["warn", "error"],
        default_value="warn",
        help='What a different choice does once CUDA has started: "warn", or "error", which stops Run All.',
    ).tag(config=True)
