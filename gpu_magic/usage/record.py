"""What a cell, or any other block, has cost: the data that is kept of it, and written down in a notebook."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.devices.unknown import UNKNOWN, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CellUsage", "GpuUsage", "OtherProcess", "Sample"]


class OtherProcess(NamedTuple):
    """A process that is not this one's: its number, as the driver has it, its name, and its owner."""

    pid: int
    name: str
    owner: str


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen of a GPU at one moment.

    Parameters
    ----------
    at
        Seconds since the block began.
    memory
        Bytes that this process had there; UNKNOWN where nobody counts them.
    utilization
        Percent of the GPU's last sampling period, whoever used it.

    """

    at: float
    memory: int | Unknown
    utilization: int | Unknown


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """What a block has used of one GPU, or MIG instance.

    Parameters
    ----------
    name
        What frameworks call it: `cuda:0`.
    gpu
        Its number: `GPU 3`; empty where that is not known.
    model, uuid
        As the driver has them; empty where they are not known.
    busy
        Percent: the mean of the GPU's utilization, whoever used it. UNKNOWN for less than a second, which is
        the longest period that NVML's figure covers (`nvmlUtilization_t`: a sixth of a second to a second).
    busy_own
        Percent: the mean of what this process has kept it busy, as far as the driver counts that.
    idle
        Seconds in which nobody's kernel ran on it.
    peak
        The most memory that this process had there, in bytes.
    peak_by
        Who says so: the framework whose arrays these are, by its own count, or "driver", sampled.
    is_exact
        Whether the peak was counted; False where it was sampled, and a short one can have been missed.
    stayed
        Bytes that this process has there more than before; negative where it has less.
    energy
        Joules that the whole GPU has used, whoever used it. UNKNOWN where the driver does not count them.
    others
        Other processes that worked on it meanwhile, eight at most; where the driver does not tell who works,
        those that had memory there.
    samples
        What was seen over time, at most some hundred moments.

    """

    name: str
    gpu: str = ""
    model: str = ""
    uuid: str = ""
    busy: float | Unknown = UNKNOWN
    busy_own: float | Unknown = UNKNOWN
    idle: float | Unknown = UNKNOWN
    peak: int | Unknown = UNKNOWN
    peak_by: str = ""
    is_exact: bool = False
    stayed: int | Unknown = UNKNOWN
    energy: float | Unknown = UNKNOWN
    others: tuple[OtherProcess, ...] = ()
    samples: tuple[Sample, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as values of JSON, without the samples; what is UNKNOWN is null."""
        names = (name for name in self.__dataclass_fields__ if name != "samples")
        values = {name: getattr(self, name) for name in names}
        values["others"] = [other._asdict() for other in self.others]
        return {name: None if value is UNKNOWN else value for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class CellUsage:
    """What a cell has cost, or a block within `gpu_magic.gpu_time()`.

    Parameters
    ----------
    cell
        The cell's number; None for a block of a script.
    code
        Its first line.
    started
        When it began, in seconds since the epoch.
    wall
        Seconds that it took.
    user, system
        Seconds of CPU time that this process has used meanwhile, in its own code and in the system's.
    gpus
        What it used of each GPU, in the order in which frameworks count them; empty where it used none.
    problem
        Why nothing is known of GPUs, as a sentence; empty where it is.
    has_failed
        Whether it ended with an error.
    versions
        What it ran on: the versions of the driver (`driver`), of Python, gpu_magic and the frameworks.
    simulated
        The profile, where the GPUs are simulated.

    """

    cell: int | None
    code: str
    started: float
    wall: float
    user: float
    system: float
    gpus: tuple[GpuUsage, ...] = ()
    problem: str = ""
    has_failed: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    simulated: str = ""

    @property
    def energy(self) -> float | Unknown:
        """Joules of all its GPUs; UNKNOWN where one of them does not count."""
        found = [gpu.energy for gpu in self.gpus]
        known = [one for one in found if one is not UNKNOWN]
        return sum(known) if found and len(known) == len(found) else UNKNOWN

    @property
    def peak(self) -> int | Unknown:
        """The most memory on one of its GPUs, in bytes; UNKNOWN where none is known."""
        return max((gpu.peak for gpu in self.gpus if gpu.peak is not UNKNOWN), default=UNKNOWN)

    def to_dict(self) -> dict[str, Any]:
        """Return it as values of JSON, without the samples; what is UNKNOWN is null."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return values | {
            "gpus": [gpu.to_dict() for gpu in self.gpus],
            "versions": dict(self.versions),
        }
