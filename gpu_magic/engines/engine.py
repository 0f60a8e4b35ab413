"""One engine: its number, its GPUs, and the process that it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.text import listed, printable

if TYPE_CHECKING:
    from gpu_magic.devices.model import Device
    from gpu_magic.launching.guardian import Process

__all__ = ["Engine", "EngineNumber"]


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine. `str` returns its number and its GPUs.

    Parameters
    ----------
    number
        That of ipyparallel, and its rank.
    devices
        Its GPUs, in the order of `cuda:i`.
    host
        The name of its machine; empty until it has answered.
    process
        Its number there, and its start in clock ticks; 0 and empty until then.
    is_simulated
        Whether its GPUs do not exist.

    """

    number: int
    devices: tuple[Device, ...]
    host: str = ""
    process: Process = (0, "")
    is_simulated: bool = False

    @property
    def label(self) -> str:
        """`engine 0 (GPU 2)`."""
        return f"engine {self.number} ({listed([device.label for device in self.devices], 'no GPU')})"

    def __str__(self) -> str:
        """Return `0 = GPU 2 (NVIDIA A100 80GB)`."""
        mark = "SIMULATED " if self.is_simulated else ""
        names = [
            device.label if device.name is UNKNOWN else f"{device.label} ({mark}{printable(device.name)})"
            for device in self.devices
        ]
        return f"{self.number} = {listed(names, 'no GPU')}"


class EngineNumber(int):
    """The number of an engine. ipyparallel writes it in front of outputs, and its GPUs stand there, too."""

    _text: str

    def __new__(cls, engine: Engine) -> Self:
        made = super().__new__(cls, engine.number)
        made._text = str(engine)
        return made

    def __format__(self, how: str) -> str:
        return format(int(self), how) if how else self._text
