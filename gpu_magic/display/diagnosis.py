"""What is wrong with a process's GPU set-up, as `gpu_magic.doctor` returns it and `%gpu_doctor` shows it."""

from __future__ import annotations

import enum
import html
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.diagnosis.diagnose import Findings
from gpu_magic.diagnosis.private import without_private
from gpu_magic.display.diagnosis_facts import fact_rows
from gpu_magic.text import counted, html_block, printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from gpu_magic.diagnosis.finding import Finding, Severity

__all__ = ["Diagnosis"]

_NOTHING = "Nothing wrong was found."
_HEADINGS: dict[Severity, str] = {
    "wrong": "Wrong",
    "worth knowing": "Worth knowing",
    "unknown": "Not known",
}
_COLORS: dict[Severity, str] = {
    "wrong": "var(--jp-error-color1,#d0453a)",
    "worth knowing": "var(--jp-warn-color0,#c77f1a)",
    "unknown": "var(--jp-ui-font-color2,#888)",
}
_MEND = (
    "margin:2px 0;padding:3px 8px;background:var(--jp-layout-color2,#8882);color:inherit;border-radius:3px;"
    "white-space:pre-wrap;overflow-wrap:anywhere;font-size:12px"
)


class Diagnosis(Findings):
    """What was found, what is wrong first, and the facts. Shows itself as a page, with what mends each."""

    __slots__ = ()

    @classmethod
    def of(cls, found: Findings) -> Self:
        """Return findings as an object that shows itself."""
        return cls(found.findings, found.facts)

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """The findings that are wrong."""
        return tuple(finding for finding in self.findings if finding.severity == "wrong")

    @property
    def summary(self) -> str:
        """What was found, as a line: how much is wrong, and how much is worth knowing."""
        counts = {severity: sum(one.severity == severity for one in self.findings) for severity in _HEADINGS}
        wrong, more, unknown = counts.values()
        parts = [f"{counted(wrong, 'thing')} {_are(wrong)} wrong"] * bool(wrong)
        parts += [f"{more} {_are(more)} worth knowing"] * bool(more)
        parts += [f"{unknown} could not be read or checked"] * bool(unknown)
        counts_text = f"{', '.join(parts)}." if parts else ""
        return counts_text if wrong else f"{_NOTHING} {counts_text}".strip()

    def report(self) -> str:
        """Return text to paste into an issue: without names and paths, and with shortened UUIDs."""
        packages = self.facts.packages
        versions = "" if packages is UNKNOWN else f" {packages.gpu_magic}, Python {packages.python}"
        lines = [f"gpu_magic{versions}: {self.summary}"]
        for finding in self.findings:
            lines += ["", f"[{finding.severity}] {finding.public or finding.what}"]
            lines += [] if finding.public else [f"  {line}" for line in finding.mend.splitlines()]
        lines += _table(self._facts())
        return without_private("\n".join(map(printable, lines)), self.facts.private)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON's types, which `%gpu_doctor --json` prints.

        Returns
        -------
        dict
            "summary", a line; "findings", a list of what `Finding` has, what is wrong first; and "facts": all
            that was read, with null for what could not be. The names in the first two stay, and what is in
            "facts" grows with the checks. User names, paths and UUIDs are in it: `report` leaves them out.

        """
        facts = _plain(self.facts)
        del facts["private"]
        return {
            "summary": self.summary,
            "findings": [_plain(finding) for finding in self.findings],
            "facts": facts,
        }

    def __repr__(self) -> str:
        lines = [self.summary]
        for finding in self.findings:
            mark = _HEADINGS[finding.severity]
            lines += ["", f"{mark}: {finding.what}"]
            lines += [f"  {finding.meaning}"] * bool(finding.meaning)
            lines += [f"      {line}" for line in finding.mend.splitlines()]
        lines += _table(self._facts())
        return "\n".join(map(printable, lines))

    def _repr_html_(self) -> str:
        summary = f"<p><b>{html.escape(self.summary)}</b></p>"
        rows = "".join(
            f"<tr><th>{html.escape(printable(name))}</th><td>{html.escape(printable(text))}</td></tr>"
            for name, text in self._facts()
        )
        table = f"<table class='gm-facts'><tbody>{rows}</tbody></table>"
        return html_block("", summary + "".join(map(_html, self.findings)) + table, ())

    def _facts(self) -> Iterator[tuple[str, str]]:
        """Yield what was checked; what has a finding stands above, and is not called fine."""
        found = {finding.about for finding in self.findings}
        for row in fact_rows(self.facts):
            is_fine = row.is_judged and row.name not in found
            yield row.name, f"{row.text}{': fine' * is_fine}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _html(finding: Finding) -> str:
    border = f"border-left:4px solid {_COLORS[finding.severity]};padding:2px 10px;margin:8px 0"
    lines = f"<p><b>{_HEADINGS[finding.severity]}:</b> {_escaped(finding.what)}</p>"
    lines += f"<p class='gm-title'>{_escaped(finding.meaning)}</p>" if finding.meaning else ""
    mend = "\n".join(map(_escaped, finding.mend.splitlines()))
    lines += f"<pre style='{_MEND}'>{mend}</pre>" if mend else ""
    return f"<div style='{border}'>{lines}</div>"


def _escaped(text: str) -> str:
    return html.escape(printable(text))


def _table(rows: Iterator[tuple[str, str]]) -> list[str]:
    """Return the lines of the facts, below an empty one; none where nothing is known."""
    found = list(rows)
    width = max((len(name) for name, _ in found), default=0)
    return [""] * bool(found) + [f"{name:<{width}}  {text}" for name, text in found]


def _plain(value: Any) -> Any:
    if value is UNKNOWN:
        return None
    if isinstance(value, enum.Enum):
        return value.value
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return sorted(map(_plain, value)) if isinstance(value, frozenset | set) else value
