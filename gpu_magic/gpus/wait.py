"""Waits for GPUs that others have: how long, how often it looks, in turn, and the line that says for whom."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from gpu_magic.claims.held import Place
from gpu_magic.errors import ChoiceError, NotFreeError, show_as
from gpu_magic.gpus.apply import apply
from gpu_magic.gpus.request import Auto, Named, parse
from gpu_magic.gpus.select import select, would_do
from gpu_magic.gpus.turn import Turns, Wanted
from gpu_magic.process.drivers import probe
from gpu_magic.process.find import find
from gpu_magic.process.view import read_for_auto
from gpu_magic.text import counted, listed, read_size, shortened, time_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_magic.devices.model import Inventory
    from gpu_magic.gpus.choice import Choice
    from gpu_magic.gpus.options import Options
    from gpu_magic.process.session import Session

__all__ = ["InTurn", "Wait", "Waiting", "options_of_wait"]

T = TypeVar("T")
InTurn: TypeAlias = "Callable[[Inventory], Inventory]"  # as for `apply`

# Seconds between two looks: few at first, as somebody watches; then as many as a machine does not notice.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 10.0
_SLOWER = 1.2
_LONGEST = 200  # characters of a list of GPUs
_log = logging.getLogger("gpu_magic.process")


class Wait(Generic[T]):
    """One wait for GPUs, in turn. `str` returns a line: who holds them, since when, and when it looks again.

    Parameters
    ----------
    session
        This process's.
    request, options
        Which GPUs, and the options as they were given.
    seconds
        How long to wait; None: without an end.
    attempt
        Returns what was asked for, given options, the machine as it was read, and `in_turn`; None: try only.

    Attributes
    ----------
    wanted
        What it waits for, as it is shown, after the first look.
    holders
        Who holds that, as of the last look.

    """

    def __init__(
        self,
        session: Session,
        request: Auto | Named,
        options: Options,
        seconds: float | None,
        attempt: Callable[[Options, Inventory, InTurn | None], T],
    ) -> None:
        self._session, self._request, self._given = session, request, options
        self._options = options_of_wait(options)
        self._seconds, self._attempt, self._began = seconds, attempt, time.monotonic()
        self._pause = _FIRST_PAUSE
        self._place, self._turns, self._wants = Place(session.access), Turns(), ""
        self.wanted = self.holders = ""

    @property
    def progress(self) -> str:
        """Who holds them, since when, and when it looks again; without a full stop."""
        waited = time_text(int(time.monotonic() - self._began))
        until = f" of {time_text(self._seconds)}" if self._seconds else ""
        return f"Waiting for {self.wanted}, {waited}{until}: {self.holders}. Next look in {self._pause:.0f} s"

    def __str__(self) -> str:
        return f"{self.progress}; an interrupt ends it."

    def next_pause(self) -> float:
        """Return the seconds until the next look, of which the last is at the end of the time."""
        pause, self._pause = self._pause, min(_LONGEST_PAUSE, self._pause * _SLOWER)
        if self._seconds is None:
            return pause
        return max(0.0, min(pause, self._began + self._seconds - time.monotonic()))

    def wait(self, show: Callable[[Wait[T]], object]) -> T:
        """Wait, and return what was asked for; after each look in vain, this wait is handed over.

        Raises
        ------
        ChoiceError
            The time is over, or these GPUs can't be had, however long one waits; nothing was changed.

        """
        try:
            while (outcome := self._look(self._read())) is None:
                show(self)
                time.sleep(self.next_pause())
        except KeyboardInterrupt as interrupt:
            _say_nothing_changed(interrupt)
            raise
        else:
            return outcome
        finally:
            self.leave()

    async def wait_async(self) -> T:
        """Do the same without blocking: other code runs on the thread's event loop meanwhile."""
        try:
            # What other processes do is nothing that could be awaited.
            while (outcome := self._look(await asyncio.to_thread(self._read))) is None:  # noqa: ASYNC110
                await asyncio.sleep(self.next_pause())
        except (asyncio.CancelledError, KeyboardInterrupt) as end:
            _say_nothing_changed(end)
            raise
        else:
            return outcome
        finally:
            self.leave()

    def leave(self) -> None:
        """Leave the place among those who wait."""
        self._place.leave()

    def in_turn(self, machine: Inventory) -> Inventory:
        """Return the machine with claims on the GPUs that are left to those who came before."""
        session, options = self._session, self._options
        count, devices = would_do(self._request, machine, session.inherited, options, session.grant)
        min_free = 0 if options.min_free is None else read_size(options.min_free) or 0
        uuids = tuple(str(device.uuid) for device in devices)
        self._wants = str(Wanted(count, options.only_free, min_free, uuids))
        others = set(uuids) - session.claims.held
        return self._turns.leave(self._place.ahead(), machine, others, time.monotonic())

    def _read(self) -> Inventory:
        return read_for_auto(self._session)

    def _look(self, inventory: Inventory) -> T | None:
        """Return what was asked for, if it can be had now; else take a place, and return None.

        Raises
        ------
        ChoiceError
            It can't be had later either, or there is no later.

        """
        try:
            return self._attempt(self._options, inventory, self.in_turn)
        except NotFreeError as error:
            self._note(inventory, error.holders)
            return None
        except ChoiceError as error:
            never = error
        # The same is said of what was typed.
        self._attempt(self._given, inventory, None)
        raise never

    def _note(self, inventory: Inventory, holders: str) -> None:
        """Take note of a look in vain; raise NotFreeError if it was the last one, as the time is over."""
        self.wanted, self.holders = self._what(inventory), holders
        self._place.take(self._wants)
        if self._seconds is None or time.monotonic() - self._began < self._seconds:
            return
        waited = time_text(self._seconds)
        _log.info("Waited %s for %s in vain: %s", waited, self.wanted, holders)
        raise NotFreeError(f"Waited {waited} for {self.wanted} in vain: {holders}.", holders) from None

    def _what(self, inventory: Inventory) -> str:
        """Return what it waits for, as it is shown: `2 free GPUs`, `GPU 1 and GPU 3`."""
        if isinstance(self._request, Named):
            labels = listed(find(identifier, inventory).label for identifier in self._request.identifiers)
            return shortened(labels, _LONGEST)
        kind = "free GPU" if self._options.only_free else "GPU"
        return f"{counted(self._request.count, kind)}{replace(self._given, only_free=False).filters}"


