"""What a kernel may choose from: the devices it was given, the usable ones, and the least busy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.model import Device, Gpu, MigInstance
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.errors import ChoiceError
from gpu_magic.selection.mask import PCI, Reading, read

if TYPE_CHECKING:
    from gpu_magic.devices.model import Inventory

__all__ = [
    "Allotment",
    "check_usable",
    "mig_instances",
    "whole_gpus",
    "why_unusable",
]


class Allotment:
    """What a kernel was given: the CUDA_VISIBLE_DEVICES that it inherited, read on this machine.

    Parameters
    ----------
    inventory
        The machine.
    inherited
        CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER as the kernel was started; None: not set. Where the first
        is not set, it may use all devices.
    scheduled
        SLURM_STEP_GPUS or SLURM_JOB_GPUS: the numbers of the GPUs that Slurm has given to the process, in PCI
        bus order (Slurm's sbatch, "Output environment variables"); None: not set.

    Attributes
    ----------
    reading
        What the inherited mask means.
    is_all
        Whether it may use every device of the machine.

    """

    def __init__(
        self,
        inventory: Inventory,
        inherited: tuple[str | None, str | None],
        scheduled: str | None = None,
    ) -> None:
        self._inventory = inventory
        self._mask = inherited[0]
        self.reading = _read_given(inventory, *inherited, scheduled)
        self.is_all = self._mask is None or self.reading.names_all

    @property
    def pool(self) -> tuple[Device, ...]:
        """The devices that it may use.

        Raises
        ------
        ChoiceError
            It is not known which.

        """
        if self.is_all:
            return self._inventory.devices
        if self.reading.devices is UNKNOWN:
            raise ChoiceError(
                f"It is not known what this process was given: CUDA_VISIBLE_DEVICES={self._mask}. "
                f"{self.reading.notes[-1]} Restart it with UUIDs in CUDA_VISIBLE_DEVICES; --force chooses "
                "from all, whoever they were given to."
            )
        return self.reading.devices

    @property
    def sentence(self) -> str:
        """What was given, in words: `it was started with CUDA_VISIBLE_DEVICES=0 (GPU 0)`."""
        value = f"with CUDA_VISIBLE_DEVICES={self._mask}" if self._mask else "with CUDA_VISIBLE_DEVICES empty"
        return f"it was started {value} ({', '.join(device.label for device in self.pool) or 'no GPU'})"

    def outside(self, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        """Return those of the devices that it is not known to have been given."""
        if self.is_all:
            return ()
        given = self.reading.devices
        uuids = set() if given is UNKNOWN else {device.uuid for device in given}
        return tuple(device for device in devices if device.uuid not in uuids)

    def check_inside(self, devices: tuple[Device, ...]) -> None:
        """Check that it may use these devices.

        Raises
        ------
        ChoiceError
            One of them is outside what it was given.

        """
        if outside := self.outside(devices):
            what = f"{outside[0].label} is outside what this process was given"
            raise ChoiceError(f"{what}: {self.sentence}; --force overrides.")

    def why_not(self, device: Device) -> str:
        """Return why a device can't be chosen, as a sentence; empty where it can."""
        try:
            if isinstance(device, Gpu):
                check_usable(device)
            self.check_inside((device,))
        except ChoiceError as error:
            return str(error)
        return ""


def _read_given(inventory: Inventory, mask: str | None, order: str | None, scheduled: str | None) -> Reading:
    """Read a mask whose numbers can mean several things, where another source says which GPUs they are."""
    reading = read(mask, inventory, order)
    if reading.devices is not UNKNOWN or reading.kind != "index":
        return reading
    by_bus = read(mask, inventory, PCI)
    if by_bus.devices is UNKNOWN:
        return reading
    if mask == scheduled:
        return by_bus
    fastest, gpus = inventory.fastest_first, [gpu for gpu in by_bus.devices if isinstance(gpu, Gpu)]
    # Whichever way CUDA counts, these are the same GPUs: all of the faster kind, for example.
    if fastest is not UNKNOWN and {fastest[gpu.index].index for gpu in gpus} == {gpu.index for gpu in gpus}:
        return by_bus
    return reading


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
        there = " or ".join(instance.uuid for instance in gpu.mig)
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
