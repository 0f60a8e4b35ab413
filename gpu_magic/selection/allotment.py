"""What a kernel may choose from: the devices it was given, the usable ones, and the least busy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.model import Device, Gpu, MigInstance, parts
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.errors import ChoiceError
from gpu_magic.selection.given import is_within, settle
from gpu_magic.selection.grant import Grant
from gpu_magic.selection.seen import in_force
from gpu_magic.selection.visible import Variables

if TYPE_CHECKING:
    from gpu_magic.devices.inventory import Inventory

__all__ = [
    "Allotment",
    "check_usable",
    "mig_instances",
    "whole_gpus",
    "why_unusable",
]


_NOBODY = Grant()


class Allotment:
    """What a kernel was given: the variables that it inherited, and what a scheduler says of it.

    Parameters
    ----------
    inventory
        The machine.
    inherited
        The values of `Variables` as the kernel was started; None: not set. Where none of them hides a GPU of
        this machine, it may use all devices, or those that a scheduler lists.
    grant
        What its scheduler says.

    Attributes
    ----------
    reading
        What the inherited mask means.
    devices
        The devices that it may use; UNKNOWN where that can't be known.
    is_all
        Whether it may use every device of the machine.

    """

    def __init__(
        self, inventory: Inventory, inherited: tuple[str | None, ...], grant: Grant = _NOBODY
    ) -> None:
        self.inventory = inventory
        self._in_force, self._grant = in_force(Variables(*inherited), inventory), grant
        self._given = settle(inventory, Variables(*inherited), grant)
        self.reading, self.devices, self.is_all = self._given.reading, self._given.devices, self._given.is_all

    @property
    def pool(self) -> tuple[Device, ...]:
        """The devices that it may use.

        Raises
        ------
        ChoiceError
            It is not known which.

        """
        if self.devices is UNKNOWN:
            value = f"{self._values}. " if self._in_force else ""
            raise ChoiceError(
                f"It is not known what this process was given: {value}{self._given.why} "
                f"Restart it with UUIDs in {next(iter(self._in_force), 'CUDA_VISIBLE_DEVICES')}"
                "; --force chooses from all, whoever they were given to."
            )
        return self.devices

    @property
    def text(self) -> str:
        """Who gave which: `allotted by Slurm job 123: GPUs 2, 5`; empty where nobody is known."""
        grant, granted = self._grant, self._given.granted
        if not grant.by or (grant.count and grant.count != len(parts(self.inventory.devices))):
            return ""
        which = "which GPUs is not known" if granted is UNKNOWN else _numbers(granted)
        return f"allotted by {grant.by}: {which}"

    @property
    def sentence(self) -> str:
        """What was given, in words: `it was started with CUDA_VISIBLE_DEVICES=0 (GPU 0)`."""
        there = ", ".join(device.label for device in self.pool) or "no GPU"
        return f"it was started with {self._values} ({there})"

    @property
    def _values(self) -> str:
        values = self._in_force.items()
        return " and ".join(f"{name}={value}" if value else f"{name} empty" for name, value in values)

    @property
    def override(self) -> str:
        """How to choose others all the same, as the end of a sentence."""
        return f"{self.unset}; --force overrides"

    @property
    def unset(self) -> str:
        """What shows GPUs that a variable hides, all of them, as the end of a sentence; else empty."""
        if self.devices != () or self._grant.by or not self._in_force:
            return ""
        return f"; unset {' '.join(self._in_force)} in the shell, before it is started, shows them"

    def outside(self, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        """Return those of the devices that it is not known to have been given."""
        if self.is_all:
            return ()
        uuids = set() if self.devices is UNKNOWN else {device.uuid for device in self.devices}
        return tuple(device for device in devices if device.uuid not in uuids)

    def check_inside(self, devices: tuple[Device, ...]) -> None:
        """Check that it may use these devices.

        Raises
        ------
        ChoiceError
            One of them is outside what it was given.

        """
        if outside := self.outside(devices):
            given = self._what_was_given(outside[0])
            raise ChoiceError(f"{outside[0].label} is outside {given}{self.override}.")

    def _what_was_given(self, device: Device) -> str:
        """Return what a device is outside of: what the scheduler gave, or what is left of it."""
        granted = self._given.granted
        if granted is UNKNOWN or not self._grant.by or is_within((device,), granted):
            return f"what this process was given: {self.sentence}"
        return f"what {self._grant.by} allotted to this process ({_numbers(granted)})"

    def why_not(self, device: Device) -> str:
        """Return why a device can't be chosen, as a sentence; empty where it can."""
        try:
            if isinstance(device, Gpu):
                check_usable(device)
            self.check_inside((device,))
        except ChoiceError as error:
            return str(error)
        return ""


def _numbers(devices: tuple[Device, ...]) -> str:
    """Return `GPUs 2, 5`, or `GPU 2:1` for a MIG instance."""
    names = [device.number_text for device in parts(devices)]
    return f"GPU{'s' if names[1:] else ''} {', '.join(names)}" if names else "no GPU"


def check_usable(gpu: Gpu) -> None:
    """Check that a GPU can be chosen as a whole.

    Raises
    ------
    ChoiceError
        It does not answer, has no UUID, is split by MIG, or its compute mode lets no process use it.

    """
    if gpu.problem:
        raise ChoiceError(f"{gpu.label} can't be chosen, as it is {gpu.problem}.")
    if gpu.uuid is UNKNOWN:
        raise ChoiceError(f"{gpu.label} can't be chosen: the driver does not report its UUID.")
    if gpu.is_split:
        there = " or ".join(instance.number_text for instance in gpu.mig)
        there = there or "an administrator has to make one first"
        raise ChoiceError(f"{gpu.label} is split by MIG, so choose an instance of it; try {there}.")
    if gpu.is_prohibited:
        raise ChoiceError(
            f"{gpu.label} can't be chosen, as {why_unusable(gpu)}: an administrator can change that, "
            f"nvidia-smi -i {gpu.index} -c DEFAULT."
        )


def whole_gpus(pool: tuple[Device, ...]) -> tuple[Gpu, ...]:
    """Return the GPUs of a pool that can be chosen as a whole."""
    return tuple(gpu for gpu in pool if isinstance(gpu, Gpu) and not why_unusable(gpu))


def why_unusable(gpu: Gpu) -> str:
    """Return why a GPU can't be chosen as a whole, as a clause; empty where it can."""
    if gpu.problem:
        return f"it is {gpu.problem}"
    if gpu.is_split:
        return "it is split by MIG"
    if gpu.is_prohibited:
        return "it is in compute mode Prohibited, in which no process can use it"
    return "its UUID is unknown" if gpu.uuid is UNKNOWN else ""


def mig_instances(pool: tuple[Device, ...]) -> tuple[MigInstance, ...]:
    """Return the MIG instances of a pool."""
    return tuple(device for device in pool if isinstance(device, MigInstance))
