"""Picks the devices for `auto:2`: free ones first, then those with the most free memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.model import Device, Gpu
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.errors import ChoiceError, NotFreeError
from gpu_magic.selection.allotment import mig_instances, why_unusable
from gpu_magic.selection.filters import check_filters, is_model, why_not
from gpu_magic.selection.options import Options
from gpu_magic.selection.ranking import Standing, is_comparable, rank, standing
from gpu_magic.selection.reasons import left_out, why_these, why_too_few, why_unranked
from gpu_magic.selection.size import read_size
from gpu_magic.spelling import option
from gpu_magic.text import bytes_text, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["best_first", "pick"]

_PLAIN = Options()


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
    later = _usable(count, pool, options)
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
        return f"{option('model', options.model)} fits no GPU here: there is {listed(sorted(names), 'none')}."
    size = None if options.min_free is None else read_size(options.min_free)
    totals = [device.memory_total for device in pool if device.memory_total is not UNKNOWN]
    if size is not None and totals and size > max(totals):
        most = bytes_text(max(totals))
        return f"{option('min_free', options.min_free)} is more than any GPU here has: at most {most}."
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


def _usable(count: int, pool: Sequence[Device], options: Options) -> list[Device]:
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
