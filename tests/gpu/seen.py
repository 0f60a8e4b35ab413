"""Writes seen.md, the table of claims and their outcomes on real GPUs, from the reports in the folder `reports`.

Usage: python -m tests.gpu.seen
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.gpu.report import read
from tests.gpu.table import draw

__all__ = ["REPORTS", "reports_in"]

REPORTS = Path(__file__).parent / "reports"
TABLE = Path(__file__).parent / "seen.md"


def reports_in(folder: Path) -> list[dict[str, Any]]:
    """Return the reports of runs on GPUs in a folder, in the order of the files' names.

    Raises
    ------
    ValueError
        A file is not a report, or is a report of a run over the tests' stand-ins, which confirms nothing.

    """
    reports = []
    for path in sorted(folder.glob("*.json")):
        report = read(path)
        if report["stand-ins"]:
            message = f"{path.name} comes from a run over stand-ins for a driver, not from a run on a GPU"
            raise ValueError(message)
        reports.append(report)
    return reports


if __name__ == "__main__":
    TABLE.write_text(draw(reports_in(REPORTS)), encoding="utf-8")
