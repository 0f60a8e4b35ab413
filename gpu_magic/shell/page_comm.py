"""The comm by which a page finds gpu_magic in its kernel, where it has no widget of this kernel's.

`%load_ext` makes it, so that this module imports next to nothing: what answers is made with the first
message. No page is told of the comm, as JupyterLab logs an error about those that it doesn't know. A page
that knows its name asks the kernel for it (connection.js). All pages share it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Receiver(Protocol):
        """What answers."""

        def receive(self, message: object) -> None:
            """Take a message from a page: any JSON."""

        def close(self) -> None:
            """Take no more, and tell the pages."""


__all__ = ["PageComm", "page_comm"]

_NAME = "gpu_magic"


class PageComm:
    """The comm, of which a process has one.

    Parameters
    ----------
    kernel
        This process's.
    make
        Returns what answers, given a function that sends a message to all pages.

    """

    def __init__(self, kernel: Any, make: Callable[[Callable[[Any], None]], Receiver]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._receiver: Receiver | None = None
        self._is_open = False
        # A comm that is given up tells the pages: it is kept for as long as this process lives.
        self._comm, self._manager = _kernel_comm(kernel, _NAME)
        self._comm.on_msg(self._receive)

    def open(self) -> None:
        """Let pages find it."""
        if not self._is_open:
            self._manager.register_comm(self._comm)
            self._is_open = True

    def close(self) -> None:
        """Let no page find it; tell those that have."""
        if self._is_open:
            self._is_open = False
            self._manager.unregister_comm(self._comm)
        if self._receiver is not None:
            self._receiver.close()

    def _receive(self, message: dict[str, Any]) -> None:
        with self._lock:  # messages come in on several threads, where JupyterLab has a subshell for them
            if self._receiver is None:
                from gpu_magic.process.front_end import hear_every_page  # `%load_ext` does not need it

                hear_every_page(self._comm)
                self._receiver = self._make(self._comm.send)
        self._receiver.receive(message["content"]["data"])


_page_comm: PageComm | None = None


def page_comm(kernel: Any, make: Callable[[Callable[[Any], None]], Receiver]) -> PageComm:
    """Return this process's; the first call makes it."""
    global _page_comm  # noqa: PLW0603 - a process has one
    if _page_comm is None:
        _page_comm = PageComm(kernel, make)
    return _page_comm


def _kernel_comm(kernel: Any, name: str) -> tuple[Any, Any]:
    """Return a comm of a kernel's; no page is told of it.

    Parameters
    ----------
    kernel
        The kernel of the shell.
    name
        The target by which pages look for it.

    Returns
    -------
    tuple
        The comm, with `send` and `on_msg`; and its manager, whose `register_comm` lets pages find it, and
        `unregister_comm` lets them no longer find it.

    """
    own = getattr(kernel, "comm_manager", None)
    try:
        import comm  # not at the top: there are shells without a kernel
    except ImportError:
        shared = None
    else:
        shared = comm.get_comm_manager()
    # Before 6.18 ipykernel has a manager of its own and does not use the package `comm`, which can be there.
    if shared is None or (own is not None and own is not shared):
        from ipykernel.comm import Comm

        return Comm(target_name=name, primary=False), own
    return comm.create_comm(target_name=name, primary=False), shared
