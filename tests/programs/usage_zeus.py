"""What zeus measures of a block, and what gpu_magic does: both read the same counter."""

from __future__ import annotations

import os
import time
from pathlib import Path

from zeus.monitor import ZeusMonitor

import gpu_magic


def joules(seconds: float) -> list[float]:
    """Return the joules of a block of some seconds, as zeus says and as we do, and its wall time."""
    state = Path(os.environ["GPU_MAGIC_TEST_STATE"])
    new = state.with_name("next")
    new.write_text(state.read_text().replace("proc 1 ", f"proc {os.getpid()} "))
    new.replace(state)
    monitor = ZeusMonitor(gpu_indices=[0])
    monitor.begin_window("block", sync_execution=False)
    with gpu_magic.gpu_time() as measured:
        time.sleep(seconds)
    window = monitor.end_window("block", sync_execution=False)
    (gpu,) = measured.usage.gpus
    return [window.gpu_energy[0], gpu.energy, measured.usage.wall]
