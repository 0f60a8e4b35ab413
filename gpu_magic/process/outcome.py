"""What became of a request for GPUs: it was applied, it came too late, or it was narrowed to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.text import listed, printable

if TYPE_CHECKING:
    from gpu_magic.devices.model import Device
    from gpu_magic.process import Program
    from gpu_magic.process.guard import Guard
    from gpu_magic.selection.options import Options
    from gpu_magic.selection.select import Selection

__all__ = ["Applied", "Narrowed", "Outcome", "Refused"]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What all outcomes have.

    Parameters
    ----------
    selection
        The devices, in the order of `cuda:i`, and the values of the variables that name them.
    is_dry_run
        Whether only the answer was wanted.
    is_simulated
        Whether these GPUs do not exist.

    """

    selection: Selection
    is_dry_run: bool
    is_simulated: bool

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices; none where a reset led to a CUDA_VISIBLE_DEVICES that can't be read."""
        return () if self.selection.devices is UNKNOWN else self.selection.devices

    @property
    def _what(self) -> str:
        """The devices, as the log has them."""
        simulated = "SIMULATED " if self.is_simulated and self.devices else ""
        return simulated + listed((device.label for device in self.devices), "no GPU")


@dataclass(frozen=True, slots=True)
class Applied(_Outcome):
    """CUDA sees these devices in this process, or would see them. `str` returns a line for the log.

    Parameters
    ----------
    is_applied
        Whether this process has them: now set, or had before.
    is_reset
        Whether it goes back to what the process was launched with.
    memory
        How frameworks take memory, as a sentence; empty where nothing was said of it.

    """

    is_applied: bool
    is_reset: bool
    memory: str

    def __str__(self) -> str:
        variables = [
            f"{name} not set" if value is None else f"{name}={value}"
            for name, value in self.selection.variables.items()
        ]
        what = "Reset" if self.is_reset else f"Chosen: {self._what}"
        return printable(" · ".join((what, *variables)))


@dataclass(frozen=True, slots=True)
class Refused(_Outcome):
    """CUDA has been initialized with other devices. Nothing was changed. `str` returns a line for the log.

    Parameters
    ----------
    guard
        Since when, by what, and with which devices.
    request, options
        What would choose them in a fresh kernel, as typed; an empty request goes back to what the process
        was launched with.
    ordinal
        The i of `cuda:i` of the first of them that the process has already; None where it has none of them.
    statements
        For each imported framework its name, and the statement that selects `cuda:ordinal`.
    program
        What the process is: a Jupyter "kernel", or an "unattended kernel", which nobody would start again;
        "ipython" in a terminal, or "python".

    """

    guard: Guard
    request: str
    options: Options
    ordinal: int | None
    statements: tuple[tuple[str, str], ...]
    program: Program

    @property
    def is_reset(self) -> bool:
        """Whether it would go back to what the process was launched with."""
        return not self.request

    def __str__(self) -> str:
        return printable(f"Too late for {'a reset' if self.is_reset else self._what}: {self.guard}")


@dataclass(frozen=True, slots=True)
class Narrowed(_Outcome):
    """The imported frameworks use some of the devices that the process has. `str` returns a line for the log.

    Parameters
    ----------
    ordinals
        The i of each device's `cuda:i`.
    results
        What became of it in each framework, a sentence each.

    """

    ordinals: tuple[int, ...]
    results: tuple[str, ...]

    def __str__(self) -> str:
        return f"Chosen in-process: {self._what if self.devices else 'all'}"


Outcome = Applied | Refused | Narrowed
