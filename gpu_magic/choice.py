"""What became of a choice, as data and as the lines that are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_magic.devices.model import UNKNOWN, Device
from gpu_magic.devices.rows import bytes_text, who_uses
from gpu_magic.text import printable

if TYPE_CHECKING:
    from gpu_magic.selection.choose import Selection

__all__ = ["Choice"]

_TEN_GIB = 10 << 30


@dataclass(frozen=True, slots=True, repr=False)
class Choice:
    """The answer to `%gpus 1,3`.

    Parameters
    ----------
    selection
        The devices, in the order of `cuda:i`, and the mask that names them.
    is_applied
        Whether this process has them: now set, or had before.
    is_dry_run
        Whether only the answer was wanted.
    is_reset
        Whether it goes back to what the kernel was started with.
    refusal
        Why it can't take effect in this process, and what works instead; empty where it can.
    is_simulated
        Whether these GPUs do not exist.
    memory
        What frameworks are told of memory, as a sentence; empty for nothing.
    ordinals
        The i of each device's `cuda:i`, where that is not its place in the selection.
    told
        What became of telling the frameworks, within a process that can't change its mask: a sentence each.

    """

    selection: Selection
    is_applied: bool
    is_dry_run: bool = False
    is_reset: bool = False
    refusal: str = ""
    is_simulated: bool = False
    memory: str = ""
    ordinals: tuple[int, ...] | None = None
    told: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices; none where a reset led to a mask that can't be read."""
        return () if self.selection.devices is UNKNOWN else self.selection.devices

    @property
    def mask(self) -> str | None:
        return self.selection.mask

    @property
    def order(self) -> str | None:
        return self.selection.order

    def __repr__(self) -> str:
        if self.refusal:
            return "Not applied: this process keeps the GPUs that it has."
        lines = [f"As the kernel was started: {self.settings}."] if self.is_reset else []
        if not self.is_reset or self.mask is not None:  # an unset mask is every GPU as it comes: no choice
            lines += self._map()
        if self.ordinals is not None:
            lines = [*self._within(), *self.told]
        if self.memory:
            lines.append(self.memory)
        if self.is_dry_run and self.ordinals is not None:
            lines.append("Nothing was changed.")
        elif self.is_dry_run:
            lines.append(
                "Nothing was changed."
                if self.is_reset
                else f"Nothing was changed; it would be {self.settings}."
            )
        return "\n".join(map(printable, lines))

    def _within(self) -> list[str]:
        pairs = zip(self.ordinals or (), self.devices, strict=True)
        lines = [self._describe(place, device) for place, device in pairs]
        if not self.told and not self.is_dry_run:
            lines.append("No framework is imported that could be told." if lines else "Nothing was narrowed.")
        return lines

    def _map(self) -> list[str]:
        lines = [self._describe(place, device) for place, device in enumerate(self.devices)]
        if self.selection.devices == ():
            lines = ["No GPU is visible to CUDA: frameworks run on the CPU."]
        return [
            *lines,
            *(line for device in self.devices for line in _others_on(device)),
            *self.selection.notes,
        ]

    @property
    def settings(self) -> str:
        """The two variables, as text."""
        pairs = {"CUDA_VISIBLE_DEVICES": self.mask, "CUDA_DEVICE_ORDER": self.order}
        return ", ".join(
            f"{name}={value}" if value is not None else f"{name} not set" for name, value in pairs.items()
        )

    def _describe(self, place: int, device: Device) -> str:
        name = "name unknown" if device.name is UNKNOWN else device.name
        mark = "SIMULATED " if self.is_simulated else ""
        return f"cuda:{place} = {device.label} ({mark}{name}, {_free(device)})"


def _free(device: Device) -> str:
    free = device.status.memory_free
    if free is UNKNOWN:
        return "free memory unknown"
    return f"{free / (1 << 30):.0f} GiB free" if free >= _TEN_GIB else f"{bytes_text(free)} free"


def _others_on(device: Device) -> list[str]:
    """Name the other people and programs on a chosen device."""
    status = device.status
    others = (
        [] if status.processes is UNKNOWN else [process for process in status.processes if not process.mine]
    )
    if others:
        mine_apart = type(status)(processes=tuple(others))
        return [f"{device.label} is in use by {line}" for line in who_uses(mine_apart)]
    is_seen = status.processes is not UNKNOWN and len(status.processes) > 0  # all of them this kernel's own
    if device.shows_use is True and not is_seen:
        return [f"{device.label} is in use, by whom can't be seen from here"]
    return []
