"""An import hook, to configure a framework at the end of its import."""

from __future__ import annotations

import contextlib
import copy
import sys
import threading
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

from gpu_magic.finders import changed_finders

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["PostImportHook"]


class PostImportHook:
    """A finder in `sys.meta_path` that calls `callback` when one of `modules` has been imported.

    The finders after the hook find the module. A copy of the module's loader calls `callback`, in the thread
    that imports the module. With `thread`, the hook ignores other threads. `callback` must not raise an
    error, because an import that fails at its end cannot be repeated.
    """

    def __init__(
        self, modules: Collection[str], callback: Callable[[str], None], *, thread: int | None = None
    ) -> None:
        self._modules = frozenset(modules)
        self._callback = callback
        self._thread = thread

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find one of the modules through the finders after this one, and wrap its loader."""
        if fullname not in self._modules or self._thread not in (None, threading.get_ident()):
            return None
        finders = list(sys.meta_path)
        for finder in finders[finders.index(self) + 1 :] if self in finders else ():
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(fullname, path, target) if find else None
            if spec is not None:
                self._wrap(spec)
                return spec
        return None

    def _wrap(self, spec: ModuleSpec) -> None:
        """Make the module's loader call back once. A loader that cannot be wrapped stays as it is."""

        def exec_module(module: ModuleType) -> None:
            with contextlib.suppress(AttributeError):
                del loader.exec_module  # call back only once
            run(module)
            if self in sys.meta_path:  # a lazy loader can run the module after `detach`
                self._callback(module.__name__)

        with contextlib.suppress(Exception):  # a loader of another package can have slots
            loader: Any = copy.copy(spec.loader)
            run = loader.exec_module
            if loader is not spec.loader:  # `copy` does not copy a class
                loader.exec_module = exec_module
                spec.loader = loader

    def attach(self) -> None:
        """Insert the hook before `PathFinder`, and after finders that only observe imports.

        The hook of an inner block comes before the hook of an outer block. So the outer hook calls back
        first, and the inner hook overrides it.
        """
        with changed_finders() as finders:
            positions = (
                position
                for position, finder in enumerate(finders)
                if finder is PathFinder or type(finder) is PostImportHook
            )
            finders.insert(next(positions, 0), self)

    def detach(self) -> None:
        with changed_finders() as finders:
            finders[:] = [finder for finder in finders if finder is not self]
