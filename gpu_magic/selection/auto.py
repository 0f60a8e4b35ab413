"""Picks the devices for `auto:2`: free ones first, then those with the most free memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.model import Device, Gpu
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.errors import ChoiceError
from gpu_magic.selection.allotment import mig_instances, why_unusable
from gpu_magic.selection.filters import check_filters, is_model, why_not
from gpu_magic.selection.options import Options
from gpu_magic.selection.ranking import Standing, first_group, is_comparable, rank, standing
from gpu_magic.selection.reasons import why_these, why_too_few, why_unranked
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpu_magic.devices.model import Inventory
    from gpu_magic.selection.ranking import Fit

__all__ = ["best_first", "pick"]

_PLAIN = Options()


def pick(
    count: int,
    pool: Sequence[Device],
    inventory: Inventory,
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
    inventory
        The machine.
    options
        The bounds to keep to.
    held
        UUIDs of the devices that this process has claimed: they are the first among equals.

    Raises
    ------
    ChoiceError
        There are fewer.

    """
    check_filters(options)
    candidates, others = _candidates(count, pool, options)
    good = candidates
    if len(candidates) != count:  # all of them are asked for: there is none to prefer
        good = [device for device in candidates if is_comparable(device)]
        others |= {one: "nothing is known of its use" for one in candidates if not is_comparable(one)}
    ranked = rank(good, held)
    fits, why_apart = _fit(options, inventory)
    picked = first_group(ranked, count, fits)
    if not picked:
        raise ChoiceError(_too_few(count, pool, ranked, others, options))
    for device in ranked:
        if device not in picked:
            is_apart = not all(fits(device, one) for one in picked)
            others[device] = why_apart if is_apart else why_unranked(device, picked)
    free = sum(standing(device) is Standing.FREE for device in ranked)
    return picked, why_these(picked, _in_order(others, pool), free)


def best_first(pool: Sequence[Device]) -> tuple[Device, ...]:
    """Return what `auto` picks from, the best first; without a whole GPU, the best MIG instance."""
    candidates, _ = _candidates(1, pool, _PLAIN)
    if len(candidates) == 1:  # there is none to prefer, whatever is known of it
        return tuple(candidates)
    ranked = tuple(rank(filter(is_comparable, candidates)))
    return ranked if all(isinstance(device, Gpu) for device in ranked) else ranked[:1]


def _candidates(
    count: int, pool: Sequence[Device], options: Options
) -> tuple[list[Device], dict[Device, str]]:
    """Return the devices that can be picked, and in a few words why each other one can't."""
    gpus = [device for device in pool if isinstance(device, Gpu)]
    found, others = _sort_out(gpus, options)
    instances = mig_instances(tuple(pool))
    if found or not instances or count > 1:
        return found, others
    found, more = _sort_out(instances, options)
    return found, {
        gpu: why for gpu, why in others.items() if not (isinstance(gpu, Gpu) and gpu.is_split)
    } | more


def _sort_out(devices: Iterable[Device], options: Options) -> tuple[list[Device], dict[Device, str]]:
    found: list[Device] = []
    others: dict[Device, str] = {}
    for device in devices:
        why = _why_unusable(device) or ", ".join(map(str, device.status.claims)) or why_not(device, options)
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


def _fit(options: Options, inventory: Inventory) -> tuple[Fit, str]:
    """Return which devices can be picked together, and why others can't, in a few words."""

    def fit(one: Device, other: Device) -> bool:
        if options.same_model and (one.name is UNKNOWN or one.name != other.name):
            return False
        return not options.near or inventory.are_near(one, other)

    apart = ["another model"] * options.same_model + ["not near these"] * options.near
    return fit, " or ".join(apart)


def _too_few(
    count: int,
    pool: Sequence[Device],
    ranked: Sequence[Device],
    others: dict[Device, str],
    options: Options,
) -> str:
    asked = f"auto:{count}{options.filters}"
    if len(ranked) >= count:
        how = " and ".join(
            ["of one model"] * options.same_model + ["linked by NVLink or by one PCIe switch"] * options.near
        )
        return f"{asked}: no {count} of {listed(device.label for device in ranked)} are {how}."
    if not ranked and count > 1 and mig_instances(tuple(pool)):
        return f"{asked} asks for {count}, and all are split by MIG; try auto, which takes one instance."
    if options.model and not any(is_model(device, options.model) for device in pool):
        names = sorted({device.name for device in pool if device.name is not UNKNOWN})
        return f"--model {options.model} fits no GPU here: there is {listed(names, none='none')}."
    return why_too_few(asked, count, ranked, _in_order(others, pool))


def _in_order(others: dict[Device, str], pool: Sequence[Device]) -> dict[Device, str]:
    return {device: others[device] for device in pool if device in others}
