"""The table of claims, as Markdown: the outcome of each claim, and the machine."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any

from gpu_magic.text import listed
from tests.gpu.claims import CLAIMS, GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.gpu.claim import Claim

__all__ = ["draw"]

_HEAD = """\
# On real GPUs

gpu_magic relies on these claims about drivers and frameworks. A program tries each claim on a machine with a GPU. A
claim is *confirmed*, *contradicted* (with the result), or not yet tried. Measurements are reported without a verdict.

"""
_FOOT = """\
`make test-gpu` tries all claims on a machine with a GPU. `make gpu-kit` makes a folder with a command that tries all
claims on a machine without network. Both commands write `report.json`. To add the report to this table, put it into
`tests/gpu/reports` and run `python -m tests.gpu.seen`.
"""
_OF_MPS = [name for name, claim in CLAIMS.items() if "MPS" in claim.needs]


def draw(reports: Sequence[Mapping[str, Any]]) -> str:
    """Return the table.

    Parameters
    ----------
    reports
        The reports of the runs in the table, in the order of their letters. The table marks a run over stand-ins,
        which confirms nothing.

    """
    letters = [string.ascii_uppercase[place % 26] * (place // 26 + 1) for place in range(len(reports))]
    runs = list(zip(letters, reports, strict=True))
    parts = [_HEAD, *_machines(runs)]
    for title, claims in GROUPS.items():
        rows = "".join(_row(claim, runs) for claim in claims)
        parts.append(f"## {title}\n\n| claim | relied on by | on a GPU |\n| --- | --- | --- |\n{rows}\n")
    return "".join([*parts, _FOOT])


def _machines(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    if not runs:
        yield "No run on a GPU yet.\n\n"
        return
    yield "| | GPUs | driver | versions | date |\n| --- | --- | --- | --- | --- |\n"
    for letter, report in runs:
        driver = f"{report['driver'] or 'none'}, CUDA {report['CUDA of the driver'] or 'not known'}"
        versions = ", ".join(f"{name} {version}" for name, version in report["packages"].items())
        if report["CUDA of PyTorch"]:
            versions += f", CUDA {report['CUDA of PyTorch']} in PyTorch"
        gpus = _gpus(report["gpus"]) + (", **stand-ins, not GPUs**" if report["stand-ins"] else "")
        if any(one["outcome"] != "not tried" for one in map(report["claims"].get, _OF_MPS) if one):
            gpus += ", with an MPS server"
        cells = (letter, gpus, driver, versions, report["date"])
        yield f"| {' | '.join(map(_cell, cells))} |\n"
    yield "\n"


def _gpus(gpus: Sequence[Mapping[str, Any]]) -> str:
    """Return `2 x NVIDIA A100-SXM4-80GB (GPU-8f3a…, GPU-17c0…)`."""
    named: dict[str, list[str]] = {}
    for gpu in gpus:
        name = f"{gpu['name'] or 'a GPU without a name'}{', split by MIG' if gpu['is split'] else ''}"
        named.setdefault(name, []).append(gpu["uuid"] or "no UUID")
    texts = (
        f"{f'{len(uuids)} x ' if len(uuids) > 1 else ''}{name} ({', '.join(uuids)})"
        for name, uuids in named.items()
    )
    return "; ".join(texts) or "none"


def _row(claim: Claim, runs: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    return f"| {_cell(claim.sentence)} | `{claim.where}` | {_cell(_status(claim, runs))} |\n"


def _status(claim: Claim, runs: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return the outcome of a claim in all runs, starting with contradictions."""
    of = {letter: (report, report["claims"].get(claim.name)) for letter, report in runs}
    found: dict[str, dict[str, list[str]]] = {"contradicted": {}, "confirmed": {}, "measured": {}}
    untried = []
    for letter, (report, one) in of.items():
        if one is None:
            continue
        if one["sentence"] != claim.sentence:
            untried.append(f"reworded since {letter}")
        elif one["outcome"] == "not tried":
            untried.append(f"{letter}: {one['what']}")
        else:
            on = f"{letter}, over stand-ins" if report["stand-ins"] else letter
            found[one["outcome"]].setdefault(one["what"], []).append(on)
    done = [
        f"{f'**{outcome}**' if outcome == 'contradicted' else outcome} "
        + "; ".join(f"on {listed(letters)}: {what}" for what, letters in results.items())
        for outcome, results in found.items()
        if results
    ]
    return ". ".join(done) or (f"not yet ({'; '.join(untried)})" if untried else "not yet")


def _cell(text: str) -> str:
    """Return a text for a cell of a Markdown table. The text can contain names from the machine and errors."""
    printable = "".join(one if one.isprintable() else " " for one in text)
    return printable.replace("|", "\\|").replace("<", "&lt;")
