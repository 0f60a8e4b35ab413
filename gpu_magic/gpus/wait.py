"""Waits for GPUs that are not free: how long, how often it looks, and what it leaves to earlier waits."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from gpu_magic.claims.held import PlaceInLine
from gpu_magic.devices.model import UNKNOWN
from gpu_magic.devices.pace import paced
from gpu_magic.errors import ChoiceError, NotFreeError, show_as
from gpu_magic.gpus.apply import Asked, claims_against, commit, decide, log_refusal, read_asked
from gpu_magic.gpus.request import Auto, Named
from gpu_magic.gpus.select import candidates
from gpu_magic.process.drivers import probe
from gpu_magic.process.find import find
from gpu_magic.process.view import Snapshot, read_for_auto, read_machine
from gpu_magic.text import counted, listed, shortened, simulated_mark, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from gpu_magic.claims.folder import Found
    from gpu_magic.claims.held import Taken
    from gpu_magic.devices.model import Claim, Device, Inventory
    from gpu_magic.gpus.apply import Decision
    from gpu_magic.gpus.choice import Choice
    from gpu_magic.gpus.options import Options
    from gpu_magic.process.drivers import State
    from gpu_magic.process.session import Session

__all__ = ["Reservations", "Wait", "Waiting", "Wanted"]

D = TypeVar("D")
T = TypeVar("T")

# Seconds between two looks: short at first, for a user who watches, then longer, to spare the machine.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 10.0
_SLOWER = 1.2
_LONGEST = 200  # characters of a list of GPUs
# Seconds for which a free GPU is left to the earlier waits of one user. A live process looks before that.
_LONGEST_RESERVED = _LONGEST_PAUSE + 5.0
_log = logging.getLogger("gpu_magic.process")


class Wait(Generic[D, T]):
    """One wait for GPUs, in turn. `str` returns a line: who holds them, the time so far, and the next look.

    After a look, `wanted` has the GPUs in words, and `holders` who has them.

    Parameters
    ----------
    options
        Without `min_free`, the wait is for GPUs that nobody uses or claims.
    seconds
        How long to wait. None: without a limit.
    claims
        Returns the claims that keep the request away.
    decide
        Returns a decision for the options on a machine with these claims, or raises ChoiceError.
    commit
        Makes a decision take effect, and returns the result.
    is_divided
        Whether each GPU is for another process: see `select`.

    """

    def __init__(
        self,
        session: Session,
        request: Auto | Named,
        options: Options,
        seconds: float | None,
        *,
        claims: Callable[[], Taken],
        decide: Callable[[Options, Inventory], D],
        commit: Callable[[D], T],
        is_divided: bool = False,
    ) -> None:
        self._session, self._request, self._given = session, request, options
        self._options = options._replace(only_free=options.only_free or options.min_free is None)
        self._claims, self._decide, self._commit = claims, decide, commit
        self._is_divided = is_divided
        self._seconds, self._began = seconds, time.monotonic()
        self._pause = paced(_FIRST_PAUSE)
        self._place, self._reservations, self._wants = PlaceInLine(session.access), Reservations(), ""
        self._is_committing = False  # an interrupt can then come after a change
        self.wanted = self.holders = ""

    @property
    def progress(self) -> str:
        """Who holds the GPUs, the time so far, and the next look, without a full stop."""
        waited = time_text(int(time.monotonic() - self._began))
        until = f" of {time_text(self._seconds)}" if self._seconds else ""
        return f"Waiting for {self.wanted}, {waited}{until}: {self.holders}. Next look in {self._pause:.0f} s"

    def __str__(self) -> str:
        return f"{self.progress}. To stop, interrupt the kernel."

    def next_pause(self) -> float:
        """Return the seconds until the next look. The last look is at the end of the time."""
        pause, self._pause = self._pause, min(_LONGEST_PAUSE, self._pause * _SLOWER)
        if self._seconds is None:
            return pause
        return max(0.0, min(pause, self._began + self._seconds - time.monotonic()))

    def wait(self, show: Callable[[Wait[D, T]], object]) -> T:
        """Wait, and return the result. After each look without success, call `show` with this wait.

        It raises ChoiceError if the time is over, or if these GPUs can never be chosen.
        """
        with self._in_line():
            while (outcome := self._look(read_for_auto(self._session))) is None:
                show(self)
                time.sleep(self.next_pause())
        return outcome

    async def wait_async(self) -> T:
        """Do the same without `show` and without blocking the event loop of the thread."""
        with self._in_line():
            while True:
                machine = await asyncio.to_thread(read_for_auto, self._session)
                if (outcome := self._look(machine)) is not None:
                    return outcome
                await asyncio.sleep(self.next_pause())

    @contextmanager
    def _in_line(self) -> Iterator[None]:
        """Leave the line after a block. An interrupt before a change says that nothing was changed."""
        try:
            yield
        except (asyncio.CancelledError, KeyboardInterrupt) as end:
            if not self._is_committing:
                end.args = ("Waiting was stopped. Nothing was changed.",)
                show_as(end, f"{type(end).__name__}: {end}")
            raise
        finally:
            self.leave_line()

    def leave_line(self) -> None:
        """Leave the line."""
        self._place.leave()

    def reserve_for_earlier(self, machine: Inventory) -> Inventory:
        """Return the machine with claims on the GPUs that are left to earlier waits."""
        session, options = self._session, self._options
        count, devices = candidates(
            self._request,
            machine,
            session.inherited,
            options,
            session.grant,
            is_divided=self._is_divided,
        )
        uuids = tuple(device.identity for device in devices)
        self._wants = str(Wanted(count, options.only_free, options.least or 0, uuids))
        others = set(uuids) - session.claims.held
        return self._reservations.reserve(self._place.ahead(), machine, others, time.monotonic())

    def _look(self, machine: Inventory) -> T | None:
        """Return the result if the GPUs can be had now. Else join the line and return None.

        It raises ChoiceError if the GPUs can never be chosen, or if the time is over.
        """
        self._session.renew_claims()
        never: ChoiceError | None = None
        try:
            return self._pick(lambda: self.reserve_for_earlier(machine.with_claims(self._claims())))
        except NotFreeError as error:
            self._note(machine, error.holders)
        except ChoiceError as error:
            never = error
        if never:
            self._decide(self._given, machine)  # raises the error for the options as typed
            raise never
        if self._seconds is not None and time.monotonic() - self._began >= self._seconds:
            waited, what, holders = time_text(self._seconds), self.wanted, self.holders
            _log.info("Timed out after %s waiting for %s: %s", waited, what, holders)
            raise NotFreeError(f"Timed out after {waited} waiting for {what}: {holders}.", holders)
        return None

    def _pick(self, see: Callable[[], Inventory]) -> T:
        """Decide and commit on the machine that `see` returns while no other process picks."""

        def pick() -> T:
            decision = self._decide(self._options, see())
            self._is_committing = True
            return self._commit(decision)

        try:
            return self._session.claims.pick_in_turn(pick, waits=False)
        except ChoiceError as error:
            self._is_committing = False
            if not isinstance(error, NotFreeError):
                log_refusal(error)
            raise

    def _note(self, inventory: Inventory, holders: str) -> None:
        """Note what it waits for (`2 free GPUs`, `GPU 1 and GPU 3`) and the holders. If any, get in line."""
        mark = simulated_mark(inventory.simulated)
        if isinstance(self._request, Named):
            labels = listed(find(identifier, inventory).label for identifier in self._request.identifiers)
            wanted = f"{mark}{shortened(labels, _LONGEST)}"
        else:
            kind = f"{'free ' * self._options.only_free}{mark}GPU"
            wanted = f"{counted(self._request.count, kind)}{self._given.for_auto}"
        self.wanted, self.holders = wanted, holders
        if holders:
            self._place.join(self._wants)


class Waiting(Wait["Decision", "Choice"]):
    """A wait that then chooses the GPUs in this process. `text` is as typed after `%gpus`."""

    def __init__(self, session: Session, text: str, options: Options, seconds: float | None) -> None:
        request, self._text = read_asked(session, text, options).request, text
        if not isinstance(request, Auto | Named):
            raise ChoiceError("--wait goes with auto or GPU numbers.", ways=[f"auto{options} --wait 30m"])
        super().__init__(
            session,
            request,
            options,
            seconds,
            claims=partial(claims_against, session, request),
            decide=self._decide_here,
            commit=partial(commit, session),
        )

    def reserve_for_earlier(self, machine: Inventory) -> Inventory:
        """Return the machine with claims on the GPUs that are left to earlier waits, if waiting helps."""
        return super().reserve_for_earlier(machine) if probe().can_change else machine

    def look(self) -> bool:
        """Return whether `choose` would end the wait now. Can be called on any thread.

        It chooses nothing, and raises ChoiceError if the GPUs can never be chosen.
        """
        state, holders = probe(), ""
        if not state.can_change:
            return True
        machine = read_for_auto(self._session)
        try:
            there = self.reserve_for_earlier(machine.with_claims(self._claims()))
            self._decide_here(self._options, there, state)
        except NotFreeError as error:
            holders = error.holders
        self._note(machine, holders)
        return not holders

    def choose(self) -> Choice:
        """Choose once `look` has returned True. It raises NotFreeError if another process was faster.

        One reading is enough after the wait. A longer look would delay the next cell.
        """
        machine = read_machine(self._session)
        return self._pick(lambda: machine.with_claims(self._claims()))

    def _decide_here(self, options: Options, machine: Inventory, state: State | None = None) -> Decision:
        asked = Asked(self._request, options, self._text)
        snapshot = Snapshot.of(self._session, machine, state)
        if not snapshot.guard.can_change:  # waiting does not help
            with suppress(NotFreeError):  # succeeds if the same GPUs were chosen before
                return decide(asked, snapshot)
            asked = asked._replace(options=options.without("only_free"))
        return decide(asked, snapshot)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a process waits for. `str` returns the text of its place, which `parse` reads."""

    count: int  # how many devices
    only_free: bool  # whether they must be free
    min_free: int  # the bytes that must be free on each
    uuids: tuple[str, ...]  # the devices that would fit

    def __str__(self) -> str:
        return " ".join((str(self.count), str(int(self.only_free)), str(self.min_free), *self.uuids))

    @classmethod
    def parse(cls, text: str) -> Wanted:
        """Read the text of a place. Raise ValueError if it is invalid."""
        count, only_free, min_free, *uuids = text.split(" ")
        return cls(int(count), bool(int(only_free)), int(min_free), tuple(dict.fromkeys(uuids)))

    def has(self, device: Device, claim: Claim) -> bool:
        """Return whether a device fits now for the process of a claim."""
        pid, status = claim.pid, device.status
        claims = status.claims if self.only_free else status.active_claims
        if any(pid is UNKNOWN or one.pid != pid for one in claims):
            return False
        users = () if status.users is UNKNOWN else status.users
        is_its_own = bool(users) and all(one.is_seen and one.pid == pid for one in users)
        if self.only_free and not is_its_own and device.is_busy is not False:
            return False
        free = status.memory_free
        return not self.min_free or (free is not UNKNOWN and free >= self.min_free)


