"""This machine: its GPUs, its driver and its frameworks, each probed in a process of its own, and what they lack."""

from __future__ import annotations

import os
import shutil
import sys
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tests.gpu.child import run
from tests.gpu.programs.common import alone

if TYPE_CHECKING:
    from tests.gpu.claim import Need

__all__ = ["Machine"]

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
_FRAMEWORKS = {
    "TensorFlow for CUDA": "probe_tensorflow",
    "JAX for CUDA": "probe_jax",
    "CuPy": "probe_cupy",
}


class Machine:
    """This machine. Nothing is probed before it is asked for, and nothing starts CUDA in this process."""

    @cached_property
    def packages(self) -> dict[str, Any]:
        return run("machine.probe_packages")

    @cached_property
    def nvml(self) -> dict[str, Any]:
        return run("machine.probe_nvml")

    @property
    def torch(self) -> dict[str, Any]:
        return self._probed("probe_torch")

    @property
    def use(self) -> str:
        """The UUIDs of the GPUs for the programs. A program for one GPU uses the first."""
        return ",".join(self.nvml.get("use", []))

    def lacks(self, need: Need) -> str:
        """Return the reason that a need is not met; empty if it is met."""
        if need == "an accelerator of PyTorch's" and self.torch.get("accelerator"):
            return ""
        if need in ("an accelerator of PyTorch's", "PyTorch for CUDA"):
            return _reason(self.torch)
        if need in _FRAMEWORKS:
            return _reason(self._probed(_FRAMEWORKS[need]))
        gpus = self.nvml.get("gpus", [])
        if reason := self.nvml.get("failed") or self.nvml["problem"]:
            return str(reason)
        if not gpus:
            return "NVML lists no GPU here"
        names = {gpu["name"] for gpu in gpus}
        is_split = any(gpu["is split"] for gpu in gpus)
        is_met, reason = {
            "a driver": (True, ""),
            "whole GPUs": (not is_split, "a GPU here is split by MIG"),
            "two GPUs": (len(self.nvml["use"]) > 1, "only one GPU may be used here"),
            "GPUs that are alike": (
                len(gpus) > 1 and len(names) == 1,
                "the GPUs here are not several GPUs of one model",
            ),
            "GPUs that differ": (len(names) > 1, "all GPUs here are of one model"),
            "MIG": (is_split, "no GPU here is split by MIG"),
            "MPS": (any(gpu["has mps"] for gpu in gpus), "no MPS server runs here"),
            "nvidia-smi": (self.nvml["nvidia-smi"], "there is no nvidia-smi here"),
            "ipykernel": (self.nvml["ipykernel"], "ipykernel is not installed here"),
        }[need]
        return "" if is_met else reason

    @cache  # noqa: B019 - there is one machine
    def _probed(self, probe: str) -> dict[str, Any]:
        return run(f"machine.{probe}", use=self.use)


def _reason(found: dict[str, Any]) -> str:
    return str(found["failed"] if "failed" in found else found["why not"])


def probe_packages() -> dict[str, str]:
    """Return the versions of Python and of the installed packages."""
    found = {"Python": ".".join(map(str, sys.version_info[:3]))}
    for name in (*_PACKAGES, *_CUPY):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def probe_nvml() -> dict[str, Any]:
    """Return the GPUs, the driver, and the GPUs that the run may use, starting with the least memory in use."""
    import gpu_magic
    from gpu_magic.devices.model import UNKNOWN
    from gpu_magic.process.mask import read

    machine = gpu_magic.gpus().machine
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


def probe_torch() -> dict[str, Any]:
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


def probe_tensorflow() -> dict[str, Any]:
    """Return why TensorFlow cannot use CUDA; empty if it can."""
    if find_spec("tensorflow") is None:
        return {"why not": "TensorFlow is not installed here"}
    import tensorflow as tf

    alone()
    if not tf.test.is_built_with_cuda():
        return {"why not": f"TensorFlow {tf.__version__} is built without CUDA"}
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    return {"why not": "" if has_gpu else f"TensorFlow {tf.__version__} finds no GPU here"}


def probe_jax() -> dict[str, Any]:
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


def probe_cupy() -> dict[str, Any]:
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
