"""What engines answer, shown together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from gpu_magic.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpu_magic.engines.engine import Engine

__all__ = ["ByEngine"]

T = TypeVar("T")


class ByEngine(Mapping[int, T]):
    """What each engine has answered, by its number. Shows itself as text.

    Parameters
    ----------
    answers
        What they have answered.
    notes
        Which engines have not, and why: a sentence each.

    """

    def __init__(self, answers: Mapping[Engine, T], notes: Sequence[str]) -> None:
        self._answers = {engine.number: answer for engine, answer in answers.items()}
        self._headings = {engine.number: str(engine) for engine in answers}
        self.notes = notes

    def __getitem__(self, number: int) -> T:
        return self._answers[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)

    def __repr__(self) -> str:
        lines = []
        for number, answer in self._answers.items():
            lines += [self._headings[number], *(f"  {line}" for line in str(answer).split("\n"))]
        return "\n".join(map(printable, [*lines, *(f"! {note}" for note in self.notes)]))
