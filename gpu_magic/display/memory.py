"""Where memory is, and what was freed, as the API returns it and `%where` and `%gpu_free` show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Self

from gpu_magic.text import listed, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpu_magic.moving.free import FreedMemory
    from gpu_magic.placement.holdings import DeviceMemory
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["Devices", "Freed", "Where", "unfinished_text", "where_lines"]

_MAX_NAMES = 10


class Devices(Mapping[str, int]):
    """Bytes by device: `{"cuda:0": 4000, "cpu": 400}`. Shows itself with the physical GPUs.

    Parameters
    ----------
    memory
        The memory on each device.
    labels
        What to show for each device: `cuda:0 = GPU 1 (NVIDIA A100 80GB)`.

    """

    def __init__(self, memory: Mapping[LogicalDevice | str, DeviceMemory], labels: Mapping[str, str]) -> None:
        self._memory = dict(sorted((str(device), on_device) for device, on_device in memory.items()))
        self._labels = labels

    def __getitem__(self, name: str) -> int:
        return self._memory[name].nbytes

    def __iter__(self) -> Iterator[str]:
        return iter(self._memory)

    def __len__(self) -> int:
        return len(self._memory)

    @property
    def lines(self) -> list[str]:
        """One line for each device: `cuda:0 = GPU 1 (NVIDIA A100 80GB): 1.2 GiB in 148 arrays`."""
        return [
            f"{self._labels[name]}: {size_text(memory.nbytes)}"
            f"{f' in {memory.arrays} arrays' if memory.arrays > 1 else ''}"
            for name, memory in self._memory.items()
        ]

    def __repr__(self) -> str:
        return "\n".join(self.lines) or "No arrays."


class Freed(NamedTuple):
    """What was in use on each GPU, before and after, and what holds the rest. Shows itself as text.

    Parameters
    ----------
    before, after
        Bytes that this process has of each GPU, by what it is called here (`"cuda:0"`): the driver's figure,
        else the frameworks' own.
    labels
        Each with its physical GPU: `cuda:0 = GPU 1 (NVIDIA A100 80GB)`.
    notes
        What a framework does not give back.
    dropped
        The outputs (`"Out[3]"`) and the traceback that were dropped, and the bytes that each held on GPUs;
        with `dry_run` those that would be.
    held
        The variables that hold memory on GPUs, and how many bytes.
    unnamed
        Bytes that the frameworks count on GPUs and no variable leads to.
    dry_run
        Whether nothing was freed.
    unfinished
        The variables that hold more than was looked at.

    """

    before: Mapping[str, int]
    after: Mapping[str, int]
    labels: Mapping[str, str]
    notes: tuple[str, ...]
    dropped: Mapping[str, int] = {}
    held: Mapping[str, int] = {}
    unnamed: int = 0
    dry_run: bool = False
    unfinished: Sequence[str] = ()

    @classmethod
    def of(cls, freed: FreedMemory) -> Self:
        """Return the same facts, which show themselves."""
        return cls(*freed)

    def __repr__(self) -> str:
        dropped = ", ".join(f"{name} ({size_text(size)})" for name, size in self.dropped.items())
        if self.dry_run:
            lines = [f"Would drop {dropped}." if dropped else "No output and no traceback holds GPU memory."]
        else:
            lines = [f"Dropped {dropped}."] if dropped else []
            lines += self._usage_lines()
        if self.held:
            lines.append(_held_text(self.held))
        if self.unnamed:
            lines.append(
                f"{size_text(self.unnamed)} more that no variable was seen to hold: the graph of a loss, for "
                "example, or another library."
            )
        if self.unfinished:
            lines.append(unfinished_text(self.unfinished))
        return "\n".join(lines)

    def _usage_lines(self) -> list[str]:
        used = [name for name in self.before if self.before[name] or self.after[name]]
        if not used:
            return ["This process has no memory on a GPU."]
        lines = [
            f"{self.labels[name]}: {size_text(self.before[name])} → {size_text(self.after[name])} in use"
            for name in used
        ]
        return [*lines, *self.notes]


class Where(NamedTuple):
    """Where variables live. Shows itself as text.

    Parameters
    ----------
    found
        Their memory, by their names.
    unfinished
        Those that hold more than was looked at.

    """

    found: Mapping[str, Devices]
    unfinished: Sequence[str] = ()

    def __repr__(self) -> str:
        nothing = "No variable here holds arrays of a framework that is imported."
        lines = where_lines(self.found) or [nothing]
        return "\n".join([*lines, unfinished_text(self.unfinished)] if self.unfinished else lines)


def where_lines(variables: Mapping[str, Devices]) -> list[str]:
    """Return a line for each variable and each device that it is on, the names in a column."""
    width = max(map(len, variables), default=0)
    return [
        f"{name if index == 0 else '':{width}}  {line}"
        for name, devices in variables.items()
        for index, line in enumerate(devices.lines or ["no arrays"])
    ]


def unfinished_text(names: Sequence[str]) -> str:
    """Say which variables hold more than was looked at."""
    first = names[:_MAX_NAMES]
    more = [f"{len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else []
    return f"Not looked at in full, as that would take too long: {listed([*first, *more])}."


def _held_text(held: Mapping[str, int]) -> str:
    """Return which variables hold memory on GPUs, the largest first."""
    names = sorted(held, key=lambda name: -held[name])
    named = [f"{name} ({size_text(held[name])})" for name in names[:_MAX_NAMES]]
    more = [f"{len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else []
    return f"Still held by {', '.join([*named, *more])}."
