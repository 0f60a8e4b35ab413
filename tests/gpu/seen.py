"""Writes seen.md, the table of what was confirmed on real GPUs, from the reports in the folder `reports`.

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
    """Return the reports of runs on GPUs in a folder, by the names of their files.

    Raises
    ------
    ValueError
        One is no report, or one of a run over the tests' stand-ins, which confirms nothing.

    """
    reports = []
    for path in sorted(folder.glob("*.json")):
        report = read(path)
        if report["stand-ins"]:
            message = f"{path.name} is of a run over stand-ins for a driver, and not on a GPU"
            raise ValueError(message)
        reports.append(report)
    return reports


if __name__ == "__main__":
    TABLE.write_text(draw(reports_in(REPORTS)), encoding="utf-8")
