"""Shows what calls write while they run: each line behind the position of its item."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from IPython.display import display
from tqdm import tqdm

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CallOutput"]

_STREAMS = ("stdout", "stderr")


class CallOutput:
    """What calls have written, and how much of it has been shown.

    Parameters
    ----------
    client
        ipyparallel's, which collects it as it comes; it can come after the call's result.

    """

    def __init__(self, client: Any) -> None:
        self._client = client
        # By the position of the item: the call, and what the client collects of it. (An AsyncResult hands that
        # out, too, after a millisecond in which it parses dates.)
        self._calls: dict[int, tuple[Any, Mapping[str, Any]]] = {}
        self._shown: dict[tuple[int, str], int] = {}

    def follow(self, position: int, call: Any) -> None:
        """Show what a call writes from here on: ipyparallel's AsyncResult, and the position of its item."""
        self._calls[position] = call, self._client.metadata[call.msg_ids[0]]

    def show(self, seconds: float = 0) -> None:
        """Show what has come since the last time; wait so long for the end of what each call writes."""
        for position in list(self._calls):
            self.show_one(position, seconds)

    def show_one(self, position: int, seconds: float = 0) -> None:
        """Show what has come of one call, if it is not all shown."""
        if position not in self._calls:
            return
        call, written = self._calls[position]
        is_whole = call.wait_for_output(seconds)
        for stream in _STREAMS:
            self._write(position, stream, written[stream], is_whole=is_whole)
        if is_whole:
            for output in written["outputs"]:
                display(output["data"], metadata=output["metadata"], raw=True)
            del self._calls[position]

    def _write(self, position: int, stream: str, text: str, *, is_whole: bool) -> None:
        begin = self._shown.pop((position, stream), 0)
        end = len(text) if is_whole else text.rfind("\n") + 1
        if not is_whole:
            self._shown[position, stream] = end
        lines = "".join(f"[{position}] {line}\n" for line in text[begin:end].splitlines())
        if lines:
            tqdm.write(lines, file=getattr(sys, stream), end="")  # above a bar
