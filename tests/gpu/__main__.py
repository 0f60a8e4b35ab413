"""`python -m tests.gpu [FOLDER]`: try every claim on this machine; write `report.json` and `seen.md` to a folder.

The exit status is 1 if a claim was contradicted, and 2 if none was tried.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.gpu.claims import CLAIMS
from tests.gpu.report import make, without_names, write
from tests.gpu.runner import ALL, Found, look, run_all
from tests.gpu.table import draw

if TYPE_CHECKING:
    from tests.gpu.claim import Claim


def main() -> int:
    """Run; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu", description="Try every claim on this machine."
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path(), help="the folder for report.json and seen.md"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="only the claims whose names contain TEXT")
    parser.add_argument(
        "--seconds", type=float, default=ALL, help="the time limit for all claims (%(default)s)"
    )
    options = parser.parse_args()
    claims = [claim for claim in CLAIMS.values() if options.only in claim.name]
    if not claims:
        print(f"No claim's name contains {options.only!r}. A name: {next(iter(CLAIMS))}", file=sys.stderr)
        return 2
    began = time.monotonic()
    here = look()
    if reason := here.missing["a driver"]:
        print(f"No claim can be tried here: {without_names(reason)}", file=sys.stderr)
        return 2
    left = options.seconds - (time.monotonic() - began)
    found = run_all(claims, here, _tell, left)
    report = make(here, found, time.monotonic() - began)
    options.folder.mkdir(parents=True, exist_ok=True)
    write(report, options.folder / "report.json")
    (options.folder / "seen.md").write_text(draw([report]), encoding="utf-8")
    counts = Counter(one.outcome for one in found.values())
    summary = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    print(f"{summary} in {report['seconds']:.0f} seconds: report.json and seen.md in {options.folder}")
    if report["stand-ins"]:
        print("These results come from the tests' stand-ins for a driver, not from a GPU.")
    return 1 if counts["contradicted"] else 0


def _tell(claim: Claim, found: Found) -> None:
    print(f"{found.outcome:<13}{claim.name}: {without_names(found.what)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
