"""The inputs that are kept: few and short ones that together reach what all have reached."""

from __future__ import annotations

import hashlib
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import gpu_magic

if TYPE_CHECKING:
    from types import FrameType

    from tests.fuzzing.target import Target

__all__ = [
    "CORPUS",
    "FOUND",
    "LONGEST_INPUT",
    "MOST_INPUTS",
    "PACKAGE",
    "WORK",
    "digest",
    "keep",
    "kept_inputs",
]

PACKAGE = str(Path(gpu_magic.__file__).parent)
CORPUS = Path(__file__).parent / "corpus"
WORK = Path(__file__).parent.parent.parent / "build/fuzzing"
FOUND = "found"  # the folder of inputs that break a promise, in a target's in WORK
MOST_INPUTS, LONGEST_INPUT = 50, 1000  # of each target, and bytes of one
_BY_HAND = "fault-"  # begins the names of inputs that have shown a fault: they stay


def kept_inputs(name: str) -> dict[str, bytes]:
    """Return a target's inputs by their names, from one file in which a byte is the character of its number."""
    file = CORPUS / f"{name}.json"
    found = json.loads(file.read_text(encoding="ascii")) if file.exists() else {}
    return {name: text.encode("latin-1") for name, text in found.items()}


def digest(data: bytes) -> str:
    """Return the name of an input."""
    return hashlib.sha256(data).hexdigest()[:12]


def keep(target: Target) -> tuple[int, int]:
    """Keep of all inputs that were found those that are needed to reach the same; return how many, and their size.

    It is greedy: the shortest inputs first, each that runs a line behind another line that none before has.
    """
    before = kept_inputs(target.name)
    faults = {name: data for name, data in before.items() if name.startswith(_BY_HAND)}
    found = [file.read_bytes() for file in (WORK / target.name / "corpus").glob("*")]
    inputs = {data for data in [*before.values(), *found] if data and len(data) <= LONGEST_INPUT}
    reached: set[object] = set()
    for data in faults.values():
        reached |= steps_of(target, data)
    new: list[tuple[int, bytes]] = []
    for data in sorted(inputs - set(faults.values()), key=lambda data: (len(data), data)):
        more = steps_of(target, data) - reached
        if more:
            reached |= more
            new.append((len(more), data))
    best = sorted(new, key=lambda one: -one[0])[: MOST_INPUTS - len(faults)]
    wanted = faults | {digest(data): data for _, data in best}
    texts = {name: data.decode("latin-1") for name, data in wanted.items()}
    text = json.dumps(texts, indent=0, sort_keys=True)
    (CORPUS / f"{target.name}.json").write_text(f"{text}\n", encoding="ascii")
    return len(wanted), sum(map(len, wanted.values()))


def steps_of(target: Target, data: bytes) -> set[object]:
    """Return from which lines to which lines the check of an input goes, in the package."""
    found: set[object] = set()

    def trace(frame: FrameType, event: str, _: object) -> object:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        last = [0]

        def lines(frame: FrameType, event: str, _: object) -> object:
            found.add((frame.f_code.co_filename, last[0], frame.f_lineno))
            last[0] = frame.f_lineno
            return lines

        return lines(frame, event, None)

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        with suppress(BaseException):
            target.check(data)
    finally:
        sys.settrace(before)
    return found
