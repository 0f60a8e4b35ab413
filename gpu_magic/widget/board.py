"""What all panels of this process show, and what was clicked in any of them: there is one board.

Figures are read on the sampler's thread, clicks come in on any, and choices are made on the main thread; a
lock keeps what goes out in order.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from gpu_magic.cuda.driver import probe
from gpu_magic.errors import ChoiceError, GpuMagicError
from gpu_magic.restart.kernel import kernel_id
from gpu_magic.restart.saved import keep
from gpu_magic.selection.allotment import Allotment
from gpu_magic.selection.choose import choose as decide
from gpu_magic.selection.options import Options
from gpu_magic.selection.request import parse
from gpu_magic.session import current
from gpu_magic.widget.restarter import restart_unless_a_page_does
from gpu_magic.widget.sampler import Sampler
from gpu_magic.widget.wire import UTILIZATION, Picture, picture
from gpu_magic.widget.wishes import Wish, Wishes

if TYPE_CHECKING:
    from gpu_magic.devices.model import Inventory

__all__ = ["Board", "Viewer", "board"]

_HISTORY = 180  # samples: three minutes
_BEAT = 10  # ticks after which something is sent although nothing has changed, so that silence means trouble
# A page says every 15 s that it is looking. One that was closed, or whose computer sleeps, says nothing.
_LEASE = 40.0
_UNLOADED = "gpu_magic was unloaded, so nothing can be chosen here: %load_ext gpu_magic."


class Viewer(Protocol):
    """A panel, as far as the board knows it."""

    seen_at: float  # when a page last said that it shows the panel; -inf for not now

    def tell(self, message: dict[str, Any]) -> None:
        """Send something to the panel's pages."""


