"""What a command uses of its GPUs, as far as the driver tells: memory, the most of it, and utilization."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.model import UNKNOWN, Unknown
from gpu_magic.devices.processes import descends_from
from gpu_magic.process.view import read_machine
from gpu_magic.text import bytes_text

if TYPE_CHECKING:
    from collections.abc import Container

    from gpu_magic.devices.model import Device
    from gpu_magic.process.session import Session

__all__ = ["GpuUse"]


class GpuUse:
    """Keeps what was seen of some devices.

    Parameters
    ----------
    devices
        Those of the command.
    session
        This process's, of which the command's processes are descendants.

    """

    def __init__(self, devices: tuple[Device, ...], session: Session) -> None:
        self._devices, self._session = devices, session
        # By UUID: the bytes that the command has there, the most that it had, and percent.
        self._used: dict[str, int] = {}
        self._peaks: dict[str, int] = {}
        self._utilization: dict[str, int | Unknown] = {}

    @property
    def peaks(self) -> dict[Device, int]:
        """The most memory that was seen in use by the command on each device, in bytes."""
        return {device: peak for device in self._devices if (peak := self._peaks.get(str(device.uuid)))}

    def look(self, guardians: Container[int]) -> None:
        """Read the machine, and note what the processes below these use.

        Raises
        ------
        SimulationError
            It is simulated, and its description is not understood.

        """
        wanted = {str(device.uuid) for device in self._devices}
        for device in read_machine(self._session).devices:
            uuid, processes = str(device.uuid), device.status.processes
            if uuid not in wanted:
                continue
            self._utilization[uuid] = device.status.utilization
            if processes is UNKNOWN:
                continue
            ours = [one for one in processes if one.mine and descends_from(one.pid, guardians)]
            used = sum(one.memory for one in ours if one.memory is not UNKNOWN)
            self._used[uuid] = used
            self._peaks[uuid] = max(used, self._peaks.get(uuid, 0))

    def __str__(self) -> str:
        return " · ".join(map(self._text, self._devices))

    def _text(self, device: Device) -> str:
        uuid = str(device.uuid)
        if uuid not in self._utilization:  # nothing was read yet
            return device.label
        utilization = self._utilization[uuid]
        figures = ["?" if utilization is UNKNOWN else f"{utilization} %"]
        if uuid in self._used:
            figures.append(bytes_text(self._used[uuid]))
        return f"{device.label}: {', '.join(figures)}"
