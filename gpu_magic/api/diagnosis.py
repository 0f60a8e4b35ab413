"""What is wrong with the GPU set-up of this process, and what mends it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from gpu_magic.diagnosis.diagnose import diagnose
from gpu_magic.diagnosis.gathering import Pages
from gpu_magic.display.diagnosis import Diagnosis
from gpu_magic.process import program
from gpu_magic.process.session import current
from gpu_magic.public import public

if TYPE_CHECKING:
    from gpu_magic.diagnosis.facts import Program

__all__ = ["doctor", "doctor_in"]


@public
def doctor() -> Diagnosis:
    """Look for what keeps this process from using GPUs as meant: driver, builds, variables, permissions.

    Nothing is changed, no framework is imported, and CUDA is not started.

    Returns
    -------
    Diagnosis
        `findings`, what is wrong first, each with `what`, `meaning` and `mend`, a line to copy; and
        `facts`. It shows itself as a page; `report()` is text for an issue, `to_dict()` is for JSON.

    """
    return doctor_in(program())


def doctor_in(where: Program) -> Diagnosis:
    """Return the same, for a place where commands are typed: "shell" for `gpu-magic doctor`."""
    return Diagnosis.of(diagnose(current(), where, _pages()))


def _pages() -> Pages:
    """Return what is known of the pages that show panels, where a panel was made."""
    state: Any = sys.modules.get("gpu_magic.widget.state")
    return Pages(*state.panel_state().pages()) if state else Pages()
