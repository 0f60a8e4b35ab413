"""A wait for GPUs that others have: for how long, how often it looks, and the line that says for whom."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_magic.errors import NotFreeError
from gpu_magic.log import logger
from gpu_magic.selection.duration import duration_text
from gpu_magic.selection.find import find
from gpu_magic.selection.request import Auto, Named
from gpu_magic.spelling import option
from gpu_magic.text import counted, listed, shortened

if TYPE_CHECKING:
    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.selection.options import Options
    from gpu_magic.selection.request import Request

__all__ = ["Wait", "options_of_wait", "or_wait"]

# Seconds between two looks: few at first, as somebody watches; then as many as a machine does not notice.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 10.0
_SLOWER = 1.2
_LONGEST = 200  # characters of a list of GPUs
_log = logger("process")


class Wait:
    """One wait for GPUs. `str` returns a line: who holds them, since when, and when it looks again.

    Parameters
    ----------
    request, options
        Which GPUs, and the options as they were given.
    seconds
        How long to wait; None: without an end.

    Attributes
    ----------
    wanted
        What it waits for, as it is shown, after the first look.
    holders
        Who holds that, as of the last look.

    """

    def __init__(self, request: Auto | Named, options: Options, seconds: float | None) -> None:
        self._request, self._given = request, options
        self._options = options_of_wait(options)
        self._seconds, self._began = seconds, time.monotonic()
        self._pause = _FIRST_PAUSE
        self.wanted = self.holders = ""

    @property
    def progress(self) -> str:
        """Who holds them, since when, and when it looks again; without a full stop."""
        waited = duration_text(int(time.monotonic() - self._began))
        until = f" of {duration_text(self._seconds)}" if self._seconds else ""
        return f"Waiting for {self.wanted}, {waited}{until}: {self.holders}. Next look in {self._pause:.0f} s"

    def __str__(self) -> str:
        return f"{self.progress}; an interrupt ends it."

    def next_pause(self) -> float:
        """Return the seconds until the next look, of which the last is at the end of the time."""
        pause, self._pause = self._pause, min(_LONGEST_PAUSE, self._pause * _SLOWER)
        if self._seconds is None:
            return pause
        return max(0.0, min(pause, self._began + self._seconds - time.monotonic()))

    def note(self, inventory: Inventory, holders: str) -> None:
        """Take note of a look in vain.

        Raises
        ------
        NotFreeError
            It was the last one, as the time is over.

        """
        self.wanted, self.holders = self._what(inventory), holders
        if self._seconds is None or time.monotonic() - self._began < self._seconds:
            return
        waited = duration_text(self._seconds)
        _log.info("Waited %s for %s in vain: %s", waited, self.wanted, holders)
        raise NotFreeError(f"Waited {waited} for {self.wanted} in vain: {holders}.", holders) from None

    def _what(self, inventory: Inventory) -> str:
        """Return what it waits for, as it is shown: `2 free GPUs`, `GPU 1 and GPU 3`."""
        if isinstance(self._request, Named):
            labels = listed(find(identifier, inventory).label for identifier in self._request.identifiers)
            return shortened(labels, _LONGEST)
        kind = "free GPU" if self._options.only_free else "GPU"
        return f"{counted(self._request.count, kind)}{replace(self._given, only_free=False).filters}"


def options_of_wait(options: Options) -> Options:
    """Return the options that a wait looks with: without a bound, for GPUs that nobody uses or claims."""
    return replace(options, only_free=options.only_free or options.min_free is None)


def or_wait(error: NotFreeError, request: Request) -> NotFreeError:
    """Return an error with what waits; of GPUs that are named, it says so already."""
    if not isinstance(request, Auto):
        return error
    there = "there is one" if request.count == 1 else f"there are {request.count}"
    return NotFreeError(f"{error} {option('wait', '30m')} waits until {there}.", error.holders)
