"""JAX and TensorFlow where their logical CPUs 1, 2 and 3 are taken for the GPUs 0, 1 and 2: all else is theirs."""

from gpu_magic.frameworks.jax import Jax
from gpu_magic.frameworks.target import CPU, LogicalDevice
from gpu_magic.frameworks.tensorflow import TensorFlow


def _cpu(device):
    return CPU if device.kind == "cpu" else LogicalDevice("cpu", device.index + 1)


def _gpu(device):
    is_one = device.kind == "cpu" and device.index > 0
    return LogicalDevice("gpu", device.index - 1, "cuda") if is_one else device


class OnGpus:
    def problem(self, device):
        return super().problem(_cpu(device))

    def holdings(self, array):
        return [one._replace(device=_gpu(one.device)) for one in super().holdings(array)]

    def origin(self, array, device):
        return super().origin(array, _cpu(device))

    def free_bytes(self, device):
        return None

    def copied(self, array, device, memo):
        return super().copied(array, _cpu(device), memo)


class GpuJax(OnGpus, Jax):
    pass


class GpuTensorFlow(OnGpus, TensorFlow):
    pass


JAX, TENSORFLOW = GpuJax(), GpuTensorFlow()
