"""Calls back at the end of an import, to configure a framework as soon as it is there."""

from __future__ import annotations

import sys
import threading
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["PostImportHook"]


class PostImportHook:
    """A finder in `sys.meta_path` that calls back when one of some modules has been imported.

    It lets the finders after it find the module, and wraps the module's loader until the module's code runs.
    From then on the module has its own loader, and no trace of the hook.

    Parameters
    ----------
    modules
        Names of top-level modules.
    callback
        Called with the module's name, in the thread that imports it. It must not raise: an import that
        fails at its end can't be tried again.
    thread
        The identifier of a thread: imports in other threads are ignored. None: no import is.

    """

    def __init__(
        self, modules: Collection[str], callback: Callable[[str], None], *, thread: int | None = None
    ) -> None:
        self._modules = frozenset(modules)
        self._callback = callback
        self._thread = thread
        self._is_attached = False

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
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = cast("Loader", _NotifyingLoader(spec.loader, self._notify))
                return spec
        return None

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
        self._is_attached = True

    def detach(self) -> None:
        self._is_attached = False
        # A new list: another thread can be going through the old one, and would miss a finder.
        sys.meta_path = [finder for finder in sys.meta_path if finder is not self]

    def _notify(self, module: ModuleType) -> None:
        # A spec can outlive the hook: a lazy loader runs the module when it is first used.
        if self._is_attached:
            self._callback(module.__name__)


class _NotifyingLoader:
    """A loader that calls back when its module has been run; the module has its own loader by then."""

    def __init__(self, loader: Any, callback: Callable[[ModuleType], None]) -> None:
        self._loader, self._callback = loader, callback

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        create = getattr(self._loader, "create_module", None)
        return create(spec) if create else None

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._callback(module)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a copy has no `_loader` yet when it is asked for these
            raise AttributeError(name)
        return getattr(self._loader, name)
