"""A machine with GPUs for those who have none: an NVML library in Python beneath the real pynvml.

Everything that reads GPUs through nvidia-ml-py (gpu_magic, nvitop, gpustat) then sees this machine.
It is public as `gpu_magic.testing`, for other people's tests.
"""

from __future__ import annotations

from gpu_magic.devices.simulated.library import beneath, ensure, leave, machine_of
from gpu_magic.devices.simulated.machine import Machine, SimulatedGpu, SimulatedMig

__all__ = ["Machine", "SimulatedGpu", "SimulatedMig", "beneath", "ensure", "leave", "machine_of"]
