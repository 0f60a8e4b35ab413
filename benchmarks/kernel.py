"""Code that is measured in a fresh Jupyter kernel."""

from __future__ import annotations

import subprocess
import threading
import time
from ast import literal_eval
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from jupyter_client.manager import start_new_kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Kernel", "answer_of", "fresh_kernel", "start_kernel"]

_LIMIT = 600  # seconds, against hanging only
_STARTS = 3  # until it is no accident that a kernel does not start


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


def start_kernel(environment: Mapping[str, str], *arguments: str) -> tuple[Any, Any]:
    """Start a kernel; return its manager and its client, as `start_new_kernel` does.

    Raises
    ------
    RuntimeError
        It does not start. It ends at once, and is tried again, where somebody else has taken one of the ports
        that were free when they were picked for it.

    """
    start = partial(
        start_new_kernel, env=dict(environment), extra_arguments=list(arguments), stderr=subprocess.DEVNULL
    )
    for _ in range(_STARTS - 1):
        with suppress(RuntimeError):
            return start()
    return start()


@contextmanager
def fresh_kernel(environment: Mapping[str, str]) -> Iterator[Kernel]:
    """Start a kernel, and end it."""
    manager, client = start_kernel(environment, "--HistoryManager.enabled=False")
    try:
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def answer_of(code: str, environment: Mapping[str, str]) -> Any:
    """Run code in a kernel of its own; return what it leaves in the variable `answer`."""
    with fresh_kernel(environment) as kernel:
        return kernel.answer(code)
