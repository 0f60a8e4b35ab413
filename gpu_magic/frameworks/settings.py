"""What one process's frameworks were told for good, until it is taken back: memory, and fewer GPUs."""

from __future__ import annotations

import sys
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING

from gpu_magic.errors import ChoiceError
from gpu_magic.frameworks import get, imported, known
from gpu_magic.frameworks.post_import import PostImportHook
from gpu_magic.selection.memory import Memory
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FrameworkSettings"]


class FrameworkSettings:
    """Tells frameworks, those that are imported later too, and takes it back."""

    def __init__(self) -> None:
        self._memory = Memory()
        self._arrivals: PostImportHook | None = None
        self._narrowed = ExitStack()
        self._names: list[str] = []

    @staticmethod
    def check(memory: Memory) -> None:
        """Refuse what a framework can't be told any more.

        Raises
        ------
        ChoiceError
            One that takes its memory when it starts has a GPU already.

        """
        late = [one.name for one in imported() if one.preallocates and one.has_gpu()]
        if late:
            option = "--memory-limit" if memory.limit is not None else "--growth"
            raise ChoiceError(
                f"{option} comes too late: {listed(late)} took its memory when it started on a GPU. "
                "Restart the kernel and choose before that; nothing was changed."
            )

    def limit(self, memory: Memory) -> dict[str, str]:
        """Tell how much memory to take; return the environment variables that are to be set for it."""
        if not memory and not self._memory:
            return {}
        self._memory = memory
        self._stop_waiting()
        frameworks = imported()
        for framework in frameworks:
            framework.limit_memory(memory)
        absent = [module for module in known() if sys.modules.get(module) is None]
        if memory.limit is not None and absent:
            self._arrivals = PostImportHook(absent, self._arrived)
            self._arrivals.attach()
        every = (get(module) for module in known())
        return {name: value for one in every if one for name, value in one.memory_variables(memory).items()}

    def narrow(self, ordinals: Sequence[int]) -> list[str]:
        """Tell which GPUs to use from here on, where the mask can't change; say what came of it."""
        self.widen()
        said = []
        for framework in imported():
            if framework.backend():  # it follows the one that it stands on
                continue
            what, undo = framework.narrow(ordinals)
            if undo is not None:
                self._narrowed.push(undo)
                self._names.append(framework.name)
            said.append(f"{what}." if what.startswith(framework.name) else f"{framework.name}: {what}.")
        return said

    def widen(self) -> list[str]:
        """Take back what `narrow` told; say of whom."""
        self._narrowed.close()
        names, self._names = self._names, []
        return [f"{name}: as it was." for name in names]

    def forget(self) -> None:
        """Take back everything."""
        self.widen()
        self.limit(Memory())

    def _arrived(self, module: str) -> None:
        framework = get(module)
        try:
            if framework is not None:
                framework.limit_memory(self._memory)
        except Exception as error:  # noqa: BLE001 - an import that fails at its end can't be tried again
            warnings.warn(f"{module} could not be told of --memory-limit: {error!r}", stacklevel=2)

    def _stop_waiting(self) -> None:
        if self._arrivals is not None:
            self._arrivals.detach()
            self._arrivals = None
