"""What became of a choice, as `gpu_magic.choose` returns it and `%gpus` prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.process_names import ProcessNames
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.display.refusal import refusal_text
from gpu_magic.display.rows import claims_on
from gpu_magic.process.guard import runtime_of
from gpu_magic.process.outcome import Applied, Narrowed, Outcome, Refused
from gpu_magic.restart.saved_choice import NOT_APPLIED
from gpu_magic.selection.visible import HIP, MASK
from gpu_magic.text import GIB, TIB, bytes_text, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.devices.model import Device
    from gpu_magic.selection.select import Selection

__all__ = ["Choice", "others_on", "resumed_text", "warnings_of"]


class Choice:
    """The answer to `%gpus 1,3`. It shows itself as the lines that `%gpus` prints.

    Parameters
    ----------
    outcome
        What became of it.
    """

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices, in the order of `cuda:0`, `cuda:1`, …; none where a reset can't be read."""
        return self._outcome.devices

    @property
    def mask(self) -> str | None:
        """The value of CUDA_VISIBLE_DEVICES (AMD's: HIP_VISIBLE_DEVICES) that names them; None: not set."""
        return self._outcome.selection.mask

    @property
    def order(self) -> str | None:
        """The value of CUDA_DEVICE_ORDER that goes with it; None: not set."""
        return self._outcome.selection.order

    @property
    def ordinals(self) -> tuple[int, ...] | None:
        """The i of each device's `cuda:i`, where that is not its position among `devices`; else None."""
        return self._outcome.ordinals if isinstance(self._outcome, Narrowed) else None

    @property
    def is_applied(self) -> bool:
        """Whether this process has them: now set, or had before."""
        if isinstance(self._outcome, Applied):
            return self._outcome.is_applied
        return isinstance(self._outcome, Narrowed) and not self._outcome.is_dry_run

    @property
    def is_dry_run(self) -> bool:
        """Whether only the answer was wanted."""
        return self._outcome.is_dry_run

    @property
    def refusal(self) -> str:
        """Why it can't take effect in this process, and what works instead; empty where it can."""
        return refusal_text(self._outcome) if isinstance(self._outcome, Refused) else ""

    def __repr__(self) -> str:
        return "\n".join(map(printable, self._lines()))

    def _lines(self) -> Iterator[str]:
        outcome = self._outcome
        if isinstance(outcome, Refused):
            yield "Not applied: this process keeps the GPUs that it has."
        elif isinstance(outcome, Narrowed):
            yield from _narrowed(outcome)
        else:
            yield from _applied(outcome)


def resumed_text(outcome: Applied | Refused) -> str:
    """Say what became of a choice that was saved before a restart."""
    if isinstance(outcome, Refused):
        return f"{NOT_APPLIED}. {refusal_text(outcome)}"
    return f"As chosen before the restart:\n{Choice(outcome)}"


def warnings_of(outcome: Applied) -> list[str]:
    """Return those of the lines of a choice that warn: who else uses the GPUs, and what is odd about them."""
    return [printable(line) for line in _warnings(outcome)]


def _warnings(outcome: Applied) -> Iterator[str]:
    for device in outcome.devices:
        yield from others_on(device)
    yield from outcome.selection.notes


def _applied(outcome: Applied) -> Iterator[str]:
    selection = outcome.selection
    if outcome.is_reset:
        yield f"As this process was started: {_settings(outcome)}."
    is_set = any(value is not None for value in selection.variables.values())
    if not outcome.is_reset or is_set:  # without any, it is every GPU as it comes: no choice
        if selection.devices == ():
            yield f"No GPU is visible to {_runtimes(selection)}: frameworks run on the CPU."
        yield from _map(outcome, range(len(outcome.devices)))
        yield from _warnings(outcome)
    if outcome.memory:
        yield outcome.memory
    if outcome.is_dry_run:
        yield (
            "Nothing was changed."
            if outcome.is_reset
            else f"Nothing was changed; it would be {_settings(outcome)}."
        )


def _runtimes(selection: Selection) -> str:
    """Return what a selection hides GPUs from: CUDA, ROCm, or both."""
    hides_both = selection.variables.get(MASK) is not None and selection.variables.get(HIP) is not None
    return "CUDA or ROCm" if hides_both else runtime_of(selection.vendor)


def _narrowed(outcome: Narrowed) -> Iterator[str]:
    yield from _map(outcome, outcome.ordinals)
    yield from outcome.results
    if outcome.is_dry_run:
        yield "Nothing was changed."
    elif not outcome.results:
        why = "no framework is imported; import it first, and run this again"
        yield f"Nothing was changed: {why if outcome.devices else 'no framework uses fewer GPUs'}."


def _settings(outcome: Applied) -> str:
    """Return the variables as text."""
    pairs = outcome.selection.variables.items()
    return ", ".join(f"{name} not set" if value is None else f"{name}={value}" for name, value in pairs)


def _map(outcome: Applied | Narrowed, ordinals: range | tuple[int, ...]) -> Iterator[str]:
    mark = "SIMULATED " if outcome.is_simulated else ""
    for ordinal, device in zip(ordinals, outcome.devices, strict=True):
        name = "name unknown" if device.name is UNKNOWN else device.name
        yield f"cuda:{ordinal} = {device.label} ({mark}{name}, {_free(device)})"


def _free(device: Device) -> str:
    free = device.status.memory_free
    if free is UNKNOWN:
        return "free memory unknown"
    is_round = 10 * GIB <= free < TIB
    return f"{free / GIB:.0f} GiB free" if is_round else f"{bytes_text(free)} free"


def others_on(device: Device) -> Iterator[str]:
    """Name the other people and programs on a chosen device, a sentence each without its full stop."""
    users = () if device.status.users is UNKNOWN else device.status.users
    others = [process for process in users if not process.mine]
    for line in map(ProcessNames(others).line, others):
        yield f"{device.label} is in use by {line}"
    if not users and device.is_busy is True:
        yield f"{device.label} is in use, by whom can't be seen from here"
    for line in claims_on(device):
        yield f"{device.label} is {line}"
