"""How the work for an input grows with its length: counted in tests, and measured by `python -m tests.fuzzing --slow`."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.fuzzing.corpus import LONGEST_INPUT, kept_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from tests.fuzzing.target import Target

__all__ = ["grown", "lines_run", "slow_inputs"]

_LENGTHS = 2_000, 8_000  # bytes: a longer request is refused at once
_MOST = 6.0  # times as long for four times as much; twice as much as is linear is noise
_LEAST = 0.01  # seconds; what is faster is not looked at


def slow_inputs(target: Target) -> list[str]:
    """Print and return the inputs for which four times the length takes more than four times the time."""
    found: dict[bytes, str] = {}
    for data in [*map(str.encode, target.seeds), *kept_inputs(target.name).values()]:
        for piece, make in grown(data[:LONGEST_INPUT]):
            if piece in found:
                continue
            short, long = (_seconds(target, make(length)) for length in _LENGTHS)
            if long > _LEAST and long > _MOST * short:
                found[piece] = f"{target.name}: {short:.3f} s, {long:.3f} s for {piece!r} again and again"
                print(found[piece], flush=True)
    print(f"{target.name}: {len(found)} inputs whose time grows faster than they do", flush=True)
    return list(found.values())


class _Repeated:
    """Makes an input longer, by repeating a piece of it."""

    def __init__(self, before: bytes, piece: bytes, after: bytes) -> None:
        self._before, self._piece, self._after = before, piece, after

    def __call__(self, length: int) -> bytes:
        return self._before + self._piece * (length // len(self._piece)) + self._after


def grown(data: bytes) -> Iterator[tuple[bytes, _Repeated]]:
    """Yield pieces of an input, each with what makes the input longer by repeating it."""
    words = [(place, place + size) for size in (1, 2, 5, 9) for place in range(0, len(data) - size + 1, size)]
    seen: set[bytes] = set()
    for begin, end in words:
        piece = data[begin:end]
        if piece not in seen and b"\n" not in piece:
            seen.add(piece)
            yield piece, _Repeated(data[:begin], piece, data[end:])


def _seconds(target: Target, data: bytes) -> float:
    began = time.process_time()
    with suppress(BaseException):
        target.check(data)
    return time.process_time() - began


def lines_run(target: Target, data: bytes) -> int:
    """Return how many lines of Python the check of an input runs."""
    count = [0]

    def trace(frame: FrameType, event: str, _: object) -> object:
        count[0] += event == "line"
        return trace

    target.check(data)  # what is compiled once, and kept, is no work of this input
    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        target.check(data)
    finally:
        sys.settrace(before)
    return count[0]
