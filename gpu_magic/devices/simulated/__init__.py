"""A simulated machine with GPUs: an NVML library in Python that the real pynvml calls.

Every tool that reads GPUs through nvidia-ml-py (gpu_magic, nvitop, gpustat) sees this machine. The public
names are in `gpu_magic.testing`.
"""

from gpu_magic.devices.simulated.library import beneath, ensure, leave, machine_of
from gpu_magic.devices.simulated.machine import Machine, SimulatedGpu, SimulatedMig

__all__ = ["Machine", "SimulatedGpu", "SimulatedMig", "beneath", "ensure", "leave", "machine_of"]
