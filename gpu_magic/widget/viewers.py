"""Who looks: the panels of this process, and the views in pages that show them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from gpu_magic.widget.idle import IdleCallback
    from gpu_magic.widget.kernel_messages import KernelMessage
    from gpu_magic.widget.page_messages import SetVisibility

__all__ = ["Viewer", "Viewers"]

# A page says every 15 s that a view is watched. One that was closed, or whose computer sleeps, says nothing.
_LEASE = 40.0  # seconds
_LONGEST_LEASE = 24 * 3600.0  # of a view that is unwatched, and says nothing for as long as it is
_MOST_VIEWS = 64  # of one panel: pages can send anything
_EXPECTED = ""  # a view that is likely to be shown soon, and has no name yet


class Viewer(Protocol):
    """A panel.

    Attributes
    ----------
    is_widget
        Whether pages show it by anywidget, which the Jupyter server has to have.

    """

    is_widget: bool

    def tell(self, message: KernelMessage) -> None:
        """Send a message to the pages that have the panel."""

    def close_if_left(self, shell: Any) -> None:
        """Close, where nobody can come to see it again; called between cells, while no page shows it."""


class _View(NamedTuple):
    """A view that is not hidden: whether it is watched, and when its page has said so."""

    is_watched: bool
    heard_at: float


class Viewers:
    """Keeps panels, and what is known of each of their views.

    A watched view is visible for as long as its page says so, an unwatched one while a cell runs.

    Has no lock: `PanelState` guards it.

    Parameters
    ----------
    idle
        Knows whether a cell runs.

    Attributes
    ----------
    is_heard
        Whether a page has ever said anything of a panel that it shows by anywidget.

    """

    def __init__(self, idle: IdleCallback) -> None:
        self._idle = idle
        self._views: dict[Viewer, dict[str, _View]] = {}
        self._is_heard_while_busy = False
        self.is_heard = False
        self._sent_at = time.monotonic()

    @property
    def widgets(self) -> int:
        """How many panels there are that pages show by anywidget."""
        return sum(viewer.is_widget for viewer in self._views)

    @property
    def is_empty(self) -> bool:
        return not self._views

    @property
    def out_of_sight(self) -> list[Viewer]:
        """Panels without a view that is not hidden, as far as their pages have said anything."""
        return [viewer for viewer, views in self._views.items() if views.keys() <= {_EXPECTED}]

    @property
    def is_any_visible(self) -> bool:
        return any(map(self._is_visible, self._views))

    @property
    def is_any_unwatched(self) -> bool:
        return any(not view.is_watched for views in self._views.values() for view in views.values())

    @property
    def silence(self) -> float:
        """Seconds since something was sent to all."""
        return time.monotonic() - self._sent_at

    def add(self, viewer: Viewer) -> None:
        self._views[viewer] = {}

    def remove(self, viewer: Viewer) -> None:
        self._views.pop(viewer, None)

    def expect(self, viewer: Viewer) -> None:
        """Take a panel for visible: a page may show it soon, and can't say so before this cell ends."""
        self._views[viewer][_EXPECTED] = _View(True, time.monotonic())

    def set_visibility(self, viewer: Viewer, message: SetVisibility) -> None:
        """Note what a page has said of a view."""
        self.is_heard = self.is_heard or viewer.is_widget
        self._is_heard_while_busy = self._is_heard_while_busy or self._idle.is_busy
        views = self._views.get(viewer)
        if views is None:  # the panel was closed
            return
        views.pop(_EXPECTED, None)
        views.pop(message.view, None)
        if message.visibility != "hidden":
            if len(views) == _MOST_VIEWS:
                views.pop(next(iter(views)))  # the one last heard of longest ago
            views[message.view] = _View(message.visibility == "watched", time.monotonic())

    def send(self, message: KernelMessage) -> None:
        """Send a message to all panels that are visible."""
        self._sent_at = time.monotonic()
        for viewer in filter(self._is_visible, list(self._views)):
            viewer.tell(message)

    def visible_views(self, viewer: Viewer) -> list[str]:
        """Return the names of a panel's views that are visible."""
        views = self._views.get(viewer, {})
        if self._idle.is_busy and not self._is_heard_while_busy:
            # Pages of some kernels can't say anything while a cell runs.
            return list(views)
        now, free_since = time.monotonic(), self._idle.free_since
        return [
            name
            for name, view in views.items()
            if (
                now - max(view.heard_at, free_since) < _LEASE
                if view.is_watched
                else self._idle.is_busy and now - view.heard_at < _LONGEST_LEASE
            )
        ]

    def _is_visible(self, viewer: Viewer) -> bool:
        return bool(self.visible_views(viewer))
