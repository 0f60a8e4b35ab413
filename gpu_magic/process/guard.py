"""The guard: whether a choice can still take effect in this process, and if not, why."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.process.drivers import State, driver
from gpu_magic.process.environment import KERNELS, program
from gpu_magic.process.visible import read_visible
from gpu_magic.process.watch import Start, cuda_watch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.devices.model import Device, Inventory, Vendor

__all__ = ["Guard", "judge_process", "label_of", "runtime_of"]

# The known errors of cuInit, and their causes (CUDA driver API, CUresult).
_ERRORS = {
    34: "the toolkit's stub is loaded instead of the driver. Remove the stubs folder from LD_LIBRARY_PATH",
    802: "the system is not ready. NVIDIA's fabric manager may not be running",
    803: "the driver and its libraries have different versions. An administrator has to reboot the machine",
    804: "the container's CUDA compatibility package does not support this GPU",
}
_SENTENCES = {
    State.ABSENT: "not started",
    State.LIVE: "not started",  # NVML also loads the driver's library
    State.FORKED: "started before this process was forked, so this process cannot use it",
    State.NO_WAY_TO_ASK: "may have started: this platform gives no way to ask",
    State.UNCLEAR: "may have started before this process was forked. If so, this process cannot use it",
}


class Guard(NamedTuple):
    """Whether this process can still change its GPUs.

    Parameters
    ----------
    state
        `absent` (the driver's library is not loaded), `live` (the library is loaded, but CUDA has not
        started), `frozen` (CUDA has started: too late), `forked` (a child that was forked after CUDA
        started), `unclear` (a child that may have been forked after CUDA started), `broken` (CUDA fails), or
        `unknown` (this platform gives no way to ask).
    start
        When gpu_magic first saw that CUDA had started, and what started it.
    devices
        The GPUs of a process in which CUDA has started, as `cuda:0`, `cuda:1`, …. If NVML does not list a
        GPU, its entry is its UUID.
    error
        The driver's error if CUDA cannot be used, as a number of the CUDA driver API. Else 0.
    vendor
        The vendor of the runtime: "amd" if the other entries are about ROCm, not CUDA.
    is_known
        If CUDA has started: whether gpu_magic knows which devices the process has.

    """

    state: State
    start: Start = Start()
    devices: tuple[Device | str, ...] = ()
    error: int = 0
    vendor: Vendor = "nvidia"
    is_known: bool = True

    @property
    def since(self) -> str:
        """When gpu_magic first saw that CUDA had started: `in cell [4]`. Empty if unknown."""
        if self.start.is_before_load:
            return "before gpu_magic was loaded"
        return "" if self.start.cells is None else f"in {_cells(self.start.cells)}"

    @property
    def by(self) -> str:
        """The import or the framework that started CUDA: `import kornia`, `PyTorch`. Empty if unknown."""
        return self.start.cause

    @property
    def runtime(self) -> str:
        """The runtime through which processes use GPUs: CUDA or ROCm."""
        return runtime_of(self.vendor)

    @property
    def can_change(self) -> bool:
        return self.state.can_change

    @property
    def known(self) -> tuple[Device, ...]:
        """The `devices` that NVML lists."""
        return tuple(device for device in self.devices if not isinstance(device, str))

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(device if isinstance(device, str) else device.identity for device in self.devices)

    def ordinals(self, devices: Sequence[Device]) -> tuple[int, ...]:
        """Return the i of `cuda:i` of each device that the process has, in the order of the devices."""
        places = {uuid: place for place, uuid in enumerate(self.uuids)}
        return tuple(places[one.identity] for one in devices if one.identity in places)

    def __repr__(self) -> str:
        return f"{self.runtime} {self.sentence}"

    @property
    def sentence(self) -> str:
        """The state, as text that follows "CUDA" or "ROCm", and whether the choice can still change."""
        is_early = self.state in (State.ABSENT, State.LIVE)
        return f"{self.status}: the choice can still change" if is_early else self.status

    @property
    def status(self) -> str:
        """The state, as text that follows "CUDA" or "ROCm"."""
        if self.state is State.FROZEN:
            return f"{self.seen}. {self.keeps}"
        if self.state is State.BROKEN:
            why = _ERRORS.get(self.error, "")
            return f"fails with error {self.error}{why and ': '}{why}"
        return _SENTENCES[self.state]

    @property
    def seen(self) -> str:
        """When CUDA started, and what started it: `started in cell [4] (import kornia)`."""
        by = f" ({self.by})" if self.by else ""
        return f"started {self.since}{by}" if self.since else f"has started{by}"

    @property
    def cause(self) -> str:
        """The cell and import that started CUDA, as a sentence: `cell [4] started CUDA (import kornia)`."""
        if self.start.cells is None:
            return f"{self.runtime} {self.seen}"
        return f"{_cells(self.start.cells)} started {self.runtime}{f' ({self.by})' if self.by else ''}"

    @property
    def keeps(self) -> str:
        """Which GPUs the process has, as a sentence: `This kernel keeps GPU 1 (cuda:0)`."""
        here = "This kernel" if program() in KERNELS else "This process"
        return f"{here} keeps {self.frozen_to}" if self.devices or not self.is_known else f"{here} has no GPU"

    @property
    def frozen_to(self) -> str:
        if not self.is_known:
            return "its GPUs, which are unknown"
        labels = (f"{label_of(device)} (cuda:{place})" for place, device in enumerate(self.devices))
        return ", ".join(labels) or "no GPU"


def _cells(numbers: tuple[int, ...]) -> str:
    """Return `cell [4]`, or `cell [4] or [5]` if another cell ran in the background."""
    return f"cell {' or '.join(f'[{one}]' for one in numbers)}" if numbers else "an unnumbered cell"


def judge_process(inventory: Inventory, state: State) -> Guard:
    """Make the guard from the state of the driver, the watch and the machine."""
    if state.can_change:
        error = driver().error if state is State.BROKEN else 0
        return Guard(state, error=error, vendor=inventory.vendor)
    asked = driver()
    if state is not State.FROZEN:
        return Guard(state, vendor=asked.vendor)
    start = cuda_watch.first or Start()
    if "amd" in (asked.vendor, inventory.vendor):  # ROCm does not report its GPUs, but its variables do
        is_same = asked.vendor == inventory.vendor
        found = read_visible(asked.started_with, inventory).devices if is_same else UNKNOWN
        known = () if found is UNKNOWN else found
        return Guard(state, start, known, vendor=asked.vendor, is_known=found is not UNKNOWN)
    there = [device for device in inventory.devices if device.uuid is not UNKNOWN]
    listed = {str(device.uuid).partition("-")[2]: device for device in there}
    return Guard(state, start, tuple(listed.get(uuid, f"GPU-{uuid}") for uuid in asked.devices()))


def runtime_of(vendor: Vendor) -> str:
    """Return the usual name of the runtime for a vendor's GPUs."""
    return "ROCm" if vendor == "amd" else "CUDA"


def label_of(device: Device | str) -> str:
    return f"{device[:12]}…" if isinstance(device, str) else device.label
