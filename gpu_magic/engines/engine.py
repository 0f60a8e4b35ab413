"""One engine: its number, its GPUs, and the process that it is."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Self, TypeVar

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.text import listed, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.devices.model import Device
    from gpu_magic.launching.guardian import Process

__all__ = ["Engine", "EngineNumber", "capitalized", "named"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine. `str` returns its number and its GPUs.

    Parameters
    ----------
    number
        That of ipyparallel. Its rank is its place among the numbers of all engines.
    devices
        Its GPUs, in the order of `cuda:i`.
    host
        Its machine: a name, or what GPU_MAGIC_ADDRESS says there; empty until it has answered.
    process
        Its number there, and its start in clock ticks; 0 and empty until then.
    is_simulated
        Whether its GPUs do not exist.
    names_host
        Whether texts name the machine, as there are several.
    claims
        Whether it claims its GPUs for as long as it lives.

    """

    number: int
    devices: tuple[Device, ...]
    host: str = ""
    process: Process = (0, "")
    is_simulated: bool = False
    names_host: bool = False
    claims: bool = True

    @property
    def claimed(self) -> tuple[str, ...]:
        """The UUIDs of the GPUs that it claims."""
        return tuple(str(device.uuid) for device in self.devices) if self.claims else ()

    @property
    def label(self) -> str:
        """`engine 0 (GPU 2)`, `engine 0 (GPU 2 on node-a)`."""
        gpus = listed([device.label for device in self.devices], "no GPU")
        return f"engine {self.number} ({gpus}{self._where})"

    @property
    def gpus(self) -> str:
        """`GPU 2 (NVIDIA A100 80GB)`, `GPU 2 and GPU 3 (NVIDIA A100 80GB)`."""
        mark = "SIMULATED " if self.is_simulated else ""
        texts = []
        for name, alike in groupby(self.devices, key=lambda device: device.name):
            labels = listed(device.label for device in alike)
            texts.append(labels if name is UNKNOWN else f"{labels} ({mark}{printable(name)})")
        return listed(texts, "no GPU")

    @property
    def _where(self) -> str:
        return f" on {printable(self.host)}" if self.names_host else ""

    def __str__(self) -> str:
        """Return `0 = GPU 2 (NVIDIA A100 80GB)`, `0 = GPU 2 (NVIDIA A100 80GB) on node-a`."""
        return f"{self.number} = {self.gpus}{self._where}"


class EngineNumber(int):
    """The number of an engine. ipyparallel writes it in front of outputs, and its GPUs stand there, too."""

    label: str
    _text: str

    def __new__(cls, engine: Engine) -> Self:
        made = super().__new__(cls, engine.number)
        made.label, made._text = engine.label, str(engine)
        return made

    def __format__(self, how: str) -> str:
        return format(int(self), how) if how else self._text


def named(engines: Sequence[Engine], verb: str) -> str:
    """Return engines as the beginning of a sentence: `Engine 0 (GPU 2) and engine 1 (GPU 0) have`."""
    several = {"has": "have", "is": "are", "runs": "run"}
    text = capitalized(listed(engine.label for engine in engines))
    return f"{text} {verb if len(engines) == 1 else several[verb]}"


def capitalized(text: str) -> str:
    """Return a text as the beginning of a sentence."""
    return f"{text[0].upper()}{text[1:]}"
