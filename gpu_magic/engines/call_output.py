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
        # By the position of the item: the call, and what the client collects of it. An AsyncResult hands that
        # out, too, after a millisecond in which it parses dates.
        self._calls: dict[int, tuple[Any, Mapping[str, Any]]] = {}
        self._shown: dict[tuple[int, str], int] = {}

    def follow(self, position: int, call: Any) -> None:
        """Show what a call writes from here on: ipyparallel's AsyncResult, and the position of its item."""
        self._calls[position] = call, self._client.metadata[call.msg_ids[0]]

    def show(self, seconds: float = 0) -> None:
        """Show what has come since the last time.

        Parameters
        ----------
        seconds
            How long to wait for the last of what each call has written that has ended.

        """
        for position, (call, written) in list(self._calls.items()):
            is_whole = call.done() and call.wait_for_output(seconds)
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