class Reservations:
    """The GPUs that one wait leaves to earlier waits, look by look."""

    def __init__(self) -> None:
        # When a free device was first left to a user.
        self._reserved_since: dict[tuple[str, str], float] = {}

    def reserve(
        self, ahead: Iterable[Found], machine: Inventory, uuids: Collection[str], now: float
    ) -> Inventory:
        """Return the machine with claims on the GPUs that are left to earlier waits.

        Each earlier wait (`ahead`, in the order of arrival) that could be met now is left as many devices as
        it waits for, first those that the fewest wait for. A user who has not taken such a device in time is
        left nothing until somebody has taken it. `uuids` are the devices that would fit this wait, without
        those that it has. `now` is in seconds, of a clock that only goes forward.
        """
        devices = {device.identity: device for device in machine.devices}
        places: list[tuple[Claim, int, list[str]]] = []
        for place in ahead:
            with suppress(ValueError):  # hostile, or from another version
                wanted = Wanted.parse(place.rest)
                there = [uuid for uuid in wanted.uuids if uuid in devices]
                fits = [uuid for uuid in there if wanted.has(devices[uuid], place.claim)]
                places.append((place.claim, wanted.count, fits))
        free = {(uuid, claim.owner) for claim, _, fits in places for uuid in fits}
        self._reserved_since = {key: when for key, when in self._reserved_since.items() if key in free}
        slow = {owner for (_, owner), when in self._reserved_since.items() if now - when > _LONGEST_RESERVED}
        demand = Counter(uuids)
        for _, _, fits in places:
            demand.update(fits)
        reserved: dict[str, Claim] = {}
        for claim, count, fits in places:
            still = [uuid for uuid in fits if uuid not in reserved]
            if claim.owner in slow or not 0 < count <= len(still):
                continue
            still.sort(key=lambda uuid: (not devices[uuid].status.active_claims, demand[uuid]))
            for uuid in still[:count]:
                reserved[uuid] = claim._replace(waits=True)
                if not devices[uuid].status.active_claims:  # else it has the device itself
                    self._reserved_since.setdefault((uuid, claim.owner), now)
        claims = {uuid: device.status.claims for uuid, device in devices.items()}
        in_reserve = {uuid: (*claims[uuid], claim) for uuid, claim in reserved.items() if uuid in uuids}
        return machine.with_claims(claims | in_reserve)
