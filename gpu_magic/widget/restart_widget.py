"""The invisible widget through which `%gpus 1,3 --restart` asks the kernel's pages, where no panel is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anywidget
from IPython.core.getipython import get_ipython

from gpu_magic.errors import KernelRestarting
from gpu_magic.restart import restart
from gpu_magic.restart.saved import save
from gpu_magic.text import listed
from gpu_magic.widget import joined
from gpu_magic.widget.kernel_messages import to_json
from gpu_magic.widget.page_messages import AnswerRestart, parse
from gpu_magic.widget.state import panel_state

if TYPE_CHECKING:
    from gpu_magic.gpus.choice import TooLate
    from gpu_magic.widget.kernel_messages import KernelMessage

__all__ = ["restart_with_choice"]


class RestartWidget(anywidget.AnyWidget):
    """Is in every page of the kernel, and shown in none."""

    _esm = joined("protocol.js", "restart.js", "restart_widget.js")

    def __init__(self) -> None:
        super().__init__()
        self.on_msg(self._receive)

    def tell(self, message: KernelMessage) -> None:
        """Send a message to the pages."""
        self.send(to_json(message))

    def _receive(self, _widget: object, message: object, _buffers: object) -> None:
        match parse(message):
            case AnswerRestart(page, can):
                restart.answer(page, can=can)


def restart_with_choice(choice: TooLate, *, dry_run: bool) -> None:
    """Save a choice that came too late, and restart the kernel to apply it. After a dry run, do neither.

    Raises
    ------
    ChoiceError
        There is no kernel to restart, also after a dry run; nothing was changed.
    KernelRestarting
        The choice is saved, and the kernel is about to be restarted.

    """
    save(choice.request, choice.devices, choice.options.to_save, dry_run=dry_run)
    if dry_run:
        return
    devices = listed((device.label for device in choice.devices), "no GPU")
    text = f"Restarting the kernel; the next %load_ext gpu_magic chooses {devices}."
    if not choice.request:
        text = "Restarting the kernel, to be as it was started."
    shell: Any = get_ipython()
    panel_state().restart(shell, RestartWidget().tell)
    raise KernelRestarting(text)
