"""The page: what was tried, as Markdown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.reliability.faces import FACES
from tests.reliability.faults import FAULTS
from tests.reliability.interrupted import INTERRUPTS, KILLS, LINES
from tests.reliability.matrix import OMITTED, REFUSES, WORKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.reliability.fault import Fault

__all__ = ["FOUND", "draw", "line_of"]

FOUND = Path(__file__).parent / "found.json"

_SIGNS = {WORKS: "✓", REFUSES: "!", OMITTED: "—"}
_HEAD = """\
# When something fails

Whatever fails, gpu_magic shows no traceback of its own, chooses no GPU that the user did not name, loses no variable,
and leaves the environment as before or as chosen. Tests make each fault and run the commands of users. After every cell
they check the output, the log, all environment variables, the user's variables, and the GPUs that CUDA sees.

The kernels, pynvml and PyTorch are real. The faults are simulated, in the driver's libraries, PyTorch's GPUs, the disk,
/proc and the clock. Nobody has tried a fault of a real driver on a real GPU.

"""


_SIGNS_EXPLAINED = """\
✓: no cell fails. An unknown figure is shown as unknown. !: a cell ends with one line that names the error, and nothing
has changed. —: not tried.

"""


def draw(found: Mapping[str, Any]) -> str:
    """Return the page.

    Parameters
    ----------
    found
        What `matrix.try_fault` has returned, by the names of the faults.

    """
    parts = [_HEAD, "## Commands\n\n| feature | commands |\n| --- | --- |\n"]
    parts += (f"| {name} | {play.__doc__} |\n" for name, play in FACES.items())
    parts += ["\n## Result of each fault\n\n"]
    parts += [_SIGNS_EXPLAINED]
    parts += [f"| fault | {' | '.join(FACES)} |\n| --- |{' :---: |' * len(FACES)}\n"]
    parts += (_row(fault, found[fault.name]["cells"]) for fault in FAULTS)
    parts += ["\nReasons why some were not tried:\n\n", *_reasons()]
    parts += ["\n## Messages\n\nHow the test makes each fault, and the line that a user sees.\n"]
    parts += (text for fault in FAULTS for text in _section(fault, found[fault.name]))
    return "".join([*parts, _foot()])


def line_of(lines: Sequence[str]) -> str:
    """Return the line by which a user learns of a fault; empty where there is none."""
    for pattern in ("^! ", "^UsageError: ", "not answering", " cannot "):
        for line in lines:
            if re.search(pattern, line):
                # Not the folder of these tests.
                said = re.sub(r"/\S*gpu_magic-tests-claims-\w+", "/run/lock/gpu_magic-claims", line)
                return " ".join(said.split()).removeprefix("! ")
    return ""


def _foot() -> str:
    """Return what was tried at random moments."""
    lines = "".join(f"- `{line}`\n" for line in LINES)
    return f"""
## Interrupted and killed

A test interrupted one of these lines {INTERRUPTS} times, at a random step of Python:

{lines}
Each time the environment was as before or as after the whole line. No variable was lost, and later interrupts worked.
IPython showed `KeyboardInterrupt` and one frame of gpu_magic. The steps are in gpu_magic's code, and in `os` and
`contextlib` if gpu_magic calls them. gpu_magic delays an interrupt of its hooks before or after a cell until the cell.

A test killed a process that chose GPUs {KILLS} times (`kill -9`) at such a step. Each time no claim was left, and
another process could choose the same GPUs at once.
"""


def _row(fault: Fault, cells: Mapping[str, str]) -> str:
    signs = (_SIGNS[cells[face]] for face in FACES)
    return f"| {fault.title} | {' | '.join(signs)} |\n"


def _section(fault: Fault, found: Mapping[str, Any]) -> Iterator[str]:
    yield f"\n### {fault.title[0].upper()}{fault.title[1:]}\n\n{fault.made}\n"
    if found["line"]:
        yield f"\n> {found['line']}\n"


def _reasons() -> Iterator[str]:
    """Return why features were not tried, each reason once."""
    reasons = [reason for fault in FAULTS for reason in fault.omitted.values()]
    for reason in dict.fromkeys(reasons):
        faces = [face for face in FACES if any(fault.omitted.get(face) == reason for fault in FAULTS)]
        yield f"- {', '.join(faces)}: {reason}\n"
