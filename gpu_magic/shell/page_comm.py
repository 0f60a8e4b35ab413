"""The comm by which a page without a widget finds gpu_magic in its kernel.

`%load_ext` creates the comm, so this module imports little. The first message creates the receiver. Pages are
not told of the comm, because JupyterLab logs an error about comms that it does not know. A page asks the
kernel for the comm by its name (connection.js). All pages share the comm.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Receiver(Protocol):
        """Answers messages from pages."""

        def receive(self, message: object) -> None:
            """Handle a message from a page: any JSON."""

        def close(self) -> None:
            """Receive no more messages, and tell the pages."""


__all__ = ["PageComm", "page_comm"]

_NAME = "gpu_magic"


class PageComm:
    """The comm. A process has one.

    Parameters
    ----------
    kernel
        The kernel of this process.
    make
        Returns the receiver. Its argument is a function that sends a message to all pages.

    """

    def __init__(self, kernel: Any, make: Callable[[Callable[[Any], None]], Receiver]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._receiver: Receiver | None = None
        self._is_open = False
        # A deleted comm would send a message to the pages. So the comm is kept until this process ends.
        self._comm, self._manager = _kernel_comm(kernel, _NAME)
        self._comm.on_msg(self._receive)
        self._comm.on_close(lambda _: self._manager.register_comm(self._comm))  # other pages still need it

    @property
    def manager(self) -> Any:
        """The manager of the kernel's comms."""
        return self._manager

    def open(self) -> None:
        """Let pages find the comm."""
        if not self._is_open:
            self._manager.register_comm(self._comm)
            self._is_open = True

    def close(self) -> None:
        """Hide the comm from pages, and tell the pages that use it."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                self._manager.register_comm(self._comm)  # a page can have replaced it
                self._manager.unregister_comm(self._comm)
            if self._receiver is not None:
                self._receiver.close()

    def _receive(self, message: dict[str, Any]) -> None:
        with self._lock:  # messages arrive on several threads if JupyterLab uses a subshell for them
            if not self._is_open:
                return  # it crossed the message about the end, and would begin again
            if self._receiver is None:
                from gpu_magic.panel.front_end import hear_every_page  # `%load_ext` does not need it

                hear_every_page(self._comm)
                self._receiver = self._make(self._comm.send)
            self._receiver.receive(message["content"].get("data"))


_page_comm: PageComm | None = None


def page_comm(kernel: Any, make: Callable[[Callable[[Any], None]], Receiver]) -> PageComm:
    """Return the comm of this process. The first call creates it."""
    global _page_comm  # noqa: PLW0603 - a process has one
    if _page_comm is None:
        _page_comm = PageComm(kernel, make)
    return _page_comm


def _kernel_comm(kernel: Any, name: str) -> tuple[Any, Any]:
    """Return a new comm of a kernel. No page is told of it.

    Parameters
    ----------
    kernel
        The kernel of the shell.
    name
        The target name by which pages find the comm.

    Returns
    -------
    tuple
        The comm, with `send` and `on_msg`, and its manager. Pages find the comm from the manager's
        `register_comm` to its `unregister_comm`.

    """
    own = getattr(kernel, "comm_manager", None)
    try:
        import comm  # not at the top, because shells without a kernel may lack it
    except ImportError:
        shared = None
    else:
        shared = comm.get_comm_manager()
    # Before 6.18, ipykernel has its own manager and does not use the package `comm`, even if it is installed.
    if shared is None or (own is not None and own is not shared):
        from ipykernel.comm import Comm

        return Comm(target_name=name, primary=False), own
    return comm.create_comm(target_name=name, primary=False), shared
