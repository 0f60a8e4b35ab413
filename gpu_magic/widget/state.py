"""What all panels of this process show, and what was clicked in any of them: there is one board.

Figures are read on the sampler's thread, clicks come in on any, and choices are made on the main thread. What
changes the board and what is sent of it happens under one lock, so that it goes out in order.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from gpu_magic.display.choice import Choice
from gpu_magic.display.refusal import refusal_text
from gpu_magic.errors import ChoiceError, GpuMagicError
from gpu_magic.process.choosing import apply
from gpu_magic.process.driver import probe
from gpu_magic.process.outcome import Applied, Refused
from gpu_magic.process.session import current
from gpu_magic.process.view import Snapshot, take_snapshot
from gpu_magic.restart.restart import Restart
from gpu_magic.restart.saved_choice import save
from gpu_magic.selection.allotment import Allotment
from gpu_magic.selection.request import parse
from gpu_magic.selection.select import select
from gpu_magic.widget.pending import Wish, Wishes
from gpu_magic.widget.sampler import Sampler
from gpu_magic.widget.serialization import UTILIZATION, Picture, picture

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = ["Board", "Viewer", "board"]

_HISTORY = 180  # samples: three minutes
_BEAT = 10.0  # seconds after which something is sent although nothing has changed: silence means trouble
# A page says every 15 s that it is looking. One that was closed, or whose computer sleeps, says nothing.
_LEASE = 40.0
_UNLOADED = "gpu_magic was unloaded, so nothing can be chosen here: %load_ext gpu_magic."


class Viewer(Protocol):
    """A panel, as far as the board knows it."""

    views: dict[str, float]  # of its pages, and when each last said that it shows the panel

    def tell(self, message: dict[str, Any]) -> None:
        """Send something to the panel's pages."""


