"""Who waits for GPUs gets them in turn: what is left to those who came before."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpu_magic.devices.model import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpu_magic.claims.folder import Found
    from gpu_magic.devices.model import Claim, Device, Inventory

__all__ = ["Turns", "Wanted"]

# Seconds that free GPUs are left to somebody. Who could have all and does not take them has stopped; who
# waits for more keeps GPUs from being used. Between two looks _LONGEST_LOOK is counted at most, as this
# process can have been stopped.
_LEFT_ALL, _LEFT_SOME, _LONGEST_LOOK = 60.0, 3600.0, 15.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody waits for; `str` is what a place says, which `read` reads.

    Parameters
    ----------
    count
        How many devices.
    only_free
        Whether nobody may use them.
    min_free
        The bytes that have to be free on each.
    uuids
        The devices that would do.

    """

    count: int
    only_free: bool
    min_free: int
    uuids: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((str(self.count), str(int(self.only_free)), str(self.min_free), *self.uuids))

    @classmethod
    def read(cls, text: str) -> Wanted:
        """Read it; raise ValueError for what is none."""
        count, only_free, min_free, *uuids = text.split(" ")
        return cls(int(count), bool(int(only_free)), int(min_free), tuple(dict.fromkeys(uuids)))

    def has(self, device: Device, claim: Claim) -> bool:
        """Return whether a device would do now for the process of a claim."""
        pid, status = claim.pid, device.status
        if any(pid is UNKNOWN or one.pid != pid for one in status.claims):
            return False
        users = () if status.users is UNKNOWN else status.users
        is_its_own = bool(users) and all(one.pid == pid for one in users)
        if self.only_free and not is_its_own and device.is_busy is not False:
            return False
        free = status.memory_free
        return not self.min_free or (free is not UNKNOWN and free >= self.min_free)


class Turns:
    """What one wait leaves to others, look by look."""

    def __init__(self) -> None:
        self._looked_at: float | None = None
        # Seconds that GPUs were left to a place: all that it waits for, or some.
        self._left: dict[tuple[tuple[int, str], bool], float] = {}

    def leave(
        self, ahead: Iterable[Found], machine: Inventory, uuids: Collection[str], now: float
    ) -> Inventory:
        """Return the machine with claims on what is left to those who came before.

        Each of them is left as many of the devices that would do for it as it waits for, first those that
        the fewest wait for. Who has been left all of them for a minute, or some for an hour, is left no more,
        nor is another process of that user.

        Parameters
        ----------
        ahead
            Their places, first come first.
        machine
            The machine, with claims.
        uuids
            The devices that would do for this wait, without those that it has.
        now
            Seconds, of a clock that only goes forward.

        """
        elapsed = min(_LONGEST_LOOK, now - (self._looked_at or now))
        self._looked_at = now
        devices = {str(device.uuid): device for device in machine.devices}
        places: list[tuple[Found, Wanted]] = []
        for place in ahead:
            with suppress(ValueError):  # hostile, or another version's
                places.append((place, Wanted.read(place.rest)))
        demand = Counter(uuids)
        for _, wanted in places:
            demand.update(wanted.uuids)
        left: dict[str, Claim] = {}
        stopped: set[str] = set()
        for place, wanted in places:
            there = [uuid for uuid in wanted.uuids if uuid in devices]
            if place.claim.owner in stopped or not 0 < wanted.count <= len(there):
                continue
            free = [uuid for uuid in there if uuid not in left and wanted.has(devices[uuid], place.claim)]
            free.sort(key=lambda uuid: (not devices[uuid].status.claims, demand[uuid]))
            if not free:
                continue
            is_all = len(free) >= wanted.count
            key = place.order, is_all
            self._left[key] = self._left.get(key, 0.0) + elapsed
            if self._left[key] > (_LEFT_ALL if is_all else _LEFT_SOME):
                stopped.add(place.claim.owner)
            else:
                left |= dict.fromkeys(free[: wanted.count], replace(place.claim, waits=True))
        claims = {uuid: device.status.claims for uuid, device in devices.items()}
        ours = {uuid: (*claims[uuid], claim) for uuid, claim in left.items() if uuid in uuids}
        return machine.with_claims(claims | ours)
