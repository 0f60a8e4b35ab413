"""Picks GPUs that no other process picks at the same moment."""

from __future__ import annotations

import time
from random import SystemRandom
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from gpu_magic.claims.held import PickedTwiceError
from gpu_magic.errors import NotFreeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpu_magic.claims.held import Claims
    from gpu_magic.devices.claim import Claim

__all__ = ["Taken", "pick_in_turn"]

T = TypeVar("T")

_LONGEST_TURN = 2.0  # seconds that others may take before; a turn takes about a millisecond
# Where processes can't take turns, and claim the same GPUs: how often it is tried; the most seconds between.
_ATTEMPTS, _BETWEEN = 20, 0.1

_random = SystemRandom()  # a seed that all notebooks have is not to make them try at the same moments


# What `auto` keeps off, by the UUID of the device.
Taken: TypeAlias = "Mapping[str, tuple[Claim, ...]]"


def pick_in_turn(claims: Claims, pick: Callable[[Taken], T], *, waits: bool = True) -> T:
    """Pick while no other process of the machine does; return what was picked.

    Parameters
    ----------
    claims
        This process's.
    pick
        Picks, given what `auto` keeps off, and claims what it has picked with `Claims.hold_alone`.
    waits
        Whether it may wait for its turn, and between attempts.

    Raises
    ------
    NotFreeError
        Others have claimed the same again and again.

    """
    for attempt in range(_ATTEMPTS):
        with claims.turn(_LONGEST_TURN if waits and not attempt else 0):
            try:
                return pick(claims.taken())
            except PickedTwiceError:
                if not waits:
                    break
        time.sleep(_random.uniform(0, _BETWEEN))
    who = "other processes claim the same GPUs at this moment"
    raise NotFreeError(f"Nothing was picked, as {who}: try again.", who)
