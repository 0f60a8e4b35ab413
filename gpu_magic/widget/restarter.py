"""`%gpus 1,3 --restart`: the panel's restart, by typing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anywidget
from IPython.core.getipython import get_ipython

from gpu_magic.errors import KernelRestarting
from gpu_magic.restart.saved_choice import save
from gpu_magic.text import listed
from gpu_magic.widget import joined
from gpu_magic.widget.state import board

if TYPE_CHECKING:
    from gpu_magic.process.outcome import Refused

__all__ = ["restart_for"]


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


def restart_for(refused: Refused) -> None:
    """Save a choice that came too late, and restart the kernel for it; after a dry run only see whether.

    Raises
    ------
    ChoiceError
        There is no kernel to restart; nothing was changed.
    KernelRestarting
        The choice is saved, and the kernel about to go.

    """
    save(refused)
    if refused.is_dry_run:
        return
    what = listed((device.label for device in refused.devices), "no GPU")
    text = f"Restarting the kernel; the next %load_ext gpu_magic chooses {what}."
    if refused.is_reset:
        text = "Restarting the kernel, to be as it was started."
    shell: Any = get_ipython()
    board().restart(shell, Restarter().send)
    raise KernelRestarting(text)
