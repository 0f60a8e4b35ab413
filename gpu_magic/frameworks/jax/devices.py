"""JAX's backends and devices, as it lists them (JAX 0.10, `xla_bridge._backends`, by platform)."""

from __future__ import annotations

import sys
from typing import Any

from gpu_magic.errors import warn_once
from gpu_magic.selection.target import LogicalDevice

__all__ = ["backends", "devices_like", "has_plugin", "logical_device", "platform"]


def platform(device: LogicalDevice) -> str:
    """Return JAX's name for the kind of a device: "gpu" means both CUDA's and ROCm's."""
    return {"": device.kind, "cuda": "gpu"}.get(device.type, device.type)


def backends() -> dict[str, Any]:
    found: dict[str, Any] | None = getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None)
    if found is None and "jax._src" in sys.modules:  # no namesake of JAX
        text = f"JAX {sys.modules['jax'].__version__} does not list its backends"
        warn_once("JAX's backends", f"{text}: it counts as not started. Update gpu_magic.")
    return found or {}


def has_plugin() -> bool:
    """Return whether JAX finds a plugin, of which CUDA's is one (JAX 0.10, `discover_pjrt_plugins`)."""
    if sys.modules.get("jax_plugins") is not None:
        return True
    from importlib.metadata import entry_points  # slow, and JAX has imported it

    return bool(entry_points(group="jax_plugins"))


def devices_like(device: LogicalDevice) -> dict[int, Any]:
    """Return this process's devices of the same kind; GPUs by their CUDA ordinals."""
    try:
        devices = sys.modules["jax"].local_devices(backend=platform(device))
    except RuntimeError:  # there is no such platform here
        return {}
    return {ordinal_of(device, index): device for index, device in enumerate(devices)}


def ordinal_of(device: Any, index: int) -> int:
    """Return a GPU's CUDA ordinal; for others the index.

    JAX's own index is another one where `jax_cuda_visible_devices` leaves GPUs out.
    """
    ordinal = getattr(device, "local_hardware_id", None)
    return index if device.platform == "cpu" or ordinal is None or ordinal < 0 else int(ordinal)


def logical_device(device: Any) -> LogicalDevice | str:
    """Return what gpu_magic calls a device of JAX; JAX's name where that is no CPU or GPU."""
    if device.platform == "cpu":
        return LogicalDevice("cpu", device.id)
    if device.platform == "gpu":
        return LogicalDevice("gpu", ordinal_of(device, device.id), "cuda")
    return str(device)
