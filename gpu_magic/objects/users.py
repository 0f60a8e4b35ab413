"""Tasks and threads of this process that use arrays."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.objects.namespace import is_installed
from gpu_magic.objects.walk import Budget
from gpu_magic.objects.where import arrays_in
from gpu_magic.processes.tasks import tasks

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["check_unused"]

_SEARCH_SECONDS = 0.5  # in each thread


def check_unused(arrays: Iterable[Any]) -> None:
    """Raise PlacementError if a task of this process can use variables, or a thread uses these arrays."""
    for task in tasks:
        if task.uses_variables and task.is_running:
            raise PlacementError(
                f"Task {task.name} still runs and can use these variables. Nothing was changed. To wait for "
                f"it: %gpu_tasks wait {task.name}"
            )
    wanted = set(map(id, arrays))
    frames = sys._current_frames()  # noqa: SLF001 - it is documented
    del frames[threading.get_ident()]  # a frame that refers to itself would keep all arrays
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        values: list[Any] = []
        while frame is not None:
            space, code = frame.f_globals, frame.f_code
            if not is_installed(code.co_filename) and frame.f_locals is not space:
                values += [*dict(frame.f_locals).values(), *map(space.get, code.co_names)]
            frame = frame.f_back
        if any(id(array) in wanted for array, _ in arrays_in(values, Budget(seconds=_SEARCH_SECONDS))):
            raise PlacementError(
                f"{thread.name} is a thread that uses these variables. Nothing was changed. End it first."
            )
