"""Probes of this machine: the GPUs, the driver, and each framework. Each probe runs in a separate process."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from tests.gpu.programs.common import alone

__all__ = ["cupy", "jax", "nvml", "packages", "tensorflow", "torch"]

_PACKAGES = (
    "gpu_magic",
    "torch",
    "tensorflow",
    "jax",
    "jaxlib",
    "keras",
    "numpy",
    "nvidia-ml-py",
    "ipython",
    "ipykernel",
    "anywidget",
)
_CUPY = ("cupy", "cupy-cuda12x", "cupy-cuda13x")


def packages() -> dict[str, str]:
    """Return the versions of Python and of the installed packages."""
    found = {"Python": ".".join(map(str, sys.version_info[:3]))}
    for name in (*_PACKAGES, *_CUPY):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def nvml() -> dict[str, Any]:
    """Return the GPUs, the driver, and the GPUs that the run may use, starting with the least memory in use."""
    import gpu_magic
    from gpu_magic.devices.model import UNKNOWN
    from gpu_magic.process.mask import read

    machine = gpu_magic.gpus().of_vendor("nvidia")
    seen = read(os.environ.get("CUDA_VISIBLE_DEVICES"), machine, os.environ.get("CUDA_DEVICE_ORDER")).devices
    allowed = machine.devices if seen is UNKNOWN else seen
    usable = [device for device in allowed if not getattr(device, "is_split", False)]
    usable.sort(key=lambda device: _known(device.status.memory_used) or 0)
    return {
        "problem": str(machine.problem or machine.limitation or ""),
        "driver": _known(machine.driver_version),
        "cuda": _known(machine.cuda_version),
        "gpus": [
            {
                "name": _known(gpu.name),
                "uuid": _known(gpu.uuid),
                "bytes": _known(gpu.memory_total),
                "is split": gpu.is_split,
                "has mps": bool(gpu.status.mps_servers),
            }
            for gpu in machine
        ],
        "use": [str(device.uuid) for device in usable],
        "nvidia-smi": shutil.which("nvidia-smi") is not None,
        "ipykernel": find_spec("ipykernel") is not None,
    }


def torch() -> dict[str, Any]:
    """Return PyTorch's CUDA version and accelerator, or why it has none."""
    if find_spec("torch") is None:
        return {"accelerator": "", "cuda": "", "why not": "PyTorch is not installed here"}
    import torch

    alone()
    accelerator = torch.accelerator.current_accelerator() if hasattr(torch, "accelerator") else None
    found = {"accelerator": accelerator.type if accelerator else "", "cuda": torch.version.cuda or ""}
    if not found["cuda"]:
        return found | {"why not": f"PyTorch {torch.__version__} is built without CUDA"}
    try:
        torch.zeros(1).cuda()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0].partition(". ")[0]
        return found | {"accelerator": "", "why not": f"PyTorch cannot use CUDA here: {reason}"}
    return found | {"why not": ""}


def tensorflow() -> dict[str, Any]:
    """Return why TensorFlow cannot use CUDA; empty if it can."""
    if find_spec("tensorflow") is None:
        return {"why not": "TensorFlow is not installed here"}
    import tensorflow as tf

    alone()
    if not tf.test.is_built_with_cuda():
        return {"why not": f"TensorFlow {tf.__version__} is built without CUDA"}
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    return {"why not": "" if has_gpu else f"TensorFlow {tf.__version__} finds no GPU here"}


def jax() -> dict[str, Any]:
    """Return why JAX cannot use CUDA; empty if it can."""
    if find_spec("jax") is None:
        return {"why not": "JAX is not installed here"}
    import jax

    alone()
    try:
        jax.devices("cuda")
    except RuntimeError:
        return {
            "why not": f"JAX {jax.__version__} finds no GPU here: it has no plugin for CUDA, or the plugin cannot start"
        }
    return {"why not": ""}


def cupy() -> dict[str, Any]:
    """Return why CuPy cannot be used; empty if it can."""
    if find_spec("cupy") is None:
        return {"why not": "CuPy is not installed here"}
    import cupy

    alone()
    try:
        cupy.cuda.runtime.getDeviceCount()
        if cupy.ones(1).sum() != 1:
            return {"why not": "CuPy computes a wrong sum here"}
    except Exception as error:  # noqa: BLE001 - CUDA's errors, and errors of the libraries that it loads
        return {"why not": f"CuPy cannot use CUDA here: {str(error).partition(chr(10))[0]}"}
    return {"why not": ""}


def _known(value: Any) -> Any:
    from gpu_magic.devices.model import UNKNOWN

    return None if value is UNKNOWN else value
