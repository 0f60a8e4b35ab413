"""What was clicked and is not applied yet: the draft, and the choice that waits until no cell runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.errors import GpuMagicError, NotFreeError
from gpu_magic.gpus.apply import apply
from gpu_magic.gpus.options import split_request
from gpu_magic.process.drivers import probe
from gpu_magic.process.session import current
from gpu_magic.process.view import read_machine
from gpu_magic.restart.saved import save

if TYPE_CHECKING:
    from gpu_magic.widget.page_messages import Choose, SetDraft
    from gpu_magic.widget.page_state import NoticeKind
    from gpu_magic.widget.viewers import Viewer

__all__ = ["PendingChoice", "WaitingChoice", "carry_out"]

_MOST_PAGES = 64  # pages can send anything


class WaitingChoice(NamedTuple):
    """A choice that is made as soon as no cell runs.

    Parameters
    ----------
    choose
        What a page has asked for.
    viewer
        The panel on which that was.
    only_free
        Whether the GPUs were waited for, and are chosen only where nobody else has them.

    """

    choose: Choose
    viewer: Viewer
    only_free: bool = False


class PendingChoice:
    """Keeps the latest of each: whoever clicks twice means the second click.

    `draft` is a request; empty: no device so far; None: nothing was clicked.

    Has no lock: `PanelState` guards it.
    """

    def __init__(self) -> None:
        self.draft: str | None = None
        self._number = 0  # of its changes
        self._clicks: dict[str, int] = {}  # of each page, the latest that it contains or that was refused
        self._page = ""  # that made the latest change
        self._others = 0  # the number of the latest change that another page, or the kernel, has made
        self._waiting: WaitingChoice | None = None

    @property
    def now(self) -> tuple[str | None, int, dict[str, int]]:
        """The draft, the number of its changes, and which clicks of each page it has, as in `Draft`."""
        return self.draft, self._number, dict(self._clicks)

    @property
    def is_waiting(self) -> bool:
        """Whether a choice waits."""
        return self._waiting is not None

    def knows_latest(self, click: SetDraft) -> bool:
        """Return whether a page knew all changes but its own when it was clicked on."""
        others = self._others if click.page == self._page else self._number
        return click.number >= others

    def note(self, click: SetDraft) -> None:
        """Note that a page's click was dealt with, and need not be repeated."""
        self._clicks.pop(click.page, None)
        if len(self._clicks) == _MOST_PAGES:
            self._clicks.pop(next(iter(self._clicks)))
        self._clicks[click.page] = click.click

    def change(self, request: str | None, page: str = "") -> None:
        """Change the draft; without a page, the kernel does it."""
        if page != self._page:
            self._page, self._others = page, self._number
        self._number += 1
        self.draft = request

    def put(self, choice: WaitingChoice) -> None:
        """Have a choice wait, in place of the one that waits."""
        self._waiting = choice

    def take(self, *, before_cell: bool) -> WaitingChoice | None:
        """Return the choice that waits, to be carried out now; None where there is none.

        A restart waits until no cell is left to run: it would kill the cell that is about to begin.
        """
        choice = self._waiting
        if choice is not None and choice.choose.restart and before_cell:
            return None
        self._waiting = None
        return choice


def carry_out(choice: WaitingChoice) -> tuple[str, NoticeKind, list[str]] | None:
    """Choose, as `%gpus` would; call it on the main thread, between cells.

    Return what to say, as `said` in `FullState`. None: it came too late, so it is saved, and the kernel is to
    be restarted.

    Raises
    ------
    NotFreeError
        They were waited for, and somebody else was faster; nothing was changed.

    """
    session, (devices, options) = current(), split_request(choice.choose.request)
    try:
        if choice.only_free and probe().can_change:
            # The wait has just looked for longer than the next cell is to be kept waiting.
            free = replace(options, only_free=True)
            outcome = apply(session, devices, free, inventory=read_machine(session))
        else:
            outcome = apply(session, devices, options)
        if not outcome.too_late:
            return str(outcome), "done", outcome.warnings
        if not choice.choose.restart:
            return outcome.refusal, "warning", []
        save(outcome.too_late.request, outcome.devices, outcome.too_late.options.to_save)
    except GpuMagicError as error:
        if choice.only_free and isinstance(error, NotFreeError):
            raise
        return str(error), "error", []
    except Exception as error:  # noqa: BLE001 - there is no cell to show it, and a page waits
        return f"Nothing was chosen: {type(error).__name__}: {error}", "error", []
    return None
