"""gpustat's one way from Python. It sleeps 0.1 s a GPU, to measure what its processes do on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.readers import Plain

__all__ = ["plain", "read"]


def read() -> Callable[[], Any]:
    from gpustat import new_query

    query: Callable[[], Any] = new_query
    return query


def plain(answer: Any) -> Plain:
    return [
        (
            gpu.memory_used,
            gpu.utilization,
            gpu.temperature,
            gpu.power_draw,
            [(one["pid"], one["username"], one["command"], one["gpu_memory_usage"]) for one in gpu.processes],
        )
        for gpu in answer
    ]
