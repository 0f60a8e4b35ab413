"""Picks the devices for `auto:2`, with the reasons, and names the users of a device."""

from __future__ import annotations

import enum
import math
import re
from typing import TYPE_CHECKING

from gpu_magic.devices.model import UNKNOWN, Device, Gpu
from gpu_magic.errors import ChoiceError, NotFreeError
from gpu_magic.gpus.options import Options
from gpu_magic.process.find import Unusable, mig_instances, whole_gpus, why_unusable
from gpu_magic.text import (
    GIB,
    age_text,
    bytes_text,
    counted,
    listed,
    shortened,
    size_as_typed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpu_magic.devices.model import Claim

__all__ = ["OneInstanceError", "best_first", "check_free", "held_by", "pick", "usable"]

_LONGEST = 500  # characters of a list of devices
_PLAIN = Options()


class OneInstanceError(ChoiceError):
    """One process cannot use these MIG instances together. Several processes can."""


class _Standing(enum.IntEnum):
    """How good a device is to pick, the best first. Only the claims of parked processes count here."""

    FREE = 0
    UNSURE = 1  # no figure shows use, but one is missing
    PARKED = 2  # nobody uses it but parked processes, which have claimed it
    BUSY = 3
    MEMORY_UNKNOWN = 4


def _standing(device: Device) -> _Standing:
    if device.status.memory_used is UNKNOWN:
        return _Standing.MEMORY_UNKNOWN
    busy = device.is_busy
    if device.status.is_parked or (device.status.claims and busy is not True):
        return _Standing.PARKED
    return _Standing.UNSURE if busy is UNKNOWN else _Standing.BUSY if busy else _Standing.FREE


def _rank(devices: Iterable[Device], preferred: frozenset[str] = frozenset()) -> list[Device]:
    """Return devices, which are in nvidia-smi's order, with the best to pick first.

    The criteria, in this order: the standing, a preferred UUID, the most free memory (in whole GiB, because
    it differs a little between idle GPUs), the fewest processes if memory is unknown, the least utilization.
    A device without a known figure comes last.
    """

    def key(device: Device) -> tuple[float, ...]:
        status = device.status
        free, work, users = status.memory_free, status.utilization, status.users
        processes = math.inf if users is UNKNOWN else len(users)
        return (
            _standing(device),
            device.identity not in preferred,
            math.inf if free is UNKNOWN else -(free // GIB),
            processes if status.memory_used is UNKNOWN else 0,
            math.inf if work is UNKNOWN else work,
        )

    return sorted(devices, key=key)


def _is_comparable(device: Device) -> bool:
    """Return whether a figure is known by which a device can be ranked."""
    status = device.status
    return any(figure is not UNKNOWN for figure in (status.memory_used, status.processes, status.utilization))


def _is_model(device: Device, model: str) -> bool:
    """Return whether a device's name has all words of a model, in any case: `a100`, `A100 80GB`, `RTX4090`.

    A part of a word does not match: a T400 is not a T4.
    """
    if device.name is UNKNOWN:
        return False
    there, words = (re.findall(r"[a-z0-9]+", name.lower()) for name in (device.name, model))
    ends = range(len(there) + 1)
    joined = {"".join(there[first:last]) for last in ends for first in range(last)}  # also "rtx4090"
    return all(word in joined for word in words)


def _left_out(others: Mapping[Device, str]) -> str:
    """List devices, grouped by reason: `GPU 0 (in use by maria)`."""
    groups: dict[str, list[str]] = {}
    for device, why in others.items():
        groups.setdefault(why, []).append(device.label)
    return shortened(", ".join(f"{listed(labels)} ({why})" for why, labels in groups.items()), _LONGEST)


def _used_by(device: Device, *, names_this_process: bool = True) -> str:
    """Return who uses a device, and for how long, as far as is known: `in use by maria for 3 h and tom`."""
    there = () if device.status.users is UNKNOWN else device.status.users
    others = [process for process in there if process.is_this_process is not True]
    ages: dict[str, int] = {}  # the longest of each owner, in seconds. -1: unknown
    for one in others:
        owner = "you" if one.is_same_user is True else "" if one.owner is UNKNOWN else one.owner
        ages[owner] = max(ages.get(owner, -1), -1 if one.age is UNKNOWN else one.age)
    times = {owner: f" for {age_text(age)}" if age >= 0 else "" for owner, age in ages.items()}
    unnamed = times.pop("", "")
    if names_this_process and len(others) < len(there):
        times["this kernel"] = ""
    if len(set(times.values())) == 1:
        return f"in use by {listed(sorted(times))}{next(iter(times.values()))}"
    users = listed(f"{owner}{time}" for owner, time in sorted(times.items()))
    return f"in use by {users}" if users else f"in use{unnamed}"


def held_by(device: Device) -> str:
    """Return who else uses or has claimed a device, in a few words. Empty if nobody is known to."""
    if device.status.claims:
        return _claims_text(device.status.claims)
    has_others = device.is_busy is True and device.status.used_only_by_us is not True
    return _used_by(device, names_this_process=False) if has_others else ""


def _claims_text(claims: Iterable[Claim]) -> str:
    """List claims. Those of one user are one claim since the earliest: `a.ipynb and b.ipynb`."""
    groups: dict[tuple[object, ...], list[Claim]] = {}
    for claim in claims:
        kind = claim.owner, claim.is_same_user, claim.waits, claim.is_parked, claim.container
        groups.setdefault(kind, []).append(claim)
    texts = []
    for group in groups.values():
        first = min(group, key=lambda claim: claim.since)
        names = listed(claim.notebook for claim in group if claim.notebook)
        known = [claim.idle for claim in group if claim.idle is not UNKNOWN]
        idle = min(known) if len(known) == len(group) else UNKNOWN
        texts.append(str(first._replace(notebook=names, idle=idle)))
    return ", ".join(texts)


def check_free(devices: Sequence[Device]) -> None:
    """Raise NotFreeError if somebody else uses or has claimed a device, or if its usage is unknown."""
    others: dict[Device, str] = {}
    for device in devices:
        is_free = device.is_busy is False or device.status.used_only_by_us is True
        if why := held_by(device) or ("" if is_free else "usage unknown"):
            others[device] = why
    if others:
        is_one, holders = len(devices) == 1, _left_out(others)
        line = f"Not free: {holders}. To wait for {'it' if is_one else 'them'}, add --wait 30m"
        raise NotFreeError(line, next(iter(others.values())) if is_one else holders)


def pick(
    count: int,
    pool: Sequence[Device],
    options: Options = _PLAIN,
    held: frozenset[str] = frozenset(),
    *,
    is_divided: bool = False,
) -> tuple[tuple[Device, ...], str]:
    """Return the best devices of a pool, and why these and not the others, as a sentence.

    The pool has the devices that this process may use, in nvidia-smi's order. Among equal devices, those that
    this process has claimed (`held`: UUIDs) come first, so the same request gives the same devices. Only if
    the devices are divided among processes, several of them can be MIG instances. If there are too few, it
    raises NotFreeError if there can be enough later, else ChoiceError.
    """
    candidates, others = _candidates(count, pool, options, is_divided=is_divided)
    if len(candidates) != count:  # if all of them are requested, there is nothing to rank
        others |= {one: "usage unknown" for one in candidates if not _is_comparable(one)}
        candidates = list(filter(_is_comparable, candidates))
    ranked = _rank(candidates, held)
    if len(ranked) < count:
        raise _refusal(count, pool, options, ranked, others, is_divided=is_divided)
    picked = tuple(ranked[:count])
    others |= {device: _why_unranked(device, picked) for device in ranked[count:]}
    free = sum(_standing(device) == _Standing.FREE for device in ranked)
    rest = f" Not picked: {_left_out({one: others[one] for one in pool if one in others})}." if others else ""
    return picked, f"{_why_these(picked, free, is_choice=bool(others))}.{rest}"


def best_first(pool: Sequence[Device]) -> tuple[Device, ...]:
    """Return the devices that `auto` picks from, best first. Without a whole GPU, the best MIG instance."""
    candidates = _candidates(2, pool, _PLAIN)[0] or _candidates(1, pool, _PLAIN)[0]
    if len(candidates) == 1:  # there is nothing to rank
        return tuple(candidates)
    ranked = tuple(_rank(filter(_is_comparable, candidates)))
    return ranked if all(isinstance(device, Gpu) for device in ranked) else ranked[:1]


def usable(count: int, pool: Sequence[Device], options: Options, *, is_divided: bool = False) -> list[Device]:
    """Return the devices that could be picked if all were free and unclaimed."""
    instances = mig_instances(tuple(pool)) if count == 1 or is_divided else ()
    found: list[Device] = [*whole_gpus(tuple(pool)), *instances]
    if options.model is not None:
        found = [one for one in found if _is_model(one, options.model)]
    size = options.least or 0
    return [one for one in found if one.memory_total is UNKNOWN or one.memory_total >= size]


def _candidates(
    count: int, pool: Sequence[Device], options: Options, *, is_divided: bool = False
) -> tuple[list[Device], dict[Device, str]]:
    """Return the devices that can be picked, and in a few words why each of the others cannot."""
    whys: dict[Device, str] = {one: _why_not(one, options) for one in pool if isinstance(one, Gpu)}
    is_free = any(not why and _standing(one) == _Standing.FREE for one, why in whys.items())
    can_have_instances = is_divided if count > 1 else not is_free
    if can_have_instances and (instances := mig_instances(tuple(pool))):
        whys = {one: why for one, why in whys.items() if not (isinstance(one, Gpu) and one.is_split)}
        whys |= {one: _why_not(one, options) for one in instances}
    return [one for one, why in whys.items() if not why], {one: why for one, why in whys.items() if why}


def _why_not(device: Device, options: Options) -> str:
    """Return why a device cannot be picked: `12.0 GiB free, less than 20GB`. Empty if it can."""
    if isinstance(device, Gpu) and device.is_taken is not False:
        return "in use by the one process that it allows (Exclusive_Process)"
    if isinstance(device, Gpu) and (why := why_unusable(device)):
        return str(why) if isinstance(why, Unusable) else why.what
    # A parked process can come back, so its device is not one that nobody else uses.
    if claims := device.status.claims if options.only_free else device.status.active_claims:
        return _claims_text(claims)
    return _why_filtered(device, options)


def _why_filtered(device: Device, options: Options) -> str:
    """Return how a device does not fit the options that filter GPUs: `another model`. Empty if it fits."""
    free = device.status.memory_free
    if options.model is not None and not _is_model(device, options.model):
        return "model unknown" if device.name is UNKNOWN else "another model"
    if options.only_free and device.is_busy is not False:
        return _used_by(device) if device.is_busy is True else "usage unknown"
    if options.min_free is not None and free is UNKNOWN:
        return "free memory unknown"
    if options.min_free is not None and free is not UNKNOWN and free < (options.least or 0):
        return f"{bytes_text(free)} free, less than {size_as_typed(options.min_free)}"
    return ""


def _why_unranked(device: Device, picked: Iterable[Device]) -> str:
    """Return in a few words why a candidate was not picked."""
    if _standing(device) == _Standing.PARKED:
        return _claims_text(device.status.claims)
    if device.is_busy is True:
        return _used_by(device)
    if _standing(device) != _Standing.FREE:
        return "usage unknown"
    frees = [one.status.memory_free for one in picked]
    here = device.status.memory_free
    has_less = here is not UNKNOWN and all(free is not UNKNOWN and free > here for free in frees)
    return "less free memory" if has_less else "also free"


def _why_these(picked: Sequence[Device], free: int, *, is_choice: bool) -> str:
    """Return why devices were picked, as a sentence without its full stop. `free` candidates are free."""
    unknown = [device.label for device in picked if _standing(device) == _Standing.MEMORY_UNKNOWN]
    labels, is_one = listed(device.label for device in picked), len(picked) == 1
    if unknown:
        verb = "does" if len(unknown) == 1 else "do"
        return f"{listed(unknown)} {verb} not report memory in use, so whether it is free is unknown"
    if all(_standing(device) == _Standing.FREE for device in picked):
        return f"{labels} {'is' if is_one else 'are'} free and unclaimed"
    if all(_standing(device) <= _Standing.UNSURE for device in picked):
        return f"{labels} {'shows' if is_one else 'show'} no use, but not everything is known"
    thing = _kind(picked)
    there = f"Only {counted(free, thing)} {'is' if free == 1 else 'are'}" if free else f"No {thing} is"
    if parked := [device.label for device in picked if _standing(device) == _Standing.PARKED]:
        return f"{there} free. {listed(parked)} {'is' if len(parked) == 1 else 'are'} parked"
    these = f"is the unclaimed {thing}" if is_one else f"are the unclaimed {thing}s"
    return f"{there} free" + f": {labels} {these} with the most free memory" * is_choice


def _kind(devices: Iterable[Device]) -> str:
    return "GPU" if any(isinstance(device, Gpu) for device in devices) else "MIG instance"


def _refusal(
    count: int,
    pool: Sequence[Device],
    options: Options,
    ranked: Sequence[Device],
    others: Mapping[Device, str],
    *,
    is_divided: bool,
) -> ChoiceError:
    """Return the error that too few devices can be picked, now or at all."""
    asked, size = f"auto:{count}{options.filters}", options.least
    later = usable(count, pool, options, is_divided=is_divided)

    def too_few(there: Sequence[Device], others: Mapping[Device, str]) -> str:
        can = f"only {counted(len(there), _kind(there))}" if there else "no GPU"
        return f"{asked} can pick {can}." + (f" Not available: {_left_out(others)}." if others else "")

    def fewer(there: Sequence[Device]) -> str:
        return f"auto:{len(there)}{options.filters}" if there else ""

    if len(later) >= count:
        holders = _left_out({one: others[one] for one in later if one in others})
        why = too_few(ranked, {one: others[one] for one in pool if one in others})
        return NotFreeError(why, holders, instead=fewer(ranked))
    if options.model and not any(_is_model(one, options.model) for one in pool):
        names = {device.name for device in pool if device.name is not UNKNOWN}
        return ChoiceError(
            f"--model {options.model} matches no GPU. There are: {listed(sorted(names), 'none')}."
        )
    totals = [device.memory_total for device in pool if device.memory_total is not UNKNOWN]
    if size is not None and totals and size > max(totals):
        most = bytes_text(max(totals))
        return ChoiceError(f"--min-free {options.min_free} is more than any GPU has. The largest has {most}.")
    if count > 1 and not later and mig_instances(tuple(pool)):
        return OneInstanceError(f"{asked} needs whole GPUs, and all are split by MIG.", ways=["auto"])
    has_instances = len(usable(count, pool, options, is_divided=True)) >= count
    kind = OneInstanceError if has_instances else ChoiceError
    return kind(too_few(later, {}), ways=filter(None, [fewer(ranked or later)]))
