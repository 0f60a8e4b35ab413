"""A machine that is simulated, which is easily forgotten in a notebook that was tried without GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.diagnosis.commands import is_ipython
from gpu_magic.diagnosis.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.diagnosis.facts import Facts

__all__ = ["check_simulation"]


def check_simulation(facts: Facts) -> Iterator[Finding]:
    kernel = facts.kernel
    if kernel is UNKNOWN or not kernel.simulate or facts.machine is UNKNOWN or not facts.machine.simulated:
        return
    mends = {"shell": "unset GPU_MAGIC_SIMULATE", "python": 'import os; os.environ.pop("GPU_MAGIC_SIMULATE")'}
    mend = "%env GPU_MAGIC_SIMULATE=" if is_ipython(kernel.program) else mends[kernel.program]
    what = "GPU_MAGIC_SIMULATE is set: the GPUs here are SIMULATED and do not exist."
    yield Finding("worth knowing", "GPUs", what, "To see this machine's own:", mend)
