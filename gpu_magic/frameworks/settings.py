"""The memory and GPU settings of this process's frameworks, which gpu_magic can undo."""

from __future__ import annotations

import sys
import warnings
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from gpu_magic.errors import ChoiceError
from gpu_magic.frameworks import KNOWN, get, imported
from gpu_magic.frameworks.base import MemorySettings
from gpu_magic.frameworks.post_import import PostImportHook
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.frameworks.base import Framework
    from gpu_magic.frameworks.target import LogicalDevice

__all__ = ["FrameworkSettings"]


class FrameworkSettings:
    """Configures frameworks, also those that are imported later, and can undo all settings."""

    def __init__(self) -> None:
        self.memory = MemorySettings()  # the latest settings
        self._hook: PostImportHook | None = None
        self._narrowed = ExitStack()
        self._narrowed_names: list[str] = []
        # The device that `narrow` made current, by framework, until other code has set another one.
        self._current: dict[Framework, LogicalDevice] = {}

    def check(self, memory: MemorySettings) -> None:
        """Check that it is not too late to set memory, unless the settings are the same.

        Raises
        ------
        ChoiceError
            A framework has started that reads its memory settings at its start.

        """
        if not memory or memory == self.memory:
            return
        late = [framework.name for framework in imported() if _is_late(framework)]
        if late:
            option = "--memory-limit" if memory.limit is not None else "--growth"
            have = "has" if len(late) == 1 else "have"
            raise ChoiceError(
                f"Too late for {option}: {listed(late)} {have} already started. Nothing was changed. "
                "Restart, and choose before that."
            )

    def limit(self, memory: MemorySettings) -> dict[str, str]:
        """Apply memory settings. Return the environment variables that the caller has to set.

        Frameworks that are imported later get the limit at the end of their import.

        Raises
        ------
        ChoiceError
            A framework has failed. The earlier settings apply again.

        """
        if not memory and not self.memory:
            return {}
        variables: dict[str, str] = {}
        for framework in map(get, KNOWN):
            variables.update(framework.memory_variables(memory))
        before = self.memory
        for name, error in self._limit_all(memory).items():
            if memory:
                self._limit_all(before)
                raise ChoiceError(f"{name} failed at{memory.options}: {error!r}. Nothing was changed.")
            warnings.warn(f"{name} failed to undo{before.options}: {error!r}", stacklevel=2)
        return variables

    def _limit_all(self, memory: MemorySettings) -> dict[str, Exception]:
        """Limit the frameworks, also those that are imported later. Return the errors of those that fail."""
        self.memory = memory
        if self._hook is not None:
            self._hook.detach()
        failed: dict[str, Exception] = {}
        for framework in imported():
            try:
                framework.limit_memory(memory)
            except Exception as error:  # noqa: BLE001 - it is other people's code, for example out of memory
                failed[framework.name] = error
        absent = [module for module in KNOWN if sys.modules.get(module) is None]
        if memory.limit is not None and absent:
            self._hook = PostImportHook(absent, self._limit_imported)
            self._hook.attach()
        return failed

    def narrow(self, ordinals: Sequence[int]) -> list[str]:
        """Set the GPUs that frameworks use, if the visible devices can no longer change.

        Returns
        -------
        list
            A sentence for each framework: the GPUs that it uses now, or why nothing changed.

        """
        self.widen()
        results = []
        for framework in imported():
            if framework.backend():  # it uses the devices of its backend
                continue
            try:
                result, undo = framework.narrow(ordinals)
            except Exception as error:  # noqa: BLE001 - the other frameworks can still use these GPUs
                result, undo = f"{framework.name} failed, so nothing changed: {error!r}", None
            if undo is None:
                results.append(f"{result}.")
                continue
            self._narrowed.push(undo)
            self._narrowed_names.append(framework.name)
            if (device := framework.current()) is not None:
                self._current[framework] = device
            results.append(f"{framework.name}: {result}.")
        return results

    def widen(self) -> list[str]:
        """Undo `narrow`. Return a sentence for each framework that `narrow` had changed."""
        self._narrowed.close()
        self._current.clear()
        names, self._narrowed_names = self._narrowed_names, []
        return [f"{name}: reset." for name in names]

    def strayed(self) -> list[str]:
        """Return a sentence, once, for each framework whose current device other code has set since `narrow`.

        Making Transformers' TrainingArguments or Accelerate's Accelerator sets it.
        """
        found = []
        for framework, device in [*self._current.items()]:
            now = None
            with suppress(Exception):  # after a CUDA error, each call can raise it again
                now = framework.current()
            if now not in (None, device):
                del self._current[framework]
                what = f"the current device of {framework.name}, not {device}"
                found.append(f"Other code has made {now} {what}.")
        return found

    def forget(self) -> None:
        """Undo all settings."""
        self.widen()
        self.limit(MemorySettings())

    def _limit_imported(self, module: str) -> None:
        try:
            get(module).limit_memory(self.memory)
        except Exception as error:  # noqa: BLE001 - an import that fails at its end cannot be repeated
            warnings.warn(f"--memory-limit does not work for {module}: {error!r}", stacklevel=2)


def _is_late(framework: Framework) -> bool:
    """Return whether a framework has started that reads its memory settings at its start."""
    try:
        return framework.preallocates and framework.is_started() is True
    except Exception:  # noqa: BLE001 - the choice warns that this is unknown
        return False
