"""The rows that are open in pages: what is read for them, and sent to those pages alone."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import GpuMagicError
from gpu_magic.objects.memory import gpu_free
from gpu_magic.processes.processes import send
from gpu_magic.widget.detail import DeviceDetail, read_device_detail
from gpu_magic.widget.kernel_messages import Detail
from gpu_magic.widget.serialization import key_of
from gpu_magic.widget.variables import Variables, find_variables

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import RLock

    from gpu_magic.devices.model import Device
    from gpu_magic.process.view import Snapshot
    from gpu_magic.widget.history import History
    from gpu_magic.widget.idle import IdleCallback
    from gpu_magic.widget.page_messages import EndProcess, SetDetails
    from gpu_magic.widget.page_state import NoticeKind
    from gpu_magic.widget.viewers import Viewer, Viewers

__all__ = ["Details"]

_MOST_VIEWS = 64  # of one panel: pages can send anything


class Details:
    """What panels show below rows that are open.

    Its methods can be called on any thread; `when_idle` needs the main one.

    Parameters
    ----------
    lock
        `PanelState`'s, which guards what is kept here. Nothing is read while it is held.
    viewers, history, idle
        Its parts.
    read_now
        Has the machine read at once.
    notify
        Shows a text in every panel.

    """

    def __init__(
        self,
        lock: RLock,
        viewers: Viewers,
        history: History,
        idle: IdleCallback,
        *,
        read_now: Callable[[], None],
        notify: Callable[[str, NoticeKind], None],
    ) -> None:
        self._lock, self._viewers, self._history, self._idle = lock, viewers, history, idle
        self._read_now, self._notify = read_now, notify
        self._open: dict[Viewer, dict[str, tuple[str, ...]]] = {}  # the keys, by view
        # The panels with a page that has asked for all; a dictionary, as `leftovers` knows such registers.
        self._asked: dict[Viewer, bool] = {}
        self._sent: dict[str, DeviceDetail] = {}  # the latest ones
        self._variables: dict[str, Variables] = {}
        self._walked_at: float | None = None  # when the last cell had ended that was there at the latest walk
        self._is_free_wanted = False

    # What pages ask for; see the messages of the same names.

    def set_open(self, viewer: Viewer, message: SetDetails) -> None:
        """Note which rows are open in a view, and have its page told all of them."""
        with self._lock:
            views = self._open.setdefault(viewer, {})
            views.pop(message.view, None)
            if not message.keys:
                return
            if len(views) == _MOST_VIEWS:
                views.pop(next(iter(views)))
            views[message.view] = message.keys
            self._asked[viewer] = True
        self._idle.request()  # to look at the variables
        self._read_now()

    def end(self, message: EndProcess) -> None:
        """Send a process of this user TERM or KILL.

        Raises
        ------
        ProcessError
            It may not be sent that.

        """
        send(message.pid, message.started, kill=message.kill)
        self._read_now()

    def free(self) -> None:
        """Give memory back as soon as no cell runs."""
        self._is_free_wanted = True
        self._idle.request()

    def remove(self, viewer: Viewer) -> None:
        """Forget a panel that was closed."""
        with self._lock:
            self._open.pop(viewer, None)
            self._asked.pop(viewer, None)

    # What is read.

    def update(self, snapshot: Snapshot) -> None:
        """Read what is open, and send what has changed; after each reading of the machine."""
        with self._lock:
            keys = {key for viewer in self._open for key in self._open_keys(viewer)}
            variables = self._variables if self._walked_at is not None else None
        if not keys:
            return
        devices: list[Device] = [*snapshot.gpus]
        for gpu in snapshot.gpus:
            devices += gpu.mig
        found = {
            key: read_device_detail(device, _of_device(variables, key))
            for device in devices
            if (key := key_of(device)) in keys
        }
        with self._lock:
            self._send(found)

    def when_idle(self, shell: Any, *, before_cell: bool) -> None:
        """Give memory back if that was asked for, and look at the variables; between cells."""
        if self._is_free_wanted:
            self._is_free_wanted = False
            self._notify(*_free())
            self._walked_at = None
        with self._lock:
            is_open = any(map(self._open_keys, self._open))
        # A cell that waits its turn is not kept waiting for what nobody has asked for.
        if before_cell or not is_open or self._walked_at == self._idle.free_since:
            return
        with contextlib.suppress(GpuMagicError):  # the machine can't be read, as the next reading says
            found = find_variables(shell)
            with self._lock:
                self._walked_at, self._variables = self._idle.free_since, found
            self._read_now()

    def _open_keys(self, viewer: Viewer) -> set[str]:
        """Return what is open in the views of a panel that are visible."""
        views = self._open[viewer]
        visible = self._viewers.visible_views(viewer) if views else ()
        return {key for view in visible for key in views.get(view, ())}

    def _send(self, found: dict[str, DeviceDetail]) -> None:
        when = self._history.second, self._history.unbroken
        changes = {key: _changed(self._sent.get(key), detail) for key, detail in found.items()}
        self._sent = found
        for viewer in list(self._open):
            is_asked = viewer in self._asked
            keys = self._open_keys(viewer)
            for key in [key for key in found if key in keys]:
                if is_asked:
                    whole = DeviceDetail(**found[key], memory=self._history.memory(key))
                    viewer.tell(Detail(*when, key, dict(whole)))
                elif changes[key]:
                    viewer.tell(Detail(*when, key, changes[key]))
            if keys:
                self._asked.pop(viewer, None)


def _of_device(variables: dict[str, Variables] | None, key: str) -> Variables | None:
    return None if variables is None else variables.get(key) or variables[""]


def _changed(before: DeviceDetail | None, now: DeviceDetail) -> dict[str, Any]:
    return {name: value for name, value in now.items() if before is None or value != before.get(name)}


def _free() -> tuple[str, NoticeKind]:
    """Do what `%gpu_free` does; return what to say."""
    try:
        return repr(gpu_free()), "done"
    except GpuMagicError as error:
        return str(error), "error"
    except Exception as error:  # noqa: BLE001 - there is no cell to show it
        return f"Nothing was freed: {type(error).__name__}: {error}", "error"
