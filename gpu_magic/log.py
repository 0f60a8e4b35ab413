"""The loggers: what people change at INFO, what fails beneath them at DEBUG; silent unless somebody wants it.

`logging.getLogger("gpu_magic")` is above all of them: `gpu_magic.process` (choices), `.claims`, `.launching`,
`.engines`, `.restart`, `.devices` (what drivers refuse) and `.widget`.
"""

from __future__ import annotations

import logging

__all__ = ["logger"]

_ROOT = "gpu_magic"

# Whoever wants it adds a handler; without one Python would write warnings to stderr (logging, `lastResort`).
logging.getLogger(_ROOT).addHandler(logging.NullHandler())


def logger(room: str) -> logging.Logger:
    """Return the logger of one part of the package."""
    return logging.getLogger(f"{_ROOT}.{room}")
