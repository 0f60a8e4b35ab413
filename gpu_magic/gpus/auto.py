"""Picks the devices for `auto:2`."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING

from gpu_magic.devices.model import UNKNOWN, Device, Gpu, Unknown
from gpu_magic.errors import ChoiceError, NotFreeError
from gpu_magic.gpus.options import Options
from gpu_magic.process.find import mig_instances, why_unusable
from gpu_magic.text import (
    GIB,
    MIB,
    age_text,
    bytes_text,
    counted,
    listed,
    read_size,
    shortened,
    size_as_typed,
    size_meant,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpu_magic.devices.model import Claim, Device

__all__ = [
    "Standing",
    "best_first",
    "check_filters",
    "check_free",
    "held_by",
    "is_comparable",
    "is_model",
    "left_out",
    "pick",
    "rank",
    "standing",
    "usable",
    "why_not",
    "why_these",
    "why_too_few",
    "why_unranked",
]
_LONGEST = 500  # characters of a list of devices
_PLAIN = Options()


class Standing(IntEnum):
    """How good a device is to pick, the best first."""

    FREE = 0
    UNSURE = 1  # no figure shows use, and one is missing
    BUSY = 2
    MEMORY_UNKNOWN = 3


def standing(device: Device) -> Standing:
    """Return how good a device is to pick, whoever has claimed it."""
    if device.status.memory_used is UNKNOWN:
        return Standing.MEMORY_UNKNOWN
    busy = device.is_busy
    return Standing.UNSURE if busy is UNKNOWN else Standing.BUSY if busy else Standing.FREE


def rank(devices: Iterable[Device], preferred: frozenset[str] = frozenset()) -> list[Device]:
    """Return devices, the best to pick first.

    In this order they are told apart: by their standing; those that are preferred; the most free memory, in
    whole GiB, as an idle GPU's differs a little; the fewest processes, where memory is not known; the least
    utilization. Among equals it is nvidia-smi's order. One of which no figure is known comes last.

    Parameters
    ----------
    devices
        Those to rank, in nvidia-smi's order.
    preferred
        UUIDs of those that this process has claimed: asking again is to give the same.

    """

    def key(device: Device) -> tuple[float, ...]:
        status = device.status
        free = status.memory_free
        processes = UNKNOWN if status.users is UNKNOWN else len(status.users)
        return (
            standing(device),
            device.uuid not in preferred,
            math.inf if free is UNKNOWN else -(free // GIB),
            _last(processes) if status.memory_used is UNKNOWN else 0,
            _last(status.utilization),
        )

    return sorted(devices, key=key)


def _last(figure: float | Unknown) -> float:
    return math.inf if figure is UNKNOWN else figure


def is_comparable(device: Device) -> bool:
    """Return whether anything is known by which a device can be told from others."""
    status = device.status
    return any(figure is not UNKNOWN for figure in (status.memory_used, status.processes, status.utilization))


def check_filters(options: Options) -> None:
    """Check that the bounds can be read.

    Raises
    ------
    ChoiceError
        One can't.

    """
    size = None if options.min_free is None else read_size(options.min_free)
    if options.min_free is not None and (size is None or 0 < size < MIB):
        what = "not a size" if size is None else "less than a MiB"
        better = size_meant(options.min_free, "20GB")
        raise ChoiceError(f"--min-free {options.min_free} is {what}; try --min-free {better}.")
    if options.model is not None and not isinstance(options.model, str):
        raise ChoiceError(f"--model {options.model!r:.40} is not a name; try --model A100.")


def why_not(device: Device, options: Options) -> str:
    """Return which bound a device does not keep to: `12.0 GiB free, and not 20 GB`; empty for none."""
    status = device.status
    if options.model is not None and not is_model(device, options.model):
        return "its model is not known" if device.name is UNKNOWN else "another model"
    if options.only_free and device.is_busy is not False:
        return used_by(device) if device.is_busy is True else "not known to be free"
    if options.min_free is not None:
        if status.memory_free is UNKNOWN:
            return "its free memory is not known"
        if status.memory_free < (read_size(options.min_free) or 0):
            return f"{bytes_text(status.memory_free)} free, and not {size_as_typed(options.min_free)}"
    return ""


def is_model(device: Device, model: str) -> bool:
    """Return whether a device's name has all words of a model's, in any case: `a100`, `A100 80GB`, `RTX4090`.

    A word is not found within another one: a T400 is no T4.
    """
    if device.name is UNKNOWN:
        return False
    there = _words(device.name)
    joined = {
        "".join(there[first:last]) for last in range(len(there) + 1) for first in range(last)
    }  # "rtx4090", too
    return all(word in joined for word in _words(model))


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.lower())


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


def check_free(devices: Sequence[Device]) -> None:
    """Check that nobody but this process uses or has claimed any of some devices.

    Raises
    ------
    NotFreeError
        Somebody has, or a figure that would show it is not known.

    """
    others = {device: why for device in devices if (why := _why_not_free(device))}
    if others:
        is_one, holders = len(devices) == 1, left_out(others)
        it = "it" if is_one else "them"
        line = f"Not free: {holders}. --wait 30m waits for {it}."
        raise NotFreeError(line, next(iter(others.values())) if is_one else holders)


def held_by(device: Device) -> str:
    """Return who else uses or has claimed a device, in a few words; empty where nobody is known to."""
    if device.status.claims:
        return _claims_text(device.status.claims)
    return (
        used_by(device, is_ours_named=False) if device.is_busy is True and not device.status.is_ours else ""
    )


def _claims_text(claims: Iterable[Claim]) -> str:
    """Return claims behind one another, those of one user as one since the first: `a.ipynb and b.ipynb`."""
    groups: dict[tuple[str, bool, bool], list[Claim]] = {}
    for claim in claims:
        groups.setdefault((claim.owner, claim.is_own, claim.waits), []).append(claim)
    texts = []
    for group in groups.values():
        first = min(group, key=lambda claim: claim.since)
        names = listed(claim.notebook for claim in group if claim.notebook)
        known = [claim.idle for claim in group if claim.idle is not UNKNOWN]
        idle = min(known) if len(known) == len(group) else UNKNOWN
        texts.append(str(replace(first, notebook=names, idle=idle)))
    return ", ".join(texts)


def _why_not_free(device: Device) -> str:
    if (holder := held_by(device)) or device.is_busy is False or device.status.is_ours:
        return holder
    return "not known to be free"


def pick(
    count: int,
    pool: Sequence[Device],
    options: Options = _PLAIN,
    held: frozenset[str] = frozenset(),
) -> tuple[tuple[Device, ...], str]:
    """Return the best devices of a pool, and why these and not the others, as a sentence.

    Parameters
    ----------
    count
        How many.
    pool
        Those that this process may use, in nvidia-smi's order.
    options
        The bounds to keep to.
    held
        UUIDs of the devices that this process has claimed: they are the first among equals.

    Raises
    ------
    NotFreeError
        There are fewer now, and could be more later.
    ChoiceError
        There are fewer, and that does not change by itself.

    """
    check_filters(options)
    candidates, others = _candidates(count, pool, options)
    if len(candidates) != count:  # all of them are asked for: there is none to prefer
        others |= {one: "nothing is known of its use" for one in candidates if not is_comparable(one)}
        candidates = list(filter(is_comparable, candidates))
    ranked = rank(candidates, held)
    if len(ranked) < count:
        raise _refusal(count, pool, options, ranked, others)
    picked = tuple(ranked[:count])
    others |= {device: why_unranked(device, picked) for device in ranked[count:]}
    free = sum(standing(device) is Standing.FREE for device in ranked)
    return picked, why_these(picked, {one: others[one] for one in pool if one in others}, free)


def best_first(pool: Sequence[Device]) -> tuple[Device, ...]:
    """Return what `auto` picks from, the best first; without a whole GPU, the best MIG instance."""
    candidates = _candidates(2, pool, _PLAIN)[0] or _candidates(1, pool, _PLAIN)[0]
    if len(candidates) == 1:  # there is none to prefer, whatever is known of it
        return tuple(candidates)
    ranked = tuple(rank(filter(is_comparable, candidates)))
    return ranked if all(isinstance(device, Gpu) for device in ranked) else ranked[:1]


def _refusal(
    count: int,
    pool: Sequence[Device],
    options: Options,
    ranked: Sequence[Device],
    others: dict[Device, str],
) -> ChoiceError:
    """Return why not as many can be picked as are asked for: now, or at all."""
    text = f"auto:{count}{options.filters}"
    later = usable(count, pool, options)
    if len(later) < count:
        return ChoiceError(_why_never(text, count, pool, options, later))
    holders = left_out({one: others[one] for one in later if one in others})
    in_order = {one: others[one] for one in pool if one in others}
    return NotFreeError(why_too_few(text, count, ranked, in_order), holders)


def _why_never(
    text: str, count: int, pool: Sequence[Device], options: Options, usable: Sequence[Device]
) -> str:
    if options.model and not any(is_model(one, options.model) for one in pool):
        names = {device.name for device in pool if device.name is not UNKNOWN}
        return f"--model {options.model} fits no GPU here: there is {listed(sorted(names), 'none')}."
    size = None if options.min_free is None else read_size(options.min_free)
    totals = [device.memory_total for device in pool if device.memory_total is not UNKNOWN]
    if size is not None and totals and size > max(totals):
        most = bytes_text(max(totals))
        return f"--min-free {options.min_free} is more than any GPU here has: at most {most}."
    if count > 1 and not usable and mig_instances(tuple(pool)):
        return f"{text} asks for {count}, and all are split by MIG; try auto, which takes one instance."
    return why_too_few(text, count, usable, {})


def _candidates(
    count: int, pool: Sequence[Device], options: Options
) -> tuple[list[Device], dict[Device, str]]:
    """Return the devices that can be picked, and in a few words why each other one can't."""
    found, others = _sort_out([device for device in pool if isinstance(device, Gpu)], options)
    instances = mig_instances(tuple(pool))
    is_free = any(standing(device) is Standing.FREE for device in found)
    if is_free or not instances or count > 1:
        return found, others
    whole = {one: why for one, why in others.items() if not (isinstance(one, Gpu) and one.is_split)}
    parts, of_parts = _sort_out(instances, options)
    return found + parts, whole | of_parts


def _sort_out(devices: Iterable[Device], options: Options) -> tuple[list[Device], dict[Device, str]]:
    found: list[Device] = []
    others: dict[Device, str] = {}
    for device in devices:
        why = _why_unusable(device) or _claims_text(device.status.claims) or why_not(device, options)
        if why:
            others[device] = why
        else:
            found.append(device)
    return found, others


def _why_unusable(device: Device) -> str:
    if not isinstance(device, Gpu):
        return ""
    if device.is_taken:
        return "one process at a time (Exclusive_Process), and in use by another"
    return why_unusable(device).removeprefix("it is ").partition(":")[0]


def usable(count: int, pool: Sequence[Device], options: Options) -> list[Device]:
    """Return the devices that could be picked if nobody had them."""
    size = None if options.min_free is None else read_size(options.min_free)

    def could_fit(device: Device) -> bool:
        if options.model is not None and not is_model(device, options.model):
            return False
        return size is None or device.memory_total is UNKNOWN or device.memory_total >= size

    usable: list[Device] = [one for one in pool if isinstance(one, Gpu) and not why_unusable(one)]
    if count == 1:
        usable += mig_instances(tuple(pool))
    return list(filter(could_fit, usable))
