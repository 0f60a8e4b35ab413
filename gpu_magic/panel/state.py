"""The state that all panels of this process show, and the handling of messages from pages.

The sampler's thread reads the machine. Messages from pages arrive on any thread. Choices are made on the main
thread, between cells. One lock, `PanelState.lock`, guards the state. Messages are sent while it is held, so
that they are sent in the order of the changes. The machine is read and choices are made without the lock.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from IPython.core.getipython import get_ipython

from gpu_magic.errors import ChoiceError, GpuMagicError
from gpu_magic.interrupts import in_background
from gpu_magic.measure.sampler import Sampler
from gpu_magic.objects.memory import gpu_free
from gpu_magic.panel import messages, script, style
from gpu_magic.panel.choosing import Choosing
from gpu_magic.panel.front_end import tell_pages
from gpu_magic.panel.idle import IdleCallback
from gpu_magic.panel.machine import History, detail_of, find_variables, key_of, serialize
from gpu_magic.process.drivers import probe
from gpu_magic.process.session import current
from gpu_magic.process.view import Snapshot
from gpu_magic.processes.processes import send
from gpu_magic.restart import restart
from gpu_magic.text import page_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpu_magic.devices.model import Device

__all__ = ["PageViewer", "PanelState", "Viewer", "panel_state"]

# Pages report a watched view every 15 s, and during a cell every view that is not hidden. After a longer
# silence the page was closed, the computer sleeps, or the kernel can't hear the page during the cell. A
# Jupyter server keeps all messages for a page that has vanished, so states become rare: about 50 in a day.
_LEASE = 40.0  # seconds
_SHORTEST_PAUSE, _PART = 60.0, 1 / 8  # seconds, and the part of the time since the end of the lease
_CHIP_PAUSE = 5.0  # seconds between states for pages that show only a chip
_MOST_VIEWS = 64  # per viewer, because pages can send anything
_EXPECTED = ""  # a view that will probably be shown soon and has no name yet
_log = logging.getLogger("gpu_magic.panel")
_UNLOADED = "gpu_magic was unloaded. To choose here: %load_ext gpu_magic"


class Viewer(Protocol):
    """Sends messages to pages: the widget, or the comm for pages without a widget."""

    is_widget: bool  # pages show it with anywidget, which the Jupyter server must have

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message to its pages."""


class _View(NamedTuple):
    """A view that is not hidden."""

    is_watched: bool
    open: tuple[str, ...]  # the rows that are open
    heard_at: float
    reports_in_cells: bool  # whether the kernel hears its page during a cell
    is_chip: bool = False


class _Sent(NamedTuple):
    """The latest state that a viewer was sent."""

    state: dict[str, Any]  # without what differs each time
    next_at: float  # when the next one is due; `say` is earlier
    rare_since: float | None  # since when states are rare


