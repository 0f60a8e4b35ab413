"""Writes what was measured, with the machine that it was measured on, as a Markdown file."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from benchmarks.host import describe, load
from benchmarks.peers import LEFT_OUT
from benchmarks.report import escape
from gpu_magic.doctor.diagnosis import private_names, without_private

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.report import Row, Table

__all__ = ["Results", "Section"]


@dataclass(slots=True)
class Section:
    """What one topic gave.

    Parameters
    ----------
    topic
        Its name.
    tables
        Its tables; empty where it gave none.
    reason
        Why it gave none.
    is_error
        Whether that is an error, and not a reason to leave it out here.
    before, after
        The machine's load averages when it began and when it ended.

    """

    topic: str
    tables: Sequence[Table] = ()
    reason: str = ""
    is_error: bool = False
    before: str = field(default_factory=load)
    after: str = ""

    def markdown(self) -> str:
        lines = [f"## {self.topic}", f"Load average: {self.before} before, {self.after or '?'} after."]
        if self.reason:
            what = "Failed" if self.is_error else "Skipped"
            lines.append(f"{what}: {escape(without_private(self.reason, private_names()))}")
        return "\n\n".join([*lines, *(table.markdown() for table in self.tables)])


@dataclass(slots=True)
class Results:
    """What a run gave until now.

    Parameters
    ----------
    machine
        What figures depend on, as `host.describe` gives it.
    sections
        One for each topic, in the order in which they were measured.

    """

    machine: dict[str, str] = field(default_factory=describe)
    sections: list[Section] = field(default_factory=list)
    began: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def checks(self) -> list[Row]:
        """Return all rows that are held to something."""
        return [row for section in self.sections for table in section.tables for row in table.checks]

    @property
    def is_fine(self) -> bool:
        """Whether each topic gave its tables, or was left out, and each bound holds."""
        return all(row.holds for row in self.checks) and not any(one.is_error for one in self.sections)

    @property
    def summary(self) -> str:
        checks = self.checks
        held = sum(row.holds is True for row in checks)
        text = f"{held} of {len(checks)} bounds hold."
        for is_error, what in (True, "failed"), (False, "were left out"):
            topics = [one.topic for one in self.sections if one.reason and one.is_error is is_error]
            text += f" Topics that {what}: {', '.join(topics)}." if topics else ""
        return text

    def markdown(self) -> str:
        """Return all of it as Markdown."""
        return "\n\n".join(self._paragraphs()) + "\n"

    def write(self, file: Path) -> None:
        """Write all of it to a file, in place of what was there."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.markdown(), encoding="utf-8")

    def _paragraphs(self) -> Iterator[str]:
        yield f"# Measured on {self.machine.get('processor', 'this machine')}"
        yield "Written by `make bench`. `benchmarks/README.md` says what is compared, and how to read it."
        yield "\n".join(
            [
                "| | |",
                "| --- | --- |",
                f"| date | {self.began:%Y-%m-%d}, from {self.began:%H:%M} UTC |",
                *(f"| {name} | {value} |" for name, value in self.machine.items()),
            ]
        )
        yield self.summary
        for section in self.sections:
            yield section.markdown()
        yield "## Not measured"
        yield "\n".join(f"- {name}: {why}" for name, why in LEFT_OUT.items())
