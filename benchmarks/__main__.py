"""`python -m benchmarks`: measure everything, or the topics named behind it; `--save` writes it down."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from importlib import import_module
from traceback import print_exc

from benchmarks.host import load, name_of_results
from benchmarks.results import Results, Section
from benchmarks.timing import ROOT, Skipped

TOPICS = {
    "load": "load_ext",
    "snapshot": "snapshot",
    "shell": "shell",
    "probe": "probe",
    "cells": "cells",
    "run": "on_gpu",
    "move": "move",
    "launch": "launch",
    "claims": "claims",
    "fit": "fitting",
    "cluster": "cluster",
    "ends": "engine_ends",
    "panel": "panel",
    "page": "page",
    "table": "rendering",
    "usage": "usage",
    "wheel": "wheel",
}


def main(arguments: list[str]) -> int:
    """Measure, print and write tables.

    Returns
    -------
    int
        1 where a topic fails, or a bound does not hold.

    Raises
    ------
    SystemExit
        With 2, for a topic that there is not, and for options that do not go together.

    """
    parser = ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument("topics", nargs="*", metavar="topic", help=f"one of {', '.join(TOPICS)}")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/NAME.md")
    parser.add_argument("--name", help="the name of that file; without it, the processor's and its cores")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.topics if name not in TOPICS]:
        parser.error(f"no benchmark is called {unknown[0]!r}; there are {', '.join(TOPICS)}")
    if options.save and options.topics and not options.name:
        parser.error("some topics are no measurement of all: give them a name of their own, --name NAME")
    results = Results()
    name = options.name or name_of_results(results.machine)
    file = ROOT / "benchmarks" / "results" / f"{name}.md"
    print("".join(f"{what}: {value}\n" for what, value in results.machine.items()))
    for topic in options.topics or TOPICS:
        section = Section(topic)
        results.sections.append(section)
        _measure(section)
        print(f"{section.topic}: load average {section.before} before, {section.after} after\n", flush=True)
        if options.save:
            results.write(file)  # again after each topic: what was measured survives what comes after
    print(results.summary)
    if options.save:
        print(f"Written to {file.relative_to(ROOT)}.")
    return 0 if results.is_fine else 1


def _measure(section: Section) -> None:
    """Measure a topic, and print its tables."""
    try:
        section.tables = import_module(f"benchmarks.{TOPICS[section.topic]}").run()
    except Skipped as reason:
        section.reason = str(reason)
        print(f"{section.topic}: skipped: {reason}\n")
    except Exception as error:  # noqa: BLE001 - the others are measured all the same
        section.reason, section.is_error = f"{type(error).__name__}: {error}", True
        print_exc()
    section.after = load()
    for table in section.tables:
        print(f"{table}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
