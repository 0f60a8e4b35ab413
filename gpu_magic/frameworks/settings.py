"""How this process's frameworks are configured until that is taken back: memory, and fewer GPUs."""

from __future__ import annotations

import sys
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING

from gpu_magic.errors import ChoiceError
from gpu_magic.frameworks import get, imported, known
from gpu_magic.frameworks.base import MemorySettings
from gpu_magic.frameworks.post_import import PostImportHook
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FrameworkSettings"]


class FrameworkSettings:
    """Configures frameworks, also those that are imported later, and can restore what was before."""

    def __init__(self) -> None:
        self.memory = MemorySettings()  # how much memory to take, as it was set last
        self._hook: PostImportHook | None = None
        self._narrowed = ExitStack()
        self._narrowed_names: list[str] = []

    def check(self, memory: MemorySettings) -> None:
        """Check that it is not too late to configure memory, unless it is configured so already.

        Raises
        ------
        ChoiceError
            A framework that reads how to take memory when it starts has started.

        """
        if not memory or memory == self.memory:
            return
        late = [
            framework.name for framework in imported() if framework.preallocates and framework.is_started()
        ]
        if late:
            option = "--memory-limit" if memory.limit is not None else "--growth"
            have = "has" if len(late) == 1 else "have"
            raise ChoiceError(
                f"Too late for {option}: {listed(late)} {have} already started. Nothing was changed. "
                "Restart, and choose before that."
            )

    def limit(self, memory: MemorySettings) -> dict[str, str]:
        """Set how much memory to take; return the environment variables that are to be set for it.

        Frameworks that are imported later get a limit at the end of their import.
        """
        if not memory and not self.memory:
            return {}
        self.memory = memory
        if self._hook is not None:
            self._hook.detach()
        for framework in imported():
            framework.limit_memory(memory)
        absent = [module for module in known() if sys.modules.get(module) is None]
        if memory.limit is not None and absent:
            self._hook = PostImportHook(absent, self._limit_imported)
            self._hook.attach()
        variables: dict[str, str] = {}
        for plugin in filter(None, map(get, known())):
            variables.update(plugin.memory_variables(memory))
        return variables

    def narrow(self, ordinals: Sequence[int]) -> list[str]:
        """Set which GPUs to use from here on, where the visible devices can't change any more.

        Returns
        -------
        list
            A sentence for each framework: what it uses now, or why it could not be changed.

        """
        self.widen()
        results = []
        for framework in imported():
            if framework.backend():  # it uses what its backend uses
                continue
            result, undo = framework.narrow(ordinals)
            if undo is not None:
                self._narrowed.push(undo)
                self._narrowed_names.append(framework.name)
            is_named = result.startswith(framework.name)
            results.append(f"{result}." if is_named else f"{framework.name}: {result}.")
        return results

    def widen(self) -> list[str]:
        """Take back `narrow`; return a sentence for each framework that it had changed."""
        self._narrowed.close()
        names, self._narrowed_names = self._narrowed_names, []
        return [f"{name}: reset." for name in names]

    def forget(self) -> None:
        """Take back all settings."""
        self.widen()
        self.limit(MemorySettings())

    def _limit_imported(self, module: str) -> None:
        framework = get(module)
        try:
            if framework is not None:
                framework.limit_memory(self.memory)
        except Exception as error:  # noqa: BLE001 - an import that fails at its end can't be tried again
            warnings.warn(f"--memory-limit does not work for {module}: {error!r}", stacklevel=2)
