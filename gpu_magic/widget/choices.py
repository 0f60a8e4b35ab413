"""What is chosen by clicking: the draft, the choice that waits for the kernel, and the wait for GPUs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import ChoiceError, GpuMagicError, NotFreeError
from gpu_magic.widget.kernel_messages import Draft, Outdated
from gpu_magic.widget.pending import PendingChoice, WaitingChoice, carry_out
from gpu_magic.widget.waiting import PanelWait

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import RLock

    from gpu_magic.widget.broadcast import Broadcast
    from gpu_magic.widget.idle import IdleCallback
    from gpu_magic.widget.kernel_messages import KernelMessage
    from gpu_magic.widget.page_messages import Choose, SetDraft, Wait
    from gpu_magic.widget.readings import Readings
    from gpu_magic.widget.viewers import Viewer

__all__ = ["Choices"]


class Choices:
    """What panels choose. Its methods can be called on any thread; `when_idle` needs the main one.

    Parameters
    ----------
    lock
        `PanelState`'s, which guards what is kept here. No choice is made while it is held.
    broadcast, readings, idle
        Its parts.
    read
        Reads the machine, and has panels show it.
    restart
        Restarts the kernel: given its shell, what sends a message, and the page that is to do it.

    """

    def __init__(
        self,
        lock: RLock,
        broadcast: Broadcast,
        readings: Readings,
        idle: IdleCallback,
        *,
        read: Callable[[], object],
        restart: Callable[[Any, Callable[[KernelMessage], None], str], None],
    ) -> None:
        self._lock, self._broadcast, self._readings, self._idle = lock, broadcast, readings, idle
        self._read, self._restart = read, restart
        self.pending = PendingChoice()
        self.waits = PanelWait(lock, broadcast, idle)

    # What pages ask for; see the messages of the same names.

    def set_draft(self, viewer: Viewer, message: SetDraft) -> None:
        """Show in every panel what was clicked in one, and is not applied yet.

        Raises
        ------
        ChoiceError
            It can't be chosen.

        """
        with self._lock:
            if not self.pending.knows_latest(message):
                viewer.tell(Outdated(*self.pending.now))
                return
            self.pending.note(message)
            try:
                if message.request:
                    self._readings.check(message.request)
            except ChoiceError:
                viewer.tell(Draft(*self.pending.now, message.page, 0))
                raise
            if not self.waits.is_for(message.request):  # a click that was sent again
                self.waits.stop()
            self._change_draft(message.request, message.page)

    def choose(self, viewer: Viewer, message: Choose) -> None:
        """Choose as soon as no cell runs.

        Raises
        ------
        ChoiceError
            It can't be chosen.

        """
        self._readings.check(message.request)
        with self._lock:
            self.waits.stop()
            self.pending.put(WaitingChoice(message, viewer))
        self._idle.request()

    def wait(self, viewer: Viewer, message: Wait) -> None:
        """Choose as soon as nobody else has these GPUs, and no cell runs.

        Raises
        ------
        ChoiceError
            They can't be chosen, or not be waited for.

        """
        self._readings.check(message.request)
        self.waits.start(viewer, message.request)

    def drop(self) -> None:
        """Drop what was clicked, and wait for nothing."""
        with self._lock:
            self.waits.stop()
            self._change_draft(None)

    def _change_draft(self, request: str | None, page: str = "") -> None:
        with self._lock:
            self.pending.change(request, page)
            self._broadcast.said = "", "info", []  # it was about the draft before; pages do the same
            self._broadcast.publish(Draft(*self.pending.now, page, 0))

    # Choices are made on the main thread.

    def when_idle(self, shell: Any, *, before_cell: bool) -> None:
        """Make the choice that waits, if one does; between cells."""
        with self._lock:
            choice = self.pending.take(before_cell=before_cell) or self.waits.take()
        if choice is None:
            return
        try:
            outcome = carry_out(choice)
        except NotFreeError as error:
            self.waits.go_on(error.holders)
            return
        if outcome is None:
            self._restart(shell, choice.viewer.tell, choice.choose.page)
            return
        self.waits.stop()
        try:
            # Before it is said, as what a later reading shows is not this choice's doing.
            with contextlib.suppress(GpuMagicError):  # the next reading says so
                self._read()
        finally:
            with self._lock:
                # What was clicked meanwhile stays.
                if outcome[1] == "done" and self.pending.draft == choice.choose.request:
                    self._change_draft(None)
                self._broadcast.notify(*outcome)