class Board:
    """The state that panels share."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._viewers: list[Viewer] = []
        self._sampler = Sampler(self.tick)
        self._wishes = Wishes(self._carry_out)
        self._restart: Restart | None = None
        self._shell: Any = None
        self._is_paused = False
        self._hears_while_busy = False
        self._inventory: Snapshot | None = None
        self._picture = Picture({}, {}, {})
        self._history: dict[str, deque[int | None]] = {}
        self._draft: str | None = None
        self._tick = 0  # how often the machine was read
        self._version = 0  # how often a page was to learn something: one that has missed a message can tell
        self._looked_at = self._sent_at = time.monotonic()

    def add(self, viewer: Viewer, shell: Any) -> Snapshot:
        """Take in a panel that was just made; return the machine as it shows it.

        Raises
        ------
        SimulationError
            The machine can't be read, as its simulation is described in words that are not understood.

        """
        self._shell = shell
        self.resume(shell)
        self._wishes.attach(shell)
        inventory = self._look()
        with self._lock:
            self._viewers.append(viewer)
        if hasattr(shell, "kernel"):  # a page may show it soon, and can't say so before this cell ends
            viewer.views[""] = time.monotonic()
            self._sampler.start()
        return inventory

    def remove(self, viewer: Viewer) -> None:
        """Forget a panel that was closed."""
        with self._lock:
            if viewer in self._viewers:
                self._viewers.remove(viewer)

    def pause(self) -> None:
        """Stop: the extension is unloaded, and perhaps loaded again at once."""
        self._is_paused, self._draft = True, None
        self._sampler.stop()
        self._wishes.detach()
        self._tell_all({"paused": True, "said": {"text": _UNLOADED, "kind": "warning"}})

    def resume(self, shell: Any) -> None:
        """Go on with the panels that are there."""
        if not self._is_paused:
            return
        self._is_paused = False
        self._tell_all({"paused": False, "said": {"text": "", "kind": "info"}})
        self._wishes.attach(shell)
        if self._is_watched():
            self._sampler.start()
            self._sampler.poke()

    def snapshot(self) -> dict[str, Any]:
        """Return all that a page needs to begin with."""
        with self._lock:
            return {
                "at": time.time(),
                "tick": self._tick,
                "version": self._version,
                **self._picture._asdict(),
                "order": list(self._picture.rows),  # a JavaScript object would put numbers first
                "history": {key: list(samples) for key, samples in self._history.items()},
                "draft": self._draft,
                "paused": self._is_paused,
            }

    def look_at(self, viewer: Viewer, view: str, *, is_seen: bool, version: int) -> None:
        """Note whether a view of a page shows a panel, and tell it what it has missed."""
        with self._lock:
            self._hears_while_busy = self._hears_while_busy or self._wishes.is_busy
            viewer.views.pop("", None)
            viewer.views.pop(view, None)
            if not is_seen:
                return
            viewer.views[view] = time.monotonic()
            if self._is_paused:
                return
            is_current = self._sampler.is_running and version == self._version
            # A page that is told something knows that there is a kernel.
            viewer.tell({"tick": self._tick} if is_current else {"all": self.snapshot()})
        if not self._sampler.is_running:
            self._sampler.start()
            self._sampler.poke()

    def draft(self, wanted: str | None, page: str) -> None:
        """Show in every panel what was clicked in one, and is not chosen yet.

        Raises
        ------
        ChoiceError
            For what could not be chosen.

        """
        if wanted:
            self._check(wanted)
        self._set_draft(wanted, page)

    def wish(self, wish: Wish) -> None:
        """Record that GPUs are to be chosen.

        Raises
        ------
        ChoiceError
            For what can't be chosen.

        """
        if self._is_paused:
            raise ChoiceError(_UNLOADED)
        self._check(wish.wanted)
        self._wishes.record(wish)

    def restart(self, shell: Any, tell: Callable[[dict[str, Any]], None], page: str = "") -> None:
        """Restart the kernel, by a page or from here; all panels learn of it."""
        self._tell_all({"restarting": True})
        self._restart = Restart(shell, tell, page)

    def answer(self, page: str, *, can: bool) -> None:
        """Note whether a page can restart the kernel."""
        if self._restart is not None:
            (self._restart.can if can else self._restart.cannot)(page)

    def say(self, text: str, kind: str) -> None:
        """Say something in every panel that is seen."""
        self._tell_all({"said": {"text": text, "kind": kind}})

    def tick(self) -> bool:
        """Read the machine and send what has changed; tell whether anybody still looks."""
        if not self._is_watched():
            return False
        try:
            self._look()
        except GpuMagicError as error:  # a simulation that is described anew, and wrongly
            self.say(str(error), "error")
        return True

    def _look(self) -> Snapshot:
        """Read the machine, and send what has changed since the last time."""
        session = current()
        inventory = take_snapshot(session, probe())
        now = picture(inventory, Allotment(inventory, session.inherited))
        with self._lock:
            changes = now.since(self._picture)
            self._inventory, self._picture = inventory, now
            self._remember(now)
            self._tick += 1
            if changes is None:
                self._version += 1
                self._tell_all({"all": self.snapshot()})
            elif changes:
                self._tell_version({**changes, "tick": self._tick})
            elif time.monotonic() - self._sent_at >= _BEAT:
                self._tell_all({"tick": self._tick})
        return inventory

    def _remember(self, now: Picture) -> None:
        """Keep the utilisation of the last minutes; the time in which nobody looked is a gap."""
        missed = min(_HISTORY, round(time.monotonic() - self._looked_at) - 1)
        self._looked_at = time.monotonic()
        for key in [key for key in self._history if key not in now.now]:
            del self._history[key]
        for key, figures in now.now.items():
            util = figures[UTILIZATION]
            samples = self._history.setdefault(key, deque(maxlen=_HISTORY))
            samples.extend([None] * (missed if samples else 0))
            samples.append(util if isinstance(util, int) else None)

    def _set_draft(self, wanted: str | None, page: str = "") -> None:
        with self._lock:
            self._draft = wanted
            self._tell_version({"draft": wanted, "page": page})

    def _tell_version(self, message: dict[str, Any]) -> None:
        """Send what a page has to have: it can tell by the version whether it has missed another one."""
        with self._lock:
            self._version += 1
            self._tell_all({**message, "version": self._version})

    def _tell_all(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._sent_at = time.monotonic()
            for viewer in filter(self._is_seen, self._viewers):
                viewer.tell(message)

    def _is_watched(self) -> bool:
        with self._lock:
            return any(map(self._is_seen, self._viewers))

    def _is_seen(self, viewer: Viewer) -> bool:
        """Whether a page shows a panel. Pages of some kernels can't say so while a cell runs."""
        if self._wishes.is_busy and not self._hears_while_busy:
            return bool(viewer.views)
        now, free_since = time.monotonic(), self._wishes.free_since
        return any(now - max(heard, free_since) < _LEASE for heard in viewer.views.values())

    def _check(self, wanted: str) -> None:
        """Check a wish against the machine as it was last read: a page can send anything."""
        inventory = self._inventory
        if inventory is not None:
            select(parse(wanted), inventory, current().inherited)

    def _carry_out(self, wish: Wish) -> None:
        """Choose, as `%gpus` would; on the main thread."""
        try:
            outcome = apply(current(), wish.wanted)
            if wish.restart and isinstance(outcome, Refused):
                save(outcome)
        except GpuMagicError as error:
            self.say(str(error), "error")
            return
        except Exception as error:  # noqa: BLE001 - there is no cell that it could end, and a page that waits
            self.say(f"Nothing was chosen: {type(error).__name__}: {error}", "error")
            return
        if isinstance(outcome, Applied):
            if self._draft == wish.wanted:  # and nothing else was clicked meanwhile
                self._set_draft(None)
            self.say(str(Choice(outcome)), "done")
        elif wish.restart:
            self.restart(self._shell, wish.by.tell, wish.page)
        else:
            self.say(refusal_text(outcome), "warning")
        self._sampler.poke()


_board: Board | None = None


def board() -> Board:
    """Return this process's board; the first call makes it."""
    global _board  # noqa: PLW0603 - as there is one session
    if _board is None:
        _board = Board()
    return _board