class PanelState:
    """The state of all panels. `restart` needs the main thread. The other methods work on any thread."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.lock = threading.RLock()
        self.idle = IdleCallback(self._when_idle, now)
        self.choosing = Choosing(self)
        self._process = secrets.token_hex(8)
        self._sampler = Sampler(self.tick)
        self._views: dict[Viewer, dict[str, _View]] = {}
        self._sent: dict[Viewer, _Sent] = {}
        self._has_answered = False  # whether a page that shows the widget has answered
        self._shell: Any = None
        self._is_paused = self._is_restarting = self._is_free_wanted = False
        self._said: dict[str, Any] = {"number": 0}
        self._set_said()
        self._unread = ""  # why the latest reading failed
        self._begun = self._latest = 0  # the numbers of the newest reading, and of the newest finished one
        self._chosen: list[str] = []  # the choice of this process at the latest reading
        self._header: dict[str, Any] = {}
        self._rows: list[dict[str, Any]] = []
        self._history = History(now)
        self._details: dict[str, dict[str, Any]] = {}  # of open rows, by key
        self._variables: dict[str, dict[str, Any]] | None = None  # on GPUs; None: not looked for, or unknown
        self._walked_at: float | None = None  # `idle.free_since` at the latest walk

    # Add and remove panels.

    def add(self, viewer: Viewer, shell: Any) -> Snapshot:
        """Add a viewer, or expect another view of it. Return the machine. Outside IPython, `shell` is None.

        Raises
        ------
        SimulationError
            The description of the simulated machine is invalid.

        """
        self._shell = shell
        self.resume(shell)
        self.idle.attach(shell)
        snapshot = self.read()
        with self.lock:
            views = self._views.setdefault(viewer, {})
            if hasattr(shell, "kernel"):
                # A page may show it soon, but can't report that before this cell ends.
                views[_EXPECTED] = _View(True, (), self._now(), reports_in_cells=False)
                self._sampler.start()
        return snapshot

    def remove(self, viewer: Viewer) -> None:
        """Remove a closed viewer."""
        with self.lock:
            self._views.pop(viewer, None)
            self._sent.pop(viewer, None)
            if not self._views:  # no page would show the choice
                self.choosing.stop()

    def pause(self) -> None:
        """Stop because the extension is unloaded. It may be loaded again immediately."""
        with self.lock:
            if self._is_paused:
                return
            self._is_paused = True
            self.choosing.stop()
        self._sampler.stop()
        self.idle.detach()
        self.say(_UNLOADED, "warning")

    def resume(self, shell: Any) -> None:
        """Continue after `pause`, otherwise do nothing."""
        if self._is_paused:
            self._is_paused = False
            self.say("", "info")
            self.idle.attach(shell)
            self._read_now()

    def pages(self) -> tuple[int, bool]:
        """Return the number of widgets, and whether a page that shows one has answered."""
        with self.lock:
            return sum(viewer.is_widget for viewer in self._views), self._has_answered

    # Messages from pages.

    def receive(self, viewer: Viewer, message: object) -> None:
        """Do what a page asks for, or show the error."""
        try:
            kind, values = messages.read(message)
            if kind == "look":
                self._look(viewer, **values)
            elif kind == "attach":
                page = {"script": script(), "style": style(), "state": self.state(with_history=True)}
                viewer.tell({"type": "attached", **page, **values})
            elif kind == "answer_restart":
                restart.answer(**values)
            elif kind == "stop_waiting":
                self.choosing.stop()
            elif self._is_paused:
                raise ChoiceError(_UNLOADED)
            elif kind == "choose":
                self.choosing.choose(**values)
            elif kind == "wait":
                self.choosing.wait(**values)
            elif kind == "end_process":
                send(values["pid"], values["started"], kill=values["kill"])
                self._read_now()
            else:
                self._is_free_wanted = True
                self.idle.request()
        except GpuMagicError as error:
            self.say(str(error), "error")
            self.refuse(messages.page_that_chooses(message), str(error))

    def _look(self, viewer: Viewer, view: str, visibility: str, open: list[str] | None) -> None:  # noqa: A002
        with self.lock:
            self._has_answered |= viewer.is_widget
            views = self._views.setdefault(viewer, {})
            views.pop(_EXPECTED, None)
            was_open = views.pop(view).open if view in views else ()
            if visibility == "hidden":
                return
            if len(views) == _MOST_VIEWS:
                views.pop(next(iter(views)))  # the one that was reported longest ago
            # A message on another thread came by a subshell. It would also come during a cell.
            is_on_subshell = threading.current_thread() is not threading.main_thread()
            rows = tuple(open or ())
            views[view] = _View(visibility == "watched", rows, self._now(), is_on_subshell, open is None)
            # Always answered, so that the page knows that there is a kernel.
            self._send_to(viewer, with_history=True)
            is_visible = any(self._visible(viewer))
        if set(rows) - set(was_open):
            self.idle.request()  # to find the variables
            self._read_now()
        elif is_visible and not self._sampler.is_running:
            self._read_now()

    # Messages to pages.

    def state(self, viewer: Viewer | None = None, *, with_history: bool = False) -> dict[str, Any]:
        """Return everything that a page shows, with the details of the rows open in a viewer's pages."""
        with self.lock:
            state = {
                "process": self._process,  # a random name, which differs after a restart
                "second": self._history.second,  # of the latest reading, on a monotonic clock
                "header": self._header,  # see `machine.py` for the header and the rows
                "rows": self._rows,
                "said": {  # the text in all panels: its number, text, kind and warning lines
                    **self._said,
                    "text": page_text(self._said["text"]),
                    "warnings": list(map(page_text, self._said["warnings"])),
                },
                "waiting": page_text(self.choosing.waiting),
                "is_busy": self.idle.is_busy,  # whether a cell runs
                "is_paused": self._is_paused,
                "is_restarting": self._is_restarting,
                "details": {
                    key: {**self._details[key], "memory": self._history.memory(key)}
                    for key in self._open_in(viewer) & self._details.keys()
                },
            }
            # Pages extend the history of the utilization themselves.
            return {**state, "history": self._history.utilization()} if with_history else state

    def send(self, *, is_news: bool = False) -> None:
        """Send the state to all visible pages: to those that do not report only if it is due or news."""
        with self.lock:
            for viewer in list(self._views):
                if any(self._visible(viewer)) and (is_news or self._is_due(viewer)):
                    self._send_to(viewer)

    def _send_to(self, viewer: Viewer, *, with_history: bool = False) -> None:
        """Send the state, or only its times if nothing else has changed."""
        now, sent, views = self._now(), self._sent.get(viewer), list(self._visible(viewer))
        pause, rare_since = 0.0, None
        if views and not any(map(self._is_fresh, views)):
            rare_since = (sent and sent.rare_since) or now
            pause = max(_SHORTEST_PAUSE, _PART * (now - rare_since))
        state = self.state(viewer)
        times: dict[str, Any] = {"second": state.pop("second"), "pause": 0}
        if not any(view.reports_in_cells for view in views):  # such a page reports, which ends the pause
            times["pause"] = round(pause)
        self._sent[viewer] = _Sent(state, now + pause, rare_since)
        if with_history:
            times["history"] = self._history.utilization()
        elif sent is not None and sent.state == state:
            viewer.tell({"type": "same", **times})
            return
        viewer.tell({"type": "state", "state": {**state, **times}})

    def say(self, text: str, kind: str, warnings: Iterable[str] = ()) -> None:
        """Replace the text in every panel. `kind` is info, done, warning or error."""
        with self.lock:
            self._set_said(text, kind, warnings)
            self.send(is_news=True)

    def _set_said(self, text: str = "", kind: str = "info", warnings: Iterable[str] = ()) -> None:
        number = self._said["number"] + 1
        self._said = {"number": number, "text": text, "kind": kind, "warnings": list(warnings)}

    def refuse(self, page: str, text: str) -> None:
        """Tell the page that asked for a choice that it does not restart the kernel, and why."""
        with self.lock:
            for viewer in list(self._views):
                viewer.tell({"type": "refused", "page": page, "text": text})

    def restart(self, page: str = "") -> None:
        """Restart the kernel, through this page if one is named, and show the restart in every panel."""
        with self.lock:
            self._is_restarting = True
            self.send(is_news=True)

        def ask(kernel: str, page: str) -> None:
            with self.lock:
                for viewer in list(self._views):
                    viewer.tell({"type": "restart", "kernel": kernel, "page": page})

        restart.begin(self._shell, ask, page)

    # Readings.

    @in_background()
    def tick(self) -> bool:
        """Read and send the machine if a visible view is due. Return whether a view is visible."""
        with self.lock:
            viewers = [viewer for viewer in self._views if any(self._visible(viewer))]
            if not any(map(self._is_due, viewers)):
                return bool(viewers)
        try:
            self.read()
        except Exception as error:  # noqa: BLE001 - there is no cell to show it, and the next reading can succeed
            self._say_unread(error)
        return True

    def _say_unread(self, error: Exception) -> None:
        text = str(error)  # such as: the description of the simulated machine was changed and is invalid
        if not isinstance(error, GpuMagicError):
            text = f"The GPUs could not be read: {type(error).__name__}: {text}"
        with self.lock:
            self._unread = text
            if self._said["text"] == text:
                self.send()  # so that pages know that the kernel is there
            else:
                _log.debug("The GPUs could not be read", exc_info=error)
                self.say(text, "error")

    def read(self) -> Snapshot:
        """Read the machine and send it."""
        with self.lock:
            self._begun += 1
            number = self._begun
        snapshot = Snapshot.take(current(), probe())
        header, rows = serialize(snapshot)
        with self.lock:
            keys = set().union(*map(self._open_in, self._views))
        devices: list[Device] = [*snapshot.gpus]
        for gpu in snapshot.gpus:
            devices += gpu.mig
        details = {key: detail_of(device) for device in devices if (key := key_of(device)) in keys}
        with self.lock:
            if number < self._latest:  # a reading that began later was faster
                return snapshot
            self._latest = number
            chosen = [header["cuda_state"], *(row["visible_as"] for row in rows)]
            if self._said["kind"] == "done" and chosen != self._chosen:
                self._set_said()  # something else changed the choice, such as `%gpus`
            self._chosen = chosen
            if self._unread and self._said["text"] == self._unread:
                self._set_said()
            self._unread = ""
            self._header, self._rows, self._details = header, rows, details
            self._history.add(rows)
            for key, detail in details.items():
                found = self._variables
                detail["variables"] = None if found is None else found.get(key) or found[""]
            self.send()
        return snapshot

    def _read_now(self) -> None:
        if not self._is_paused:
            self._sampler.start()
            self._sampler.poke()

    # Visible views.

    def _visible(self, viewer: Viewer) -> Iterator[_View]:
        """Yield the visible views: those that are watched, and during a cell all that are not hidden."""
        is_busy = self.idle.is_busy
        for view in self._views.get(viewer, {}).values():
            if not is_busy:
                is_visible = view.is_watched and self._is_fresh(view)
            else:  # a page has vanished if it could report a watched view, but does not
                is_visible = self._is_fresh(view) or not (view.is_watched and view.reports_in_cells)
            if is_visible:
                yield view

    def _is_fresh(self, view: _View) -> bool:
        """Return whether a view was reported recently, or could not be before the latest cell ended."""
        since = view.heard_at
        if not (view.reports_in_cells or self.idle.is_busy):
            since = max(since, self.idle.free_since)
        return self._now() - since < _LEASE

    def _is_due(self, viewer: Viewer) -> bool:
        """Return whether it is time for the next state."""
        now, sent = self._now(), self._sent.get(viewer)
        fresh = [view for view in self._visible(viewer) if self._is_fresh(view)]
        if sent is None or any(not view.is_chip for view in fresh):
            return True
        if fresh:  # for chips, the latest state was due when it was sent
            return now - sent.next_at >= _CHIP_PAUSE or sent.next_at <= self.idle.free_since
        return sent.next_at <= now

    def _open_in(self, viewer: Viewer | None) -> set[str]:
        if viewer is None:
            return set()
        return {key for view in self._visible(viewer) for key in view.open}

    # Between cells, on the main thread.

    def find_variables_again(self) -> None:
        """Find the variables on GPUs again, because they have moved without a cell."""
        self._walked_at = None
        self.idle.request()

    @in_background()
    def _when_idle(self, before_cell: bool) -> None:
        with self.lock:
            if before_cell and any(self._views.values()):
                self._sampler.start()  # for unwatched views, which are visible only during cells
        if self._is_free_wanted:
            self._is_free_wanted = False
            self.say(*_free())
            self._walked_at = self._variables = None
        self.choosing.when_idle(before_cell=before_cell)
        # Last, because a choice can't wait for a walk or fail with it. The next cell can't wait either.
        if not before_cell:
            self._walk()

    def _walk(self) -> None:
        """Find the variables on GPUs if a row is open and they may have changed."""
        with self.lock:
            is_open = any(map(self._open_in, self._views))
        if self._shell is None or not is_open or self._walked_at == self.idle.free_since:
            return
        found = None
        try:
            found = find_variables(self._shell)
        except Exception as error:  # noqa: BLE001 - the user's objects can raise anything
            _log.debug("The variables on GPUs are unknown: %s", type(error).__name__)
        with self.lock:
            self._walked_at, self._variables = self.idle.free_since, found
        self._read_now()


