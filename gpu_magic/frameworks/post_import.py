"""Notices the end of an import, for a framework that is to be told something as soon as it is there."""

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
    """Calls back when one of some modules has been imported.

    It lets the finders behind it in `sys.meta_path` find the module, and stands in for the module's loader
    until the module's code runs: from then on the module has its own, and nothing shows that we were here.

    Parameters
    ----------
    modules
        Top-level modules.
    arrived
        Called with the module's name, in the thread that imports it. It must not raise: an import that
        fails at its end can't be tried again.
    thread
        Listen to imports in this thread alone; None: in any.

    """

    def __init__(
        self, modules: Collection[str], arrived: Callable[[str], None], *, thread: int | None = None
    ) -> None:
        self._modules = frozenset(modules)
        self._arrived = arrived
        self._thread = thread
        self._is_attached = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find one of the modules as the others do, and listen to its loader."""
        if fullname not in self._modules or self._thread not in (None, threading.get_ident()):
            return None
        finders = list(sys.meta_path)
        for finder in finders[finders.index(self) + 1 :] if self in finders else ():
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(fullname, path, target) if find else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = cast("Loader", _Listening(spec.loader, self._run))
                return spec
        return None

    def _run(self, module: ModuleType) -> None:
        # A spec can outlive us: a lazy loader's runs when the module is first used.
        if self._is_attached:
            self._arrived(module.__name__)

    def attach(self) -> None:
        """Stand before the finder of files, and behind those that only look on.

        An inner block's stands before an outer one's: what is asked last is told first, and the inner block
        has the last word.
        """
        before = (
            place
            for place, one in enumerate(sys.meta_path)
            if one is PathFinder or type(one) is PostImportHook
        )
        sys.meta_path.insert(next(before, 0), self)
        self._is_attached = True

    def detach(self) -> None:
        self._is_attached = False
        if self in sys.meta_path:
            sys.meta_path.remove(self)


class _Listening:
    """A loader that hears when its module has been run, and has left by then."""

    def __init__(self, loader: Any, ran: Callable[[ModuleType], None]) -> None:
        self._loader, self._ran = loader, ran

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        create = getattr(self._loader, "create_module", None)
        return create(spec) if create else None

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._ran(module)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a copy of us has no loader yet when it is asked for these
            raise AttributeError(name)
        return getattr(self._loader, name)
