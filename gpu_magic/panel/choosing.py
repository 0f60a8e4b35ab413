"""Choices made in panels: at once, or as soon as the GPUs are free. Always between cells."""

from __future__ import annotations

import atexit
import contextlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gpu_magic.errors import GpuMagicError, NotFreeError
from gpu_magic.gpus.apply import apply
from gpu_magic.gpus.options import split_request
from gpu_magic.gpus.wait import Waiting
from gpu_magic.process.drivers import probe
from gpu_magic.process.session import current
from gpu_magic.restart.saved import save

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_magic.panel.idle import IdleCallback

__all__ = ["Choosing"]

_LONGEST_STOP = 0.5  # seconds


class _Wanted(NamedTuple):
    """The choice that a page asked for."""

    request: str
    restart: bool = False  # whether to restart the kernel if CUDA has started with other GPUs
    page: str = ""  # the page that restarts the kernel
    waiting: Waiting | None = None  # the wait that has found the GPUs free


@dataclass
class _Wait:
    """A wait for GPUs, which runs on its own thread."""

    request: str
    waiting: Waiting
    chosen: object  # the choice of this process when the wait began
    ended: threading.Event = field(default_factory=threading.Event)
    is_ready: bool = False  # the GPUs were free at the last look
    thread: threading.Thread | None = None

    def __str__(self) -> str:
        if self.is_ready:
            return f"{self.waiting.wanted}: free. Chosen when the kernel is free."
        return f"{self.waiting.progress}."


class _Panel(Protocol):
    """`PanelState`."""

    lock: threading.RLock
    idle: IdleCallback

    def say(self, text: str, kind: str, warnings: Iterable[str] = ()) -> None: ...
    def send(self) -> None: ...
    def read(self) -> object: ...
    def refuse(self, page: str, text: str) -> None: ...
    def restart(self, page: str = "") -> None: ...


class Choosing:
    """Keeps the latest choice that waits for the kernel, and the latest wait for GPUs.

    `when_idle` needs the main thread. The other methods work on any thread. The panel's lock guards the
    attributes. The machine is read and choices are made without the lock.
    """

    def __init__(self, panel: _Panel) -> None:
        self._panel, self._lock = panel, panel.lock
        self._wanted: _Wanted | None = None
        self._wait: _Wait | None = None
        self.waiting = ""  # the progress of the wait, as text; empty if there is none
        # A daemon thread that writes to a kernel's sockets while Python shuts down can crash it.
        atexit.register(self._end_thread)

    def choose(self, request: str, *, restart: bool, page: str) -> None:
        """Choose as soon as no cell runs."""
        with self._lock:
            self.stop()
            if self._wanted is not None:
                self._panel.refuse(self._wanted.page, "Another choice was made meanwhile.")
            self._wanted = _Wanted(request, restart, page)
        self._panel.idle.request()

    def wait(self, request: str) -> None:
        """Start to wait for GPUs, in place of an earlier wait for others.

        Raises
        ------
        ChoiceError
            The request names nothing to wait for.

        """
        devices, options = split_request(request)
        session = current()
        wait = _Wait(request, Waiting(session, devices, options, None), session.chosen)
        with self._lock:
            if self._wait is not None and self._wait.request == request:
                self._panel.say("", "info")
                return  # it keeps its place in line
            self.stop()
            self._wait = wait
            self.waiting = "Looking for who uses them."
            self._panel.say("", "info")
            wait.thread = threading.Thread(
                target=self._look, args=(wait,), name="gpu_magic-wait", daemon=True
            )
            wait.thread.start()

    def stop(self) -> None:
        """Stop waiting, without a choice."""
        with self._lock:
            if self._wait is not None:
                self._wait.ended.set()
                self._wait, self.waiting = None, ""
                self._panel.send()

    def when_idle(self, *, before_cell: bool) -> None:
        """Make the pending choice, if there is one."""
        with self._lock:
            wanted = self._take(before_cell=before_cell)
        if wanted is None:
            return
        try:
            said = _choose(wanted)
        except NotFreeError as error:  # another process was faster
            with self._lock:
                if self._wait is not None:
                    self._wait.waiting.holders = error.holders
                    self._show(self._wait)
            return
        if said is None:
            self._panel.restart(wanted.page)
            return
        if wanted.waiting:
            self.stop()
        # Read before `say`, because the next reading with another choice removes the text.
        with contextlib.suppress(Exception):  # the next reading shows the error
            self._panel.read()
        self._panel.say(*said)
        if wanted.page:
            self._panel.refuse(wanted.page, said[0])

    def _take(self, *, before_cell: bool) -> _Wanted | None:
        wanted, wait = self._wanted, self._wait
        if wanted is not None:
            # A restart would end the cell that is about to run.
            if wanted.restart and before_cell:
                return None
            self._wanted = None
        elif wait is not None and current().chosen is not wait.chosen:
            self._end(wait, "Waiting stopped because another choice was made.", "info")
        elif wait is not None and wait.is_ready:
            wait.is_ready = False
            return _Wanted(wait.request, waiting=wait.waiting)
        return wanted

    def _look(self, wait: _Wait) -> None:
        try:
            while not wait.ended.is_set():
                is_ready = wait.waiting.look()
                with self._lock:
                    if self._wait is not wait:
                        return
                    wait.is_ready = is_ready
                    self._show(wait)
                if is_ready:
                    self._panel.idle.request()
                wait.ended.wait(wait.waiting.next_pause())
        except GpuMagicError as error:
            self._end(wait, str(error), "error")
        except Exception as error:  # noqa: BLE001 - there is no cell to show it
            self._end(wait, f"Waiting stopped: {type(error).__name__}: {error}", "error")
        finally:
            wait.waiting.leave_line()

    def _end(self, wait: _Wait, text: str, kind: str) -> None:
        """End a wait and show why, unless it has already ended."""
        with self._lock:
            if self._wait is wait:
                self.stop()
                self._panel.say(text, kind)

    def _show(self, wait: _Wait) -> None:
        self.waiting = str(wait)
        self._panel.send()

    def _end_thread(self) -> None:
        """End the thread when Python exits. Wait at most half a second for its current look."""
        wait, self._wait = self._wait, None
        if wait is not None and wait.thread is not None:
            wait.ended.set()
            with contextlib.suppress(RuntimeError):  # in a forked child
                wait.thread.join(_LONGEST_STOP)


def _choose(wanted: _Wanted) -> tuple[str, str, list[str]] | None:
    """Choose, as `%gpus` would. Return the text to show, its kind, and its lines that are warnings.

    Return None if the choice came too late and was saved for a restart of the kernel. Raise NotFreeError, and
    change nothing, if another process claimed or used the GPUs after the wait.
    """
    session = current()
    try:
        if wanted.waiting and probe().can_change:
            choice = wanted.waiting.choose()
        else:
            choice = apply(session, *split_request(wanted.request))
        if not choice.too_late:
            return str(choice), "done", choice.warnings
        if not wanted.restart:
            return choice.refusal, "warning", []
        save(choice.too_late.request, choice.devices, choice.too_late.options.to_save)
    except GpuMagicError as error:
        if wanted.waiting and isinstance(error, NotFreeError):
            raise
        return str(error), "error", []
    except Exception as error:  # noqa: BLE001 - there is no cell to show it, and a page waits
        return f"Nothing was chosen: {type(error).__name__}: {error}", "error", []
    return None
