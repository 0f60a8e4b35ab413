"""What was clicked and is not applied yet: the draft, and the choice that waits until no cell runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.display.choice import Choice
from gpu_magic.display.refusal import refusal_text
from gpu_magic.errors import GpuMagicError
from gpu_magic.process.choosing import apply
from gpu_magic.process.outcome import Applied
from gpu_magic.process.session import current
from gpu_magic.restart.saved_choice import save
from gpu_magic.widget.protocol import Notice

if TYPE_CHECKING:
    from gpu_magic.widget.protocol import Choose
    from gpu_magic.widget.viewers import Viewer

__all__ = ["PendingChoice", "WaitingChoice", "carry_out"]


class WaitingChoice(NamedTuple):
    """A choice that was asked for with "Use these", and the panel on which it was."""

    choose: Choose
    viewer: Viewer


class PendingChoice:
    """Keeps the latest of each: whoever clicks twice means the second click.

    Has no lock: `PanelState` guards it.
    """

    def __init__(self) -> None:
        self.draft: str | None = None  # a request; empty: none so far; None: nothing was clicked
        self._waiting: WaitingChoice | None = None

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


def carry_out(choose: Choose) -> Notice | None:
    """Choose, as `%gpus` would; call it on the main thread, between cells.

    Return what to show. None: it came too late, so it is saved, and the kernel is to be restarted.
    """
    try:
        outcome = apply(current(), choose.request)
        if isinstance(outcome, Applied):
            return Notice(str(Choice(outcome)), "done")
        if not choose.restart:
            return Notice(refusal_text(outcome), "warning")
        save(outcome)
    except GpuMagicError as error:
        return Notice(str(error), "error")
    except Exception as error:  # noqa: BLE001 - there is no cell to show it, and a page waits
        return Notice(f"Nothing was chosen: {type(error).__name__}: {error}", "error")
    return None
