"""What engines answer, shown together: the GPUs of all hosts as one table, and texts by engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from gpu_magic.display.rows import rows
from gpu_magic.display.table import COLUMNS, html_table, text_table, title
from gpu_magic.text import html_block, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpu_magic.display.rows import Row
    from gpu_magic.engines.engine import Engine
    from gpu_magic.engines.hosts import Hosts
    from gpu_magic.process.view import Snapshot

__all__ = ["ByEngine", "HostGpus"]

T = TypeVar("T")

_COLUMNS = tuple(
    column._replace(heading="In engines") if column.heading == "In this kernel" else column
    for column in COLUMNS
)


class HostGpus(Mapping[str, "Snapshot"]):
    """The GPUs of each host by its name. Shows itself as one table, as text and as HTML.

    Parameters
    ----------
    hosts
        As the engines have read them.

    """

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts

    def __getitem__(self, host: str) -> Snapshot:
        return self._hosts.snapshots[host]

    def __iter__(self) -> Iterator[str]:
        return iter(self._hosts.snapshots)

    def __len__(self) -> int:
        return len(self._hosts.snapshots)

    @property
    def _groups(self) -> dict[str, list[Row]]:
        return {
            printable(f"{host} · {title(snapshot)}"): list(rows(snapshot, "its engine"))
            for host, snapshot in self.items()
        }

    @property
    def _notes(self) -> list[str]:
        said = ((host, one.problem or one.limitation) for host, one in self.items())
        notes = [f"{host}: {what}" for host, what in said if what]
        return [printable(note) for note in (*notes, *self._hosts.notes)]

    def __repr__(self) -> str:
        return "\n".join([*text_table(self._groups, _COLUMNS), *(f"! {note}" for note in self._notes)])

    def _repr_html_(self) -> str:
        return html_block("", html_table(self._groups, _COLUMNS), self._notes)


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
