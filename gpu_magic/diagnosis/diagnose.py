"""Makes all checks of the facts. One that fails is UNKNOWN, and said so in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.record import record
from gpu_magic.diagnosis.checks import CHECKS
from gpu_magic.diagnosis.finding import Finding, Severity, one_line
from gpu_magic.diagnosis.gathering import Pages, gather

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from gpu_magic.diagnosis.facts import Facts, Program
    from gpu_magic.diagnosis.gathering import Gathered
    from gpu_magic.process.session import Session

__all__ = ["Findings", "diagnose", "judge"]

_ORDER: tuple[Severity, ...] = ("wrong", "worth knowing", "unknown")


@record
class Findings:
    """The facts, and what was found in them.

    Parameters
    ----------
    findings
        What is wrong first.
    facts
        What was read.

    """

    findings: tuple[Finding, ...]
    facts: Facts


def diagnose(
    session: Session,
    program: Program,
    pages: Pages = Pages(),  # noqa: B008 - it can't be changed
    *,
    root: Path | None = None,
) -> Findings:
    """Read the facts, and check them; see `gather` for the parameters."""
    return judge(
        gather(session, program, pages) if root is None else gather(session, program, pages, root=root)
    )


def judge(gathered: Gathered, checks: Iterable[Callable[[Facts], Iterable[Finding]]] = CHECKS) -> Findings:
    """Make checks of facts, in order."""
    found = [*gathered.unread, *(finding for check in checks for finding in _made(check, gathered.facts))]
    once = dict.fromkeys(found)
    return Findings(tuple(sorted(once, key=lambda one: _ORDER.index(one.severity))), gathered.facts)


def _made(check: Callable[[Facts], Iterable[Finding]], facts: Facts) -> Iterator[Finding]:
    """Yield what a check finds; one that fails says so, after what it had found until then."""
    name = check.__name__.removeprefix("check_").replace("_", " ")
    try:
        yield from check(facts)
    except Exception as error:  # noqa: BLE001 - a page that says what is wrong must not fail itself
        yield Finding("unknown", name, f"The check of {name} could not be made: {one_line(error)}")
