"""What a kernel may choose from: the GPUs it was given, those that can be used, the least busy first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.model import Device, Gpu, MigInstance
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.errors import ChoiceError
from gpu_magic.selection.mask import read

if TYPE_CHECKING:
    from gpu_magic.devices.model import Inventory

__all__ = ["Allotment", "by_load", "mig_instances", "usable", "whole_gpus"]


class Allotment:
    """What a kernel was given: its inherited mask, read on this machine.

    Parameters
    ----------
    inventory
        The machine.
    inherited
        CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER as the kernel was started; without a mask, it may use all.

    """

    def __init__(self, inventory: Inventory, inherited: tuple[str | None, str | None]) -> None:
        self._inventory = inventory
        self._mask = inherited[0]
        self.reading = read(inherited[0], inventory, inherited[1])
        self.is_all = self._mask is None or self.reading.names_all

    @property
    def pool(self) -> tuple[Device, ...]:
        """All that it may use.

        Raises
        ------
        ChoiceError
            That is not known.

        """
        if self.is_all:
            return self._inventory.devices
        if self.reading.devices is UNKNOWN:
            raise ChoiceError(
                f"It is not known what this kernel was given: CUDA_VISIBLE_DEVICES={self._mask}. "
                f"{self.reading.notes[-1]} Restart it with a mask of UUIDs; --force chooses from all, "
                "whoever they were given to."
            )
        return self.reading.devices

    @property
    def sentence(self) -> str:
        """Say what was given: `it was started with CUDA_VISIBLE_DEVICES=0 (GPU 0)`."""
        value = f"with CUDA_VISIBLE_DEVICES={self._mask}" if self._mask else "with CUDA_VISIBLE_DEVICES empty"
        return f"it was started {value} ({', '.join(one.label for one in self.pool) or 'no GPU'})"

    def outside(self, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        """Return those that are not known to be inside."""
        if self.is_all:
            return ()
        known = self.reading.devices
        inside = {one.uuid for one in known} if isinstance(known, tuple) else set()
        return tuple(device for device in devices if device.uuid not in inside)

    def check_inside(self, devices: tuple[Device, ...]) -> None:
        """Check that it may use devices.

        Raises
        ------
        ChoiceError
            One of them is outside.

        """
        if outside := self.outside(devices):
            what = f"{outside[0].label} is outside what this kernel was given"
            raise ChoiceError(f"{what}: {self.sentence}; --force overrides.")

    def why_not(self, device: Device) -> str:
        """Say why a device can't be chosen; nothing where it can."""
        try:
            if isinstance(device, Gpu):
                usable(device)
            self.check_inside((device,))
        except ChoiceError as error:
            return str(error)
        return ""

    @property
    def least_busy(self) -> tuple[Device, ...]:
        """All that `auto` can pick from, the least busy first; of MIG instances, as of those, one."""
        try:
            pool = self.pool
        except ChoiceError:
            return ()
        return by_load(whole_gpus(pool)) or by_load(mig_instances(pool))[:1]


def usable(gpu: Gpu) -> Gpu:
    """Return a GPU that can be chosen as it is.

    Raises
    ------
    ChoiceError
        It does not answer, has no UUID, or is split.

    """
    if gpu.problem:
        raise ChoiceError(f"{gpu.label} can't be chosen, as it is {gpu.problem}.")
    if gpu.uuid is UNKNOWN:
        raise ChoiceError(f"{gpu.label} can't be chosen: the driver does not tell its UUID.")
    if gpu.is_split:
        there = " or ".join(part.uuid for part in gpu.mig) or "an administrator has to make one first"
        raise ChoiceError(f"{gpu.label} is split by MIG, so choose an instance of it; try {there}.")
    return gpu


def whole_gpus(pool: tuple[Device, ...]) -> tuple[Gpu, ...]:
    """Return the GPUs that can be used as a whole."""
    gpus = (gpu for gpu in pool if isinstance(gpu, Gpu))
    return tuple(gpu for gpu in gpus if not gpu.problem and not gpu.is_split and gpu.uuid is not UNKNOWN)


def mig_instances(pool: tuple[Device, ...]) -> tuple[MigInstance, ...]:
    """Return the MIG instances."""
    return tuple(one for one in pool if isinstance(one, MigInstance))


def by_load(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Sort by least memory in use, then least utilisation; what can't be read is never free, and left out."""
    readable = [device for device in devices if device.status.memory_used is not UNKNOWN]
    return tuple(sorted(readable, key=_load))


def _load(device: Device) -> tuple[int, int]:
    used, busy = device.status.memory_used, device.status.utilization
    if used is UNKNOWN:  # never: such devices are not sorted
        raise ValueError(device)
    return used, 101 if busy is UNKNOWN else busy  # an unknown utilisation sorts behind every known one
