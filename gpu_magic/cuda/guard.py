"""What the guard says: whether a choice can still take effect, and if not, why and what works instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_magic.cuda.driver import State
from gpu_magic.devices.model import Gpu
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpu_magic.cuda.frozen import Probe, Sighting
    from gpu_magic.devices.model import Device, Inventory

__all__ = ["Guard", "judge"]


@dataclass(frozen=True, slots=True, repr=False)
class Guard:
    """Whether this process can still change its GPUs.

    Parameters
    ----------
    state
        Absent, live, frozen, forked or unknown.
    since
        When CUDA was first seen to be initialised: `in cell [4]`; empty where it was not.
    by
        Through what: `import kornia`, `PyTorch`; empty where it can't be told.
    devices
        What a frozen process has, as `cuda:0`, `cuda:1`, …; a bare UUID for one that NVML does not list.

    """

    state: State
    since: str = ""
    by: str = ""
    devices: tuple[Device | str, ...] = ()

    @property
    def can_change(self) -> bool:
        return self.state.can_change

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(device if isinstance(device, str) else str(device.uuid) for device in self.devices)

    def ordinals(self, devices: Sequence[Device]) -> tuple[int, ...]:
        """Return the i of `cuda:i` of each device that a frozen process has, in the order of the devices."""
        places = {uuid: place for place, uuid in enumerate(self.uuids)}
        return tuple(places[str(one.uuid)] for one in devices if str(one.uuid) in places)

    def __repr__(self) -> str:
        return f"CUDA {self.sentence}"

    @property
    def sentence(self) -> str:
        """Say it in one sentence, without its subject, CUDA."""
        if self.state is State.FROZEN:
            return f"{self.seen}; this process is frozen to {self.frozen_to}"
        return {
            State.ABSENT: "not started: the choice can still change",
            State.LIVE: "loaded and not started: the choice can still change",
            State.FORKED: "was started before this process was forked off, so it can't be used here at all",
            State.UNKNOWN: "can't be asked on this platform whether it was started",
        }[self.state]

    @property
    def seen(self) -> str:
        """Say since when and by what, as far as it is known: `initialised in cell [4] by import kornia`."""
        return " ".join(["initialised", *filter(None, [self.since, self.by and f"by {self.by}"])])

    @property
    def frozen_to(self) -> str:
        if not self.devices:
            return "no GPU"
        return ", ".join(f"{_label(device)} (cuda:{place})" for place, device in enumerate(self.devices))

    def refusal(
        self, wanted: Sequence[Device], typed: str, lines: Sequence[tuple[str, Callable[[int], str]]]
    ) -> str:
        """Explain why a choice was not made, and what works instead: a few lines.

        Parameters
        ----------
        wanted
            The devices that were asked for.
        typed
            What would choose them in a fresh kernel: `%gpus 1,3`; empty for what it has from the start.
        lines
            For each imported framework, its name and what to type to work on `cuda:i`.

        """
        if self.state is State.FORKED:
            return (
                f"CUDA {self.sentence}. Nothing was changed.\n"
                'Start workers with the "spawn" method, or fork before the first use of CUDA.'
            )
        why = f"CUDA was {self.seen}, and this process is frozen to {self.frozen_to}."
        if typed:
            wish = (
                f"To have {listed(device.label for device in wanted)} alone" if wanted else "To have no GPU"
            )
            again = f"restart the kernel and run {typed} before anything starts CUDA"
            restart = f"{wish}: {typed} --restart, or {again}."
        else:
            restart = "To go back to what the kernel was started with: restart it."
        return "\n".join([f"{why} Nothing was changed.", *self._inside(wanted, lines), restart])

    def _inside(
        self, wanted: Sequence[Device], lines: Sequence[tuple[str, Callable[[int], str]]]
    ) -> list[str]:
        """Say which of the wanted GPUs it has already, and how to work on it."""
        place = min(self.ordinals(wanted), default=None)
        if place is None:
            return []
        device = self.devices[place]
        number = device.index if isinstance(device, Gpu) else self.uuids[place]
        has = f"{_label(self.devices[place])} is here already, as cuda:{place}."
        ways = [f"  {name}: {line_for(place)}" for name, line_for in lines]
        for_all = f"  any of them: %%on_gpu {place} for a cell, %gpus {number} --in-process from here on"
        return [f"{has} To work on it without a restart:", *ways, for_all] if ways else [has]


def judge(probe: Probe, first: Sighting | None, inventory: Inventory) -> Guard:
    """Put the driver's answer, the watch's and the machine together.

    The driver gives UUIDs without "GPU-" or "MIG-"; the inventory knows which is which.
    """
    if probe.state is not State.FROZEN:
        return Guard(probe.state)
    known = {str(device.uuid).partition("-")[2]: device for device in inventory.devices}
    return Guard(
        probe.state,
        since=first.when if first else "",
        by=first.by if first else "",
        devices=tuple(known.get(bare, f"GPU-{bare}") for bare in probe.devices),
    )


def _label(device: Device | str) -> str:
    return f"{device[:12]}…" if isinstance(device, str) else device.label
