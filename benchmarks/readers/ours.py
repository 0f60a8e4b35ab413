"""gpu_magic: what Python gets, and the facts alone, without what this process makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.readers import MIB, Plain

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["plain", "read", "read_facts"]


def read() -> Callable[[], Any]:
    """Call `gpu_magic.gpus()`: with the mask read, and the guard asked."""
    import gpu_magic

    return gpu_magic.gpus


def read_facts() -> Callable[[], Any]:
    """Call the reader beneath it, which is what bare pynvml compares with."""
    from gpu_magic.devices.nvml import Nvml

    return Nvml().inventory


def plain(answer: Any) -> Plain:
    return [
        (
            gpu.status.memory_used // MIB,
            gpu.status.utilization,
            gpu.status.temperature,
            int(gpu.status.power),
            [(one.pid, _text(one.owner), _text(one.name), one.memory // MIB) for one in gpu.status.processes],
        )
        for gpu in answer
    ]


def _text(name: Any) -> str:
    return name if isinstance(name, str) else "?"
