"""What all panels of this process show: one state, read by one thread, and what pages ask of it.

The machine is read on the sampler's thread, messages from pages come in on any, and choices are made on the
main thread, between cells. One lock, `PanelState._lock`, guards all that is kept here and in its
parts. Messages are sent while it is held, so that they go out in the order of the changes. The machine is
read, and a choice is made, without it.
"""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import ChoiceError, GpuMagicError
from gpu_magic.interrupts import unasked
from gpu_magic.process.front_end import tell_pages
from gpu_magic.process.sampler import Sampler
from gpu_magic.restart import restart
from gpu_magic.widget.broadcast import Broadcast
from gpu_magic.widget.choices import Choices
from gpu_magic.widget.details import Details
from gpu_magic.widget.history import History
from gpu_magic.widget.idle import IdleCallback
from gpu_magic.widget.kernel_messages import (
    Changes,
    Heartbeat,
    Notice,
    Paused,
    Restart,
    Restarting,
    State,
)
from gpu_magic.widget.page_state import FullState, as_arrays
from gpu_magic.widget.readings import Readings, read
from gpu_magic.widget.viewers import Viewers

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_magic.process.view import Snapshot
    from gpu_magic.widget.kernel_messages import KernelMessage
    from gpu_magic.widget.page_messages import SetVisibility
    from gpu_magic.widget.viewers import Viewer

__all__ = ["PanelState", "panel_state"]

_HEARTBEAT = 10.0  # seconds after which something is sent although nothing has changed
_UNLOADED = "gpu_magic was unloaded, so nothing can be chosen here: %load_ext gpu_magic."