def _say_nothing_changed(end: BaseException) -> None:
    """Have an end of a wait from outside say in one line what it leaves behind."""
    end.args = ("The waiting was ended; nothing was changed.",)
    show_as(end, f"{type(end).__name__}: {end}")


def options_of_wait(options: Options) -> Options:
    """Return the options that a wait looks with: without a bound, for GPUs that nobody uses or claims."""
    return replace(options, only_free=options.only_free or options.min_free is None)


class Waiting(Wait["Choice"]):
    """A wait for GPUs that are then chosen here.

    GPUs that are named it waits for until nobody else uses or has claimed them. With `auto`, and without a
    bound of memory, it waits for GPUs that nobody uses or claims.

    Parameters
    ----------
    session
        This process's.
    text, options
        As typed after `%gpus`.
    seconds
        How long to wait; None: without an end.

    Raises
    ------
    ChoiceError
        This is nothing to wait for.

    """

    def __init__(self, session: Session, text: str, options: Options, seconds: float | None) -> None:
        request = parse(text)
        if not isinstance(request, Auto | Named):
            ways = f"auto:2{options} --wait 30m, or 1,3 --wait 30m"
            raise ChoiceError(f"--wait goes with auto and with GPUs by number; try {ways}.")

        def attempt(options: Options, inventory: Inventory, in_turn: InTurn | None) -> Choice:
            if in_turn is None:
                return apply(session, text, options, dry_run=True, inventory=inventory)
            if probe().can_change:  # else waiting changes nothing
                return apply(session, text, options, inventory=inventory, in_turn=in_turn)
            with suppress(NotFreeError):  # what it has, if the same was chosen before
                return apply(session, text, options, inventory=inventory)
            return apply(session, text, replace(options, only_free=False), inventory=inventory)

        super().__init__(session, request, options, seconds, attempt)

    def look(self) -> bool:
        """Return whether they can be chosen now, or the attempt says why never; choose nothing.

        It can be called on any thread.

        Raises
        ------
        ChoiceError
            They can't be chosen, however long one waits.

        """
        if not probe().can_change:
            return True
        session, inventory = self._session, self._read()
        if isinstance(self._request, Auto):
            inventory = inventory.with_claims(session.claims.taken())
        holders = ""
        try:
            select(
                self._request,
                self.in_turn(inventory),
                session.inherited,
                self._options,
                grant=session.grant,
                held=session.claims.held,
            )
        except NotFreeError as error:
            holders = error.holders
            self._place.take(self._wants)
        self.wanted, self.holders = self._what(inventory), holders
        return not holders
