"""nvitop in its leanest way: only the figures asked for, and what it caches kept alive.

`take_snapshots` and `as_snapshot`, which its documentation shows, ask for much more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.readers import MIB, Plain

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["plain", "read"]


def read() -> Callable[[], list[Any]]:
    from nvitop import Device

    devices = Device.all()
    kept: list[Any] = []  # nvitop knows a process again for as long as somebody holds it

    def snapshot() -> list[Any]:
        found = []
        for device in devices:
            memory = device.memory_info()
            running = [
                (pid, process.username(), process.name(), process.gpu_memory(), process)
                for pid, process in device.processes().items()
            ]
            figures = device.gpu_utilization(), device.temperature(), device.power_usage()
            found.append((memory.total, memory.used, memory.free, *figures, running))
        kept[:] = found
        return found

    return snapshot


def plain(answer: list[Any]) -> Plain:
    return [
        (
            used // MIB,
            utilization,
            temperature,
            milliwatts // 1000,
            [(pid, owner, name, memory // MIB) for pid, owner, name, memory, _ in running],
        )
        for _, used, _, utilization, temperature, milliwatts, running in answer
    ]
