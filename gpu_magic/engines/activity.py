"""Which engines work, and since when: looked at once a second, whoever has sent the work."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Activity"]

_AGAIN = 1.0  # seconds between two looks


class Activity:
    """Follows what engines do, in a thread, until `stop`.

    Parameters
    ----------
    client
        ipyparallel's.

    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._is_busy: dict[int, bool] = {}
        self._since: dict[int, float] = {}
        self._stopped = threading.Event()
        threading.Thread(target=self._follow, name="gpu_magic engines", daemon=True).start()

    def busy(self) -> set[int]:
        """Return the engines that run something, or have it in their queues."""
        queues = self._client.queue_status()
        found = {number for number in self._client.ids if _has_work(queues.get(number, {}))}
        now = time.monotonic()
        for number in self._client.ids:
            is_busy = number in found
            if self._is_busy.get(number) != is_busy:
                self._is_busy[number], self._since[number] = is_busy, now
        return found

    def seconds(self, number: int) -> float:
        """Return for how long an engine has done what it does, to the second."""
        return time.monotonic() - self._since.get(number, time.monotonic())

    def stop(self) -> None:
        self._stopped.set()

    def _follow(self) -> None:
        while not self._stopped.wait(_AGAIN):
            try:
                self.busy()
            except Exception:  # noqa: BLE001 - the client was closed, or the controller has ended
                return


def _has_work(queue: Mapping[str, int]) -> bool:
    return bool(queue.get("queue", 0) or queue.get("tasks", 0))
