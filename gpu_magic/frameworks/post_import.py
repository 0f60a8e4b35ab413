"""Calls back at the end of an import, to configure a framework as soon as it is there."""

from __future__ import annotations

import contextlib
import copy
import sys
import threading
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["PostImportHook"]


class PostImportHook:
    """A finder in `sys.meta_path` that calls back when one of some modules has been imported.

    It lets the finders after it find the module, and has a copy of the module's loader call back, in the
    thread that imports it; `thread` keeps it to that one. The callback must not raise: an import that fails
    at its end can't be tried again.
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
        """Have the module's loader call back, once; without a way to do that, the import is as it was."""

        def exec_module(module: ModuleType) -> None:
            with contextlib.suppress(AttributeError):
                del loader.exec_module  # it is as any other from here on
            run(module)
            if self in sys.meta_path:  # a lazy loader runs the module when it is first used
                self._callback(module.__name__)

        with contextlib.suppress(Exception):  # a loader is another package's code, and can have slots
            loader: Any = copy.copy(spec.loader)
            run = loader.exec_module
            if loader is not spec.loader:  # not a class, which is its own copy
                loader.exec_module = exec_module
                spec.loader = loader

    def attach(self) -> None:
        """Insert the hook before the finder of files, and after those that only watch.

        The hook of an inner block comes before that of an outer one. So the outer one calls back first, and
        the inner one has the last word.
        """
        positions = (
            position
            for position, finder in enumerate(sys.meta_path)
            if finder is PathFinder or type(finder) is PostImportHook
        )
        position = next(positions, 0)
        sys.meta_path = [*sys.meta_path[:position], self, *sys.meta_path[position:]]

    def detach(self) -> None:
        # A new list: another thread can be going through the old one, and would miss a finder.
        sys.meta_path = [finder for finder in sys.meta_path if finder is not self]
