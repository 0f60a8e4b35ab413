"""The environment variables that say which GPUs a process sees, of each vendor."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gpu_magic.devices.model import Vendor

__all__ = ["HIP", "MASK", "NAMES", "ORDER", "ROCR", "Variables", "names_of"]


class Variables(NamedTuple):
    """Their values; None: not set.

    Parameters
    ----------
    mask, order
        CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, which CUDA's driver reads once, in cuInit.
    hip, rocr
        HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES, which ROCm reads once: see `selection.hip`.

    """

    mask: str | None = None
    order: str | None = None
    hip: str | None = None
    rocr: str | None = None

    @property
    def name_gpus(self) -> bool:
        """Whether one of them says which GPUs are seen: a choice, a scheduler or somebody else has set it."""
        return any(value is not None for value in self._replace(order=None))

    def named(self, names: tuple[str, ...]) -> dict[str, str | None]:
        """Return some of them, by their names."""
        values = dict(zip(NAMES, self, strict=True))
        return {name: values[name] for name in names}


NAMES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
MASK, ORDER, HIP, ROCR = NAMES

# What a choice sets is the first of each.
_OF_VENDOR: dict[Vendor, tuple[str, ...]] = {"nvidia": (MASK, ORDER), "amd": (HIP, ROCR, MASK)}


def names_of(*vendors: Vendor) -> tuple[str, ...]:
    """Return the variables that say which GPUs of these vendors are seen; the first is what a choice sets."""
    return tuple(dict.fromkeys(name for vendor in vendors for name in _OF_VENDOR[vendor]))
