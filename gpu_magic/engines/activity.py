"""Which engines work, and since when: looked at once a second, whoever has sent the work."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Activity"]

_AGAIN = 1.0  # seconds between two looks
_ANSWER = 5.0  # seconds that the controller may take


class Activity:
    """Asks the controller what engines do, in a thread of its own: one that has ended never answers.

    Parameters
    ----------
    client
        ipyparallel's.
    on_gone
        Called with the number of an engine that the controller no longer has, in the thread.

    """

    def __init__(self, client: Any, on_gone: Callable[[int], None] = lambda _: None) -> None:
        self._client, self._on_gone = client, on_gone
        self._busy: set[int] = set()
        self._since: dict[int, float] = {}
        self._state = threading.Condition()
        self._asked = self._answered = 0
        self._is_stopped = False
        threading.Thread(target=self._follow, name="gpu_magic activity", daemon=True).start()

    def busy(self) -> set[int]:
        """Return the engines that run something, or have it in their queues.

        Raises
        ------
        ClusterError
            The controller does not answer.

        """
        with self._state:
            self._asked += 1
            asked = self._asked
            self._state.notify_all()
            if not self._state.wait_for(lambda: self._answered >= asked, _ANSWER):
                raise ClusterError(
                    "The controller of the engines does not answer: %gpu_cluster stop, and start anew."
                )
            return set(self._busy)

    def seconds(self, number: int) -> float:
        """Return for how long an engine has done what it does, to the second."""
        return time.monotonic() - self._since.get(number, time.monotonic())

    def stop(self) -> None:
        """Look no more."""
        with self._state:
            self._is_stopped = True
            self._state.notify_all()

    def _follow(self) -> None:
        there = set(self._client.ids)
        while True:
            with self._state:
                self._state.wait_for(lambda: self._is_stopped or self._asked > self._answered, _AGAIN)
                if self._is_stopped:
                    return
                asked = self._asked
            before, there = there, set(self._client.ids)
            for number in sorted(before - there):
                self._on_gone(number)
            try:
                queues = self._client.queue_status()
            except Exception:  # noqa: BLE001 - the client was closed
                return
            with self._state:
                self._note({number for number in self._client.ids if _has_work(queues.get(number, {}))})
                self._answered = asked
                self._state.notify_all()

    def _note(self, busy: set[int]) -> None:
        now = time.monotonic()
        for number in self._client.ids:
            if number not in self._since or (number in busy) != (number in self._busy):
                self._since[number] = now
        self._busy = busy


def _has_work(queue: Mapping[str, int]) -> bool:
    return bool(queue.get("queue", 0) or queue.get("tasks", 0))
