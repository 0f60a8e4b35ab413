"""`%gpus 1,3 --restart`: the panel's restart, by typing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anywidget
from IPython.core.getipython import get_ipython

from gpu_magic.errors import KernelRestarting
from gpu_magic.saved import keep
from gpu_magic.text import listed
from gpu_magic.widget import joined
from gpu_magic.widget.board import board

if TYPE_CHECKING:
    from gpu_magic.choice import Choice
    from gpu_magic.selection.options import Options

__all__ = ["choose_or_restart"]


class Restarter(anywidget.AnyWidget):
    """Reaches the kernel's pages where no panel does; it is never shown."""

    _esm = joined("restart.js", "restarter.js")

    def __init__(self) -> None:
        super().__init__()
        self.on_msg(self._hear)

    def _hear(self, _widget: object, message: object, _buffers: object) -> None:
        match message:
            case {"do": "can" | "cannot" as answer, "page": str(page)}:
                board().answer(page, can=answer == "can")


def choose_or_restart(wanted: str, options: Options, *, dry_run: bool = False) -> Choice:
    """Choose; where it is too late for that, keep the choice and restart the kernel.

    Raises
    ------
    ChoiceError
        For what can't be chosen, or where there is no kernel to restart; nothing was changed.
    KernelRestarting
        The choice is kept, and the kernel about to go.

    """
    choice = keep(wanted, options, dry_run=dry_run)
    if dry_run or not choice.refusal:
        return choice
    what = listed((device.label for device in choice.devices), "no GPU")
    text = f"Restarting the kernel; the next %load_ext gpu_magic chooses {what}."
    if choice.is_reset:
        text = "Restarting the kernel, to be as it was started."
    shell: Any = get_ipython()
    board().restart(shell, Restarter().send)
    raise KernelRestarting(text)
