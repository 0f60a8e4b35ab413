"""Inputs of ten thousand bytes: every promise holds, and four times the length is about four times the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fuzzing.corpus import LONGEST_INPUT
from tests.fuzzing.growth import grown, lines_run
from tests.fuzzing.targets import TARGETS

if TYPE_CHECKING:
    from tests.fuzzing.target import Target

_LONG, _SHORT = 10_000, 2_500  # bytes
# A seed is made longer at so many places: by repeating a letter, two, five and nine.
_PLACES = 20
# Threads, folders and processes: what they do is not counted, and each input takes milliseconds.
_SLOW = {"names": 2, "command-line": 4, "launch-lines": 4, "claims": 6, "kernel-module": 8, "completion": 8}


def long_inputs(target: Target) -> list[tuple[bytes, bytes]]:
    """Return inputs of both lengths, which repeat the same pieces."""
    makes = [make for seed in target.seeds for _, make in grown(seed.encode()[:LONGEST_INPUT])]
    step = max(1, len(makes) // _SLOW.get(target.name, _PLACES))
    return [(make(_SHORT), make(_LONG)) for make in makes[::step]]


@pytest.mark.parametrize("name", TARGETS)
def test_every_promise_holds_for_long_inputs(name: str) -> None:
    target = TARGETS[name]
    for _, data in long_inputs(target):
        target.check(data)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("lines", "A" + "9" * _LONG),
        ("completion", f"A{'9' * _LONG}-"),
        ("launch-lines", f"-n {'9' * _LONG} ls"),
        ("framework-errors", f"allocating {'9' * _LONG} bytes"),
        ("cells", "word " * _LONG),
        ("cells", "-" * _LONG + "1"),
        ("cells", "x" + ".a" * _LONG),
        ("expressions", "\n" + "-" * _LONG + "1"),
        ("expressions", "f\n" + "-" * _LONG + "1"),
        ("expressions", "f\n" + "word " * _LONG),
        ("expressions", "f\nx" + ".a" * _LONG),
        ("expressions", "\n" + "[" * _LONG),
        ("kept-choice", "[" * _LONG),
        ("messages", "[" * _LONG),
    ],
)
def test_what_python_itself_refuses(name: str, data: str) -> None:
    """`int` refuses thousands of digits, and the parser has neither depth nor memory for such expressions."""
    TARGETS[name].check(data.encode())


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in _SLOW])
def test_the_work_grows_with_the_length(name: str) -> None:
    """Lines of Python are counted, so that nothing depends on how busy the machine is."""
    target = TARGETS[name]
    for short, long in long_inputs(target):
        assert lines_run(target, long) <= 5 * lines_run(target, short) + 2000, long[:80]
