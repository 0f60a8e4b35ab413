"""What a saved error holds: the local variables of functions, and the errors that led to it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpu_magic.frameworks.answers import Components

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["components_of_error"]


def components_of_error(error: BaseException) -> Components:
    """Return what an error holds; nothing of it can be replaced."""
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return Components(
        [*error.args, *vars(error).values(), *inner, error.__cause__, error.__context__, *_variables(error)]
    )


def _variables(error: BaseException) -> Iterator[object]:
    """Return the local variables of the functions. Those of a cell are the user's, and not the error's."""
    namespace = vars(sys.modules["__main__"])
    step = error.__traceback__
    while step is not None:
        frame = step.tb_frame
        if frame.f_globals is not namespace or frame.f_code.co_name != "<module>":
            yield from (value for value in dict(frame.f_locals).values() if value is not namespace)
        step = step.tb_next