class Board:
    """The state that panels share."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._viewers: list[Viewer] = []
        self._sampler = Sampler(self.tick)
        self._wishes = Wishes(self._carry_out)
        self._shell: Any = None
        self._is_paused = False
        self._tick = 0
        self._inventory: Inventory | None = None
        self._picture = Picture({}, {}, {})
        self._history: dict[str, deque[int | None]] = {}
        self._draft: str | None = None

    def add(self, viewer: Viewer, shell: Any) -> Inventory:
        """Take in a panel that was just made; return the machine as it shows it."""
        self._is_paused = False
        self._shell = shell
        self._wishes.attach(shell)
        self._look()
        with self._lock:
            self._viewers.append(viewer)
        if hasattr(shell, "kernel"):  # a page may show it soon, and can't say so before this cell ends
            viewer.seen_at = time.monotonic()
            self._sampler.start()
        assert self._inventory is not None  # noqa: S101 - for the type checker: it was just read
        return self._inventory

    def remove(self, viewer: Viewer) -> None:
        """Forget a panel that was closed."""
        with self._lock:
            if viewer in self._viewers:
                self._viewers.remove(viewer)

    def pause(self) -> None:
        """Stop: the extension is unloaded, and perhaps loaded again at once."""
        self._is_paused = True
        self._sampler.stop()
        self._wishes.detach()
        self.say(_UNLOADED, "warning")

    def resume(self, shell: Any) -> None:
        """Go on with the panels that are there."""
        if not self._is_paused:
            return
        self._is_paused = False
        self._wishes.attach(shell)
        self.say("", "info")
        if self._is_watched():
            self._sampler.start()

    def snapshot(self) -> dict[str, Any]:
        """Return all that a page needs to begin with."""
        with self._lock:
            history = {key: list(samples) for key, samples in self._history.items()}
            return {
                "at": time.time(),
                "tick": self._tick,
                **self._picture._asdict(),
                "order": list(self._picture.rows),  # a JavaScript object would put numbers first
                "history": history,
                "draft": self._draft,
            }

    def look_at(self, viewer: Viewer, *, is_seen: bool) -> None:
        """Note that a page shows a panel, or does so no more."""
        had_missed = not self._is_seen(viewer)
        viewer.seen_at = time.monotonic() if is_seen else float("-inf")
        if self._is_paused or not is_seen:
            return
        # A page that is told something knows that there is a kernel.
        viewer.tell({"all": self.snapshot()} if had_missed else {"tick": self._tick})
        if not self._sampler.is_running:
            self._sampler.start()
            self._sampler.poke()

    def draft(self, wanted: str | None, by: Viewer) -> None:
        """Show in every panel what was clicked in one, and is not chosen yet.

        Raises
        ------
        ChoiceError
            For what could not be chosen.

        """
        if wanted:
            self._check(wanted)
        with self._lock:
            self._draft = wanted
            for viewer in self._viewers:
                if viewer is not by:
                    viewer.tell({"draft": wanted})

    def wish(self, wanted: str, by: Viewer, *, restart: bool = False) -> None:
        """Record that these GPUs are to be chosen.

        Raises
        ------
        ChoiceError
            For what can't be chosen.

        """
        if self._is_paused:
            raise ChoiceError(_UNLOADED)
        self._check(wanted)
        self._wishes.record(Wish(wanted, restart, by))

    def say(self, text: str, kind: str) -> None:
        """Say something in every panel."""
        with self._lock:
            for viewer in self._viewers:
                viewer.tell({"said": {"text": text, "kind": kind}})

    def tick(self) -> bool:
        """Read the machine and send what has changed; tell whether anybody still looks."""
        if not self._is_watched():
            return False
        message = self._look()
        with self._lock:
            if len(message) > 1 or self._tick % _BEAT == 0:
                for viewer in filter(self._is_seen, self._viewers):
                    viewer.tell(message)
        return True

    def _is_watched(self) -> bool:
        with self._lock:
            return any(map(self._is_seen, self._viewers))

    def _is_seen(self, viewer: Viewer) -> bool:
        """Whether a page shows a panel. While the kernel is busy pages may be unable to say so."""
        if viewer.seen_at == float("-inf"):
            return False
        heard = max(viewer.seen_at, self._wishes.free_since)
        return self._wishes.is_busy or time.monotonic() - heard < _LEASE

    def _look(self) -> dict[str, Any]:
        """Read the machine; return what has changed since the last time."""
        session = current()
        inventory = session.gpus(probe())
        now = picture(inventory, Allotment(inventory, session.inherited))
        with self._lock:
            self._tick += 1
            changes = now.since(self._picture)
            self._inventory, self._picture = inventory, now
            self._remember(now)
            message: dict[str, Any] = {"all": self.snapshot()} if changes is None else changes
            message["tick"] = self._tick
        return message

    def _remember(self, now: Picture) -> None:
        for key in [key for key in self._history if key not in now.now]:
            del self._history[key]
        for key, figures in now.now.items():
            util = figures[UTILIZATION]
            samples = self._history.setdefault(key, deque(maxlen=_HISTORY))
            samples.append(util if isinstance(util, int) else None)

    def _check(self, wanted: str) -> None:
        """Check a wish against the machine as it was last read: a page can send anything."""
        inventory = self._inventory
        if inventory is not None:
            decide(parse(wanted), inventory, current().inherited)

    def _carry_out(self, wish: Wish) -> None:
        """Choose, as `%gpus` would; on the main thread."""
        try:
            choice = keep(wish.wanted, Options()) if wish.restart else current().choose(wish.wanted)
        except GpuMagicError as error:
            self.say(str(error), "error")
            return
        if not choice.refusal:
            with self._lock:
                self._draft = None
                for viewer in self._viewers:
                    viewer.tell({"draft": None})
            self.say(str(choice), "done")
        elif wish.restart:
            wish.by.tell({"restart": kernel_id()})
            restart_unless_a_page_does(self._shell)
        else:
            self.say(choice.refusal, "warning")
        self._sampler.poke()


_board: Board | None = None


def board() -> Board:
    """Return this process's board; the first call makes it."""
    global _board  # noqa: PLW0603 - as there is one session
    if _board is None:
        _board = Board()
    return _board
