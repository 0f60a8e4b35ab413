"""The comm by which pages find gpu_magic."""

from __future__ import annotations

import time
from threading import Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from gpu_magic.shell.page_comm import PageComm

if TYPE_CHECKING:
    from collections.abc import Callable


def test_messages_that_come_at_once_are_for_one_receiver() -> None:
    """JupyterLab has a subshell of the kernel for them: the first ones came to two panels' states."""
    made, heard = [], []

    def make(send: Callable[[Any], None]) -> Any:
        made.append(send)
        time.sleep(0.2)  # what answers is imported
        return SimpleNamespace(receive=heard.append, close=list)

    page = PageComm(SimpleNamespace(), make)
    message = {"content": {"data": {"type": "attach", "page": "p"}}}
    threads = [Thread(target=page._comm.handle_msg, args=(message,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), len(heard)) == (1, 3)
