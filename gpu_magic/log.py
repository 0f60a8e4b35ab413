"""The loggers: what people change at INFO, what fails beneath them at DEBUG; silent unless somebody wants it.

`logging.getLogger("gpu_magic")` is above all of them: `gpu_magic.process` (choices), `.claims`, `.launching`,
`.engines`, `.restart`, `.devices` (what drivers refuse), `.widget` and `.api` (where an error was raised).
"""

from __future__ import annotations

import logging
import sys
from functools import cache
from typing import Any

__all__ = ["Log", "logger"]

_ROOT = "gpu_magic"

# Whoever wants it adds a handler; without one Python would write warnings to stderr (logging, `lastResort`).
logging.getLogger(_ROOT).addHandler(logging.NullHandler())


class Log(logging.LoggerAdapter[logging.Logger]):
    """A logger whose handlers and filters can fail: what is logged is done all the same, and whole."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a line; say once on stderr that a handler has raised something."""
        try:
            super().log(level, msg, *args, **{"stacklevel": 2, **kwargs})
        except Exception as error:  # noqa: BLE001 - they are anybody's
            _say_once(f"{type(error).__name__}: {error}")


def logger(room: str) -> Log:
    """Return the logger of one part of the package."""
    return Log(logging.getLogger(f"{_ROOT}.{room}"), {})


@cache
def _say_once(problem: str) -> None:
    name = f"logging.getLogger({_ROOT!r})"
    sys.stderr.write(f"A handler or filter of {name} has failed: {problem}\n")
