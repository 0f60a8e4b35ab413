"""Code that is measured in a fresh Jupyter kernel."""

from __future__ import annotations

import subprocess
import threading
import time
from ast import literal_eval
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jupyter_client.manager import start_new_kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Kernel", "answer_of", "fresh_kernel"]

_LIMIT = 600  # seconds, against hanging only


class Kernel:
    """A kernel that runs."""

    def __init__(self, manager: Any, client: Any) -> None:
        self._manager, self._client = manager, client

    def runs(self, code: str) -> bool:
        """Run a cell; return whether it has ended without an error."""
        return bool(self._reply(code)["status"] == "ok")

    def runs_while(self, code: str, begun: Callable[[], object], act: Callable[[], object]) -> bool:
        """Run a cell, and do something once it has begun; return whether it has ended without an error."""

        def wait_and_act() -> None:
            while not begun():
                time.sleep(0.01)
            act()

        thread = threading.Thread(target=wait_and_act, daemon=True)
        thread.start()
        ended_well = self.runs(code)
        thread.join()
        return ended_well

    def interrupt(self) -> None:
        self._manager.interrupt_kernel()

    def answer(self, code: str) -> Any:
        """Run a cell; return what it leaves in the variable `answer`."""
        answer = self._reply(code)["user_expressions"]["answer"]["data"]["text/plain"]
        return literal_eval(answer)

    def _reply(self, code: str) -> dict[str, Any]:
        reply = self._client.execute_interactive(
            code, user_expressions={"answer": "answer"}, output_hook=lambda _: None, timeout=_LIMIT
        )
        content: dict[str, Any] = reply["content"]
        return content


@contextmanager
def fresh_kernel(environment: Mapping[str, str]) -> Iterator[Kernel]:
    """Start a kernel, and end it."""
    manager, client = start_new_kernel(
        env=dict(environment), extra_arguments=["--HistoryManager.enabled=False"], stderr=subprocess.DEVNULL
    )
    try:
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def answer_of(code: str, environment: Mapping[str, str]) -> Any:
    """Run code in a kernel of its own; return what it leaves in the variable `answer`."""
    with fresh_kernel(environment) as kernel:
        return kernel.answer(code)
