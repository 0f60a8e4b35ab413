"""Says why `auto` has picked some devices and not the others, or can't pick as many as are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.model import Device, Gpu
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.selection.ranking import Standing, standing
from gpu_magic.text import age_text, counted, listed, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["left_out", "why_these", "why_too_few", "why_unranked"]

_LONGEST = 500  # characters of a list of devices


def why_these(picked: Sequence[Device], others: Mapping[Device, str], free: int) -> str:
    """Return why some devices were picked, as a sentence.

    Parameters
    ----------
    picked
        Those.
    others
        Why each other one was not, in a few words.
    free
        How many could have been picked and are free, these included.

    """
    rest = f"; not picked: {left_out(others)}" if others else ""
    return f"{_standing_of(picked, free, is_choice=bool(others))}{rest}."


def _standing_of(picked: Sequence[Device], free: int, *, is_choice: bool) -> str:
    unknown = [device.label for device in picked if standing(device) is Standing.MEMORY_UNKNOWN]
    labels = listed(device.label for device in picked)
    if unknown:
        verb, pronoun = ("does", "it is") if len(unknown) == 1 else ("do", "they are")
        return f"{listed(unknown)} {verb} not report memory in use, so {pronoun} not known to be free"
    if all(standing(device) is Standing.FREE for device in picked):
        return f"{labels} {'is' if len(picked) == 1 else 'are'} free"
    if not any(standing(device) is Standing.BUSY for device in picked):
        return f"{labels} {'is' if len(picked) == 1 else 'are'} not known to be free, and nothing shows use"
    thing = "GPU" if isinstance(picked[0], Gpu) else "MIG instance"
    there = f"Only {counted(free, thing)} {'is' if free == 1 else 'are'}" if free else f"No {thing} is"
    have = "has" if len(picked) == 1 else "have"
    return f"{there} free: {labels} {have} the most free memory" if is_choice else f"{there} free"


def left_out(others: Mapping[Device, str]) -> str:
    """Return devices behind one another, those of one reason together: `GPU 0 (in use by maria)`."""
    groups: dict[str, list[str]] = {}
    for device, why in others.items():
        groups.setdefault(why, []).append(device.label)
    return shortened(", ".join(f"{listed(labels)} ({why})" for why, labels in groups.items()), _LONGEST)


def why_unranked(device: Device, picked: Iterable[Device]) -> str:
    """Return in a few words why a device that could have been picked was not."""
    if device.is_busy is True:
        return used_by(device)
    if standing(device) is not Standing.FREE:
        return "not known to be free"
    frees = [one.status.memory_free for one in picked]
    here = device.status.memory_free
    has_less = here is not UNKNOWN and all(free is not UNKNOWN and free > here for free in frees)
    return "free, with less memory" if has_less else "free, too"


def used_by(device: Device, *, is_ours_named: bool = True) -> str:
    """Return who uses a device, and for how long, as far as it is known: `in use by maria for 3 h`."""
    there = () if device.status.users is UNKNOWN else device.status.users
    users = [process for process in there if is_ours_named or not process.mine]
    owners = {"this kernel" if one.mine else "you" if one.is_own else one.owner for one in users}
    known = sorted(owner for owner in owners if owner is not UNKNOWN)
    ages = [one.age for one in users if one.age is not UNKNOWN and not one.mine]
    how_long = f" for {age_text(max(ages))}" if ages else ""
    return f"in use by {listed(known)}{how_long}" if known else f"in use{how_long}"


def why_too_few(asked: str, count: int, available: Sequence[Device], others: Mapping[Device, str]) -> str:
    """Return why not as many devices can be picked as are asked for, as a sentence."""
    if available:
        there = f"only {len(available)} can be picked; try auto:{len(available)}"
    else:
        there = "none can be picked"
    rest = f"; not {left_out(others)}" if others else ""
    return f"{asked} asks for {count}, and {there}{rest}."
