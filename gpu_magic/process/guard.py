"""What the guard says: whether a choice can still take effect, and if not, why and what works instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.process.state import State
from gpu_magic.process.visible import read_hip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.devices.model import Device, Vendor
    from gpu_magic.process.cause import Sighting
    from gpu_magic.process.mask import Variables

__all__ = ["Guard", "judge", "judge_rocm", "label_of", "runtime_of"]


@dataclass(frozen=True, slots=True)
class Guard:
    """Whether this process can still change its GPUs.

    Parameters
    ----------
    state
        `absent` (the driver's library is not loaded), `live` (it is, and not initialized), `frozen`
        (initialized: too late), `forked` or `unclear` (in a child that was forked after that, or may have
        been), `broken` (CUDA can't be used), or `unknown` (this platform gives no way to ask).
    since
        When CUDA was first seen to be initialized: `in cell [4]`; empty where it was not.
    by
        Through what: `import kornia`, `PyTorch`; empty where it can't be told.
    devices
        What a frozen process has, as `cuda:0`, `cuda:1`, …; a bare UUID for one that NVML does not list.
    error
        What the driver answers where CUDA can't be used: a number of the CUDA driver API; else 0.
    vendor
        Whose GPUs it is about: for AMD's, read ROCm for CUDA here.
    is_known
        Whether it is known which devices a frozen process has.

    """

    state: State
    since: str = ""
    by: str = ""
    devices: tuple[Device | str, ...] = ()
    error: int = 0
    vendor: Vendor = "nvidia"
    is_known: bool = True

    @property
    def runtime(self) -> str:
        """What GPUs are used through, as people call it: CUDA, or ROCm."""
        return runtime_of(self.vendor)

    @property
    def can_change(self) -> bool:
        return self.state.can_change

    @property
    def known(self) -> tuple[Device, ...]:
        """Those of `devices` that NVML lists."""
        return tuple(device for device in self.devices if not isinstance(device, str))

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(device if isinstance(device, str) else str(device.uuid) for device in self.devices)

    def ordinals(self, devices: Sequence[Device]) -> tuple[int, ...]:
        """Return the i of `cuda:i` of each device that a frozen process has, in the order of the devices."""
        places = {uuid: place for place, uuid in enumerate(self.uuids)}
        return tuple(places[str(one.uuid)] for one in devices if str(one.uuid) in places)

    def __repr__(self) -> str:
        return f"{self.runtime} {self.sentence}"

    @property
    def sentence(self) -> str:
        """Say it in one sentence, without its subject, the runtime."""
        if self.state is State.FROZEN:
            return f"{self.seen}; this process keeps {self.frozen_to}"
        return {
            State.ABSENT: "not started: the choice can still change",
            State.LIVE: "loaded and not started: the choice can still change",
            State.FORKED: "was started before this process was forked off, so it can't be used here at all",
            State.UNKNOWN: "can't be asked on this platform whether it was started",
            State.UNCLEAR: (
                "may have been started before this process was forked off, and then it can't be used here: "
                "that is not known"
            ),
            State.BROKEN: f"can't be used here: {_explain(self.error)}",
        }[self.state]

    @property
    def seen(self) -> str:
        """Say since when and by what, as far as it is known: `initialized in cell [4] by import kornia`."""
        return " ".join(["initialized", *filter(None, [self.since, self.by and f"by {self.by}"])])

    @property
    def frozen_to(self) -> str:
        if not self.is_known:
            return "the GPUs that it had then, and which these are can't be known"
        if not self.devices:
            return "no GPU"
        return ", ".join(f"{label_of(device)} (cuda:{place})" for place, device in enumerate(self.devices))


def judge(
    state: State, uuids: Sequence[str], first: Sighting | None, inventory: Inventory, error: int = 0
) -> Guard:
    """Return what the driver's answers, the watch and the machine amount to.

    Parameters
    ----------
    state, uuids
        What `state.probe` and the driver's `devices` return. The UUIDs are without "GPU-" or "MIG-"; the
        inventory knows which is which.
    first
        When CUDA was first seen to be initialized.
    inventory
        The machine.
    error
        The driver's `error`.

    """
    if state is not State.FROZEN:
        return Guard(state, error=error)
    known = {str(device.uuid).partition("-")[2]: device for device in inventory.devices}
    return Guard(
        state,
        since=first.when if first else "",
        by=first.by if first else "",
        devices=tuple(known.get(uuid, f"GPU-{uuid}") for uuid in uuids),
    )


def judge_rocm(state: State, began_with: Variables, first: Sighting | None, inventory: Inventory) -> Guard:
    """Return what the same amounts to where the process uses AMD's ROCm.

    Parameters
    ----------
    state, first, inventory
        As for `judge`.
    began_with
        The variables when ROCm was first seen to be initialized: it does not tell what it has read.

    """
    if state is not State.FROZEN:
        return Guard(state, vendor="amd")
    amd = inventory.of_vendor("amd")
    devices = read_hip(began_with, amd).devices if amd.vendors == ("amd",) else UNKNOWN
    return Guard(
        state,
        since=first.when if first else "",
        by=first.by if first else "",
        devices=() if devices is UNKNOWN else devices,
        vendor="amd",
        is_known=devices is not UNKNOWN,
    )


def runtime_of(vendor: Vendor) -> str:
    """Return what a vendor's GPUs are used through, as people call it."""
    return "ROCm" if vendor == "amd" else "CUDA"


# What the errors that cuInit is known to end with mean (CUDA driver API, CUresult).
_ERRORS = {
    34: "the library that is loaded is the CUDA toolkit's stub and not the driver; remove its stubs folder "
    "from LD_LIBRARY_PATH",
    802: "the driver says that the system is not ready yet; NVIDIA's fabric manager may not be running",
    803: "the driver and its libraries are of different versions; an administrator has to reboot the machine",
    804: "the container's CUDA compatibility package does not support this GPU",
}


def _explain(error: int) -> str:
    return f"{_ERRORS.get(error, 'the driver answers with an error')} (CUDA error {error})"


def label_of(device: Device | str) -> str:
    return f"{device[:12]}…" if isinstance(device, str) else device.label
