"""How much power a GPU may draw, and what slows it down: read for the GPUs that somebody looks at closely."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_magic.devices.unknown import UNKNOWN, Unknown

__all__ = ["UNKNOWN_LIMITS", "Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What holds a GPU back.

    Parameters
    ----------
    power
        The power in watts that it may draw, as the driver enforces it.
    slowdowns
        What slows it down now, in a few words each.

    """

    power: float | Unknown = UNKNOWN
    slowdowns: tuple[str, ...] | Unknown = UNKNOWN


UNKNOWN_LIMITS = Limits()
