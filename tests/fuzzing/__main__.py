"""`python -m tests.fuzzing NAME… --minutes 10`: search for inputs that break a promise, and keep what was found."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time

from tests.fuzzing.corpus import FOUND, WORK, keep
from tests.fuzzing.growth import slow_inputs
from tests.fuzzing.targets import TARGETS

_RUNS = re.compile(r"number_of_executed_units: *(\d+)")


def main() -> int:
    """Fuzz some targets, one after the other; the exit status is 1 where a promise was broken."""
    parser = argparse.ArgumentParser("python -m tests.fuzzing", description=__doc__)
    targets = "; ".join(f"{target.name}: {target.about}" for target in TARGETS.values())
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{targets}. Without a name: all")
    parser.add_argument("--minutes", type=float, default=10, help="for each target")
    parser.add_argument(
        "--slow",
        action="store_true",
        help="look for inputs whose time grows faster than their length, instead",
    )
    options = parser.parse_args()
    names = options.names or list(TARGETS)
    if unknown := set(names) - set(TARGETS):
        parser.error(f"no target is called {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    failed = [slow_inputs(TARGETS[name]) if options.slow else _fuzz(name, options.minutes) for name in names]
    return int(any(failed))


def _fuzz(name: str, minutes: float) -> bool:
    """Fuzz a target in a process of its own; return whether a promise was broken, or the search itself stopped."""
    target, began = TARGETS[name], time.monotonic()
    command = [sys.executable, "-m", "tests.fuzzing.search", name, str(round(minutes * 60))]
    (WORK / name).mkdir(parents=True, exist_ok=True)
    with (WORK / name / "log").open("w") as log:
        code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    said = (WORK / name / "log").read_text(errors="replace")
    runs = _RUNS.search(said)
    broken = sorted((WORK / name / FOUND).glob("*.txt"))
    stopped_by = [file.name for file in (WORK / name / FOUND).glob("*-*")]  # timeout-…, oom-…, crash-…
    kept, size = keep(target)
    took = (time.monotonic() - began) / 60
    print(
        f"{name}: {runs[1] if runs else 'an unknown number of'} executions, {took:.1f} minutes, exit status {code}, "
        f"{len(broken)} broken promises, {kept} inputs kept ({size} bytes)"
        + "".join(f"; stopped by {file}" for file in stopped_by),
        flush=True,
    )
    for one in broken:
        print(one.read_text(errors="replace"), flush=True)
    is_whole = has_ended(code, said) and not stopped_by
    if not is_whole:
        print(said[-2000:], flush=True)
    return bool(broken) or not is_whole


def has_ended(code: int, said: str) -> bool:
    """Return whether a search went on to its end; libFuzzer writes its figures where it gives up, too."""
    return not code and _RUNS.search(said) is not None


if __name__ == "__main__":
    sys.exit(main())
