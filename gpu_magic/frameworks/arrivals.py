"""Notices the end of an import, for a framework that is to be told something as soon as it is there."""

from __future__ import annotations

import sys
import threading
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["Arrivals"]


class Arrivals:
    """Calls back when one of some modules has been imported.

    It lets the finders behind it in `sys.meta_path` find the module, and lends the module's loader another
    `exec_module` for this once; the loader is as it was before the module's code runs.

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
                self._listen(fullname, spec.loader)
                return spec
        return None

    def _listen(self, name: str, loader: Any) -> None:
        own = getattr(loader, "__dict__", None)
        run = getattr(loader, "exec_module", None)
        if own is None or run is None:  # a loader that lends nothing; the end of the block sees the module
            return
        before = own.get("exec_module")  # an outer block's, which listens too

        def exec_module(module: ModuleType) -> None:
            if before is None:
                del loader.exec_module
            else:
                loader.exec_module = before
            run(module)
            self._arrived(name)

        loader.exec_module = exec_module

    def attach(self) -> None:
        """Stand before the finder of files, and behind those that only look on.

        An inner block's stands before an outer one's: what is asked last is told first, and the inner block
        has the last word.
        """
        before = (
            place for place, one in enumerate(sys.meta_path) if one is PathFinder or type(one) is Arrivals
        )
        sys.meta_path.insert(next(before, 0), self)

    def detach(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
