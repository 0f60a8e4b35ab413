"""A simulated machine for your tests: the real pynvml over GPUs that do not exist.

>>> from gpu_magic.testing import simulate
>>> with simulate("2xRTX-4090+1xT4", seed=1, clock=lambda: 0.0) as machine:
...     machine.gpus[0].run("train.py", "maria", 20 << 30, work=90)
...     machine.gpus[2].lose()
...     print(gpu_magic.gpus())

Whatever reads GPUs through nvidia-ml-py inside the block sees that machine.
"""

from __future__ import annotations

from gpu_magic.devices.simulated import Machine, SimulatedGpu, SimulatedMig, simulate
from gpu_magic.errors import SimulationError

__all__ = ["Machine", "SimulatedGpu", "SimulatedMig", "SimulationError", "simulate"]