class PanelState:
    """What panels show. Its methods can be called on any thread; `restart` needs the main one."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process = secrets.token_hex(8)
        self._idle = IdleCallback(self._when_idle)
        self._sampler = Sampler(self.tick)
        self._viewers = Viewers(self._idle)
        self._history = History()
        self._readings = Readings()
        self._broadcast = Broadcast(self._lock, self._viewers)
        self._shell: Any = None
        self._is_paused = False
        self.choices = Choices(
            self._lock, self._broadcast, self._readings, self._idle, read=self._read, restart=self.restart
        )
        self.details = Details(
            self._lock,
            self._viewers,
            self._history,
            self._idle,
            read_now=self._read_now,
            notify=self._broadcast.notify,
        )

    # Panels come and go.

    def add(self, viewer: Viewer, shell: Any) -> Snapshot:
        """Take in a new panel; return the machine as it shows it. The shell is None outside IPython.

        Raises
        ------
        SimulationError
            The machine can't be read, as its simulation is described in words that are not understood.

        """
        self._shell = shell
        self.resume(shell)
        self._idle.attach(shell)
        snapshot = self._read()
        is_in_kernel = hasattr(shell, "kernel")
        with self._lock:
            self._viewers.add(viewer)
            if is_in_kernel:
                self._viewers.expect(viewer)
        if is_in_kernel:
            self._sampler.start()
        return snapshot

    def remove(self, viewer: Viewer) -> None:
        """Forget a panel that was closed."""
        with self._lock:
            self._viewers.remove(viewer)
            self.details.remove(viewer)
            if self._viewers.is_empty:  # nobody would learn of it
                self.choices.waits.stop()

    def pause(self) -> None:
        """Stop, as the extension is unloaded; it may be loaded again right away."""
        with self._lock:
            self._is_paused = True
            self.choices.drop()
        self._sampler.stop()
        self._idle.detach()
        self._broadcast.send(Paused(True))
        self._broadcast.notify(_UNLOADED, "warning")

    def resume(self, shell: Any) -> None:
        """Go on after `pause`; else do nothing."""
        if not self._is_paused:
            return
        self._is_paused = False
        self._broadcast.send(Paused(False))
        self._broadcast.notify("", "info")
        self._idle.attach(shell)
        if self._is_any_visible():
            self._read_now()

    # What pages ask for; see the messages of the same names.

    def set_visibility(self, viewer: Viewer, message: SetVisibility) -> None:
        """Note whether a view is visible, and send its page what it has missed."""
        with self._lock:
            self._viewers.set_visibility(viewer, message)
            if message.visibility == "hidden":
                self._idle.request()  # it may be one that is left
                return
            is_current = message.version == self._broadcast.version
            # Answered in any case: a page that hears something knows that there is a kernel.
            viewer.tell(self._heartbeat() if is_current else State(self.full_state()))
            is_read = self._sampler.is_running or self._is_paused or not self._viewers.is_any_visible
        if not is_read:
            self._read_now()

    def check_loaded(self) -> None:
        """Raise ChoiceError where the extension was unloaded, so that nothing is done here."""
        if self._is_paused:
            raise ChoiceError(_UNLOADED)

    def pages(self) -> tuple[int, bool]:
        """Return how many panels cells have shown, and whether a page has answered one of them."""
        with self._lock:
            return self._viewers.widgets, self._viewers.is_heard

    # What the pages are sent.

    def full_state(self) -> FullState:
        """Return all that a page needs to begin with."""
        with self._lock:
            draft, draft_number, clicks = self.choices.pending.now
            return FullState(
                process=self._process,
                second=self._history.second,
                version=self._broadcast.version,
                header=self._readings.machine.header,
                rows=self._readings.machine.rows,
                figures=as_arrays(self._readings.machine.figures),
                order=list(self._readings.machine.rows),
                history=self._history.utilization(),
                draft=draft,
                draft_number=draft_number,
                clicks=clicks,
                is_waiting=self.choices.pending.is_waiting,
                said=self._broadcast.said,
                waiting=self.choices.waits.text,
                is_paused=self._is_paused,
            )

    def refuse(self, viewer: Viewer, text: str) -> None:
        """Say in one panel that what it has sent was refused."""
        with self._lock:
            viewer.tell(Notice(text, "error", [], 0))

    def restart(self, shell: Any, tell: Callable[[KernelMessage], None], page: str = "") -> None:
        """Restart the kernel, and say so in every visible panel.

        Parameters
        ----------
        shell
            The kernel's.
        tell
            Sends a message to the pages that can do it.
        page
            The page that is to do it; empty: any.

        """
        self._broadcast.send(Restarting())
        restart.begin(shell, lambda kernel, page: tell(Restart(kernel, page)), page)

    @unasked()
    def tick(self) -> bool:
        """Read the machine and send what has changed; return whether any view is visible."""
        if not self._is_any_visible():
            return False
        try:
            self._read()
        except GpuMagicError as error:  # a simulation that is described anew, and wrongly
            self._broadcast.notify(str(error), "error")
        return True

    def _read(self) -> Snapshot:
        """Read the machine, and send what has changed since the last reading."""
        with self._lock:
            number = self._readings.begin()
        reading = read()
        with self._lock:
            if self._readings.is_late(number):
                return reading.snapshot
            changes = self._readings.keep(number, reading)
            self._history.add(reading.machine.figures)
            if changes is None:
                self._broadcast.version += 1
                self._broadcast.send(State(self.full_state()))
            elif any(changes):
                header, rows, figures = changes
                self._broadcast.publish(Changes(*self._heartbeat(), 0, header, rows, as_arrays(figures)))
                if "cuda_state" in header or any("visible_as" in row for row in rows.values()):
                    self._broadcast.forget_done()
            elif self._viewers.silence >= _HEARTBEAT:
                self._broadcast.send(self._heartbeat())
        self.details.update(reading.snapshot)
        return reading.snapshot

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(self._history.second, self._history.unbroken)

    def _read_now(self) -> None:
        if not self._is_paused:
            self._sampler.start()
            self._sampler.poke()

    def _is_any_visible(self) -> bool:
        with self._lock:
            return self._viewers.is_any_visible

    @unasked()
    def _when_idle(self, before_cell: bool) -> None:
        """Do what is done between cells; begin to read where panels are shown during cells only."""
        with self._lock:
            hidden = self._viewers.out_of_sight
        while hidden:  # a list that still has it would hold it
            hidden.pop().close_if_left(self._shell)
        with self._lock:
            if before_cell and self._viewers.is_any_unwatched:
                self._sampler.start()
        self.details.when_idle(self._shell, before_cell=before_cell)
        self.choices.when_idle(self._shell, before_cell=before_cell)


_state: PanelState | None = None


def panel_state() -> PanelState:
    """Return this process's; the first call makes it."""
    global _state  # noqa: PLW0603 - as there is one session
    if _state is None:
        _state = PanelState()
        tell_pages(_state.pages)
    return _state
