"""The checks: functions of the facts that yield findings. A new one is a function, and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.diagnosis.checks.binding import check_binding
from gpu_magic.diagnosis.checks.builds import check_builds
from gpu_magic.diagnosis.checks.cuda import check_cuda
from gpu_magic.diagnosis.checks.device_files import check_device_files
from gpu_magic.diagnosis.checks.driver import check_driver
from gpu_magic.diagnosis.checks.front_end import check_front_end
from gpu_magic.diagnosis.checks.gpus import check_gpus
from gpu_magic.diagnosis.checks.leftovers import check_leftovers
from gpu_magic.diagnosis.checks.mps import check_mps
from gpu_magic.diagnosis.checks.simulation import check_simulation
from gpu_magic.diagnosis.checks.visible_devices import check_visible_devices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpu_magic.diagnosis.facts import Facts
    from gpu_magic.diagnosis.finding import Finding

__all__ = ["CHECKS"]

# In the order in which they are shown: what is nearest to the GPU first.
CHECKS: tuple[Callable[[Facts], Iterable[Finding]], ...] = (
    check_device_files,
    check_driver,
    check_gpus,
    check_visible_devices,
    check_cuda,
    check_builds,
    check_binding,
    check_mps,
    check_leftovers,
    check_front_end,
    check_simulation,
)
