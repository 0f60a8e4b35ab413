"""The page: what was tried, as Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tests.reliability.faces import FACES
from tests.reliability.faults import FAULTS
from tests.reliability.interrupted import INTERRUPTS, KILLS, LINES
from tests.reliability.matrix import OMITTED, REFUSES, WORKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.reliability.fault import Fault

__all__ = ["draw", "line_of"]

_SIGNS = {WORKS: "✓", REFUSES: "!", OMITTED: "—"}
_HEAD = """\
# When something fails

What is promised whatever fails: no traceback of gpu_magic's own, no GPU chosen that was not asked for, no variable
lost, and an environment that is as before or as chosen, and never in between. Tests make each fault, type what users
type, and look at the kernel after every cell: at what was shown and logged, at all environment variables, at the user's
variables, and at the GPUs that CUDA sees if it is started then.

The kernels are real, and so are pynvml and PyTorch. What fails beneath them is simulated: a driver's libraries,
PyTorch's GPUs, and a system whose disk, /proc and clock obey the test. No fault of a real driver was tried on a real
GPU.

"""


_SIGNS_EXPLAINED = """\
✓: no cell fails; what can't be known is shown as unknown, or said in a line. !: a cell ends with one line that says why,
and nothing has changed. —: not tried.

"""


def draw(found: Mapping[str, Any]) -> str:
    """Return the page.

    Parameters
    ----------
    found
        What `matrix.try_fault` has returned, by the names of the faults.

    """
    parts = [_HEAD, "## What is typed\n\n| feature | what is typed |\n| --- | --- |\n"]
    parts += (f"| {name} | {play.__doc__} |\n" for name, play in FACES.items())
    parts += ["\n## What is promised, fault by fault\n\n"]
    parts += [_SIGNS_EXPLAINED]
    parts += [f"| fault | {' | '.join(FACES)} |\n| --- |{' :---: |' * len(FACES)}\n"]
    parts += (_row(fault, found[fault.name]["cells"]) for fault in FAULTS)
    parts += ["\nWhy some were not tried:\n\n", *_reasons()]
    parts += ["\n## What is said\n\nOf each fault: how it is made, and the line that a user sees.\n"]
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

{INTERRUPTS} times one of these was interrupted, at a step of Python's picked at random:

{lines}
After each the environment was as before or as the whole line makes it, no variable was lost, interrupts were handled as
before, and IPython showed `KeyboardInterrupt` and no frame of gpu_magic's but the one by which IPython calls it. Moments
are picked in gpu_magic's code and in what it calls of `os` and `contextlib`, and nowhere else in Python, IPython or
PyTorch. An interrupt that comes in what gpu_magic does before or after a cell comes a moment later, in the cell.

{KILLS} times a process that chose GPUs was killed (`kill -9`) at such a step. After each, no claim of it was left, and
another process could have the same GPUs at once.
"""


def _row(fault: Fault, cells: Mapping[str, str]) -> str:
    signs = (_SIGNS[cells[face]] for face in FACES)
    return f"| [{fault.title}](#{fault.name}) | {' | '.join(signs)} |\n"


def _section(fault: Fault, found: Mapping[str, Any]) -> Iterator[str]:
    yield f"\n### {fault.title[0].upper()}{fault.title[1:]} {{#{fault.name}}}\n\n{fault.made}\n"
    if found["line"]:
        yield f"\n> {found['line']}\n"


def _reasons() -> Iterator[str]:
    """Return why features were not tried, each reason once."""
    reasons = [reason for fault in FAULTS for reason in fault.omitted.values()]
    for reason in dict.fromkeys(reasons):
        faces = [face for face in FACES if any(fault.omitted.get(face) == reason for fault in FAULTS)]
        yield f"- {', '.join(faces)}: {reason}\n"