def _free() -> tuple[str, str]:
    """Free memory as `%gpu_free` does. Return the text to show and its kind."""
    try:
        return repr(gpu_free()), "done"
    except GpuMagicError as error:
        return str(error), "error"
    except Exception as error:  # noqa: BLE001 - there is no cell to show it
        return f"Nothing was freed: {type(error).__name__}: {error}", "error"


class PageViewer:
    """The pages that found this kernel by its comm. `send` sends a message to all of them."""

    is_widget = False  # the comm sends its script

    def __init__(self, send: Callable[[Any], None]) -> None:
        self.tell = send
        self._is_added = False
        self._state = panel_state()

    @in_background()
    def receive(self, message: object) -> None:
        """Handle a message from a page."""
        if not self._is_added:
            try:
                self._state.add(self, get_ipython())
                self._is_added = True
            except GpuMagicError as error:  # the description of the simulated machine is invalid
                self._state.say(str(error), "error")
        self._state.receive(self, message)

    def close(self) -> None:
        """Disconnect the pages. Tell all of them why: hidden ones can't ask later."""
        self._state.pause()
        if self._is_added:
            self.tell({"type": "state", "state": self._state.state()})
        self._state.remove(self)
        self._is_added = False
        self.tell({"type": "closed"})


_state: PanelState | None = None
_made = threading.Lock()  # pages and cells can ask for the state at the same time, on several threads


def panel_state() -> PanelState:
    """Return the state of this process. The first call creates it."""
    global _state  # noqa: PLW0603 - a process has one
    with _made:
        if _state is None:
            _state = PanelState()
            tell_pages(_state.pages)
        return _state
