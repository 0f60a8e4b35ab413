"""`%gpus 1,3 --restart`: choose, with a restart of the kernel where that is needed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets
from IPython.core.getipython import get_ipython

from gpu_magic.errors import KernelRestarting
from gpu_magic.restart.kernel import kernel_id, restart_from_here
from gpu_magic.restart.saved import keep
from gpu_magic.text import listed
from gpu_magic.widget.files import joined
from gpu_magic.widget.instead import display_with

if TYPE_CHECKING:
    from gpu_magic.choice import Choice
    from gpu_magic.selection.options import Options

__all__ = ["choose_or_restart", "restart_unless_a_page_does"]

_PAGE_SECONDS = 3.0  # for a page to restart the kernel through its server


class Restarter(anywidget.AnyWidget):
    """Has the page that shows it restart a kernel through its server."""

    _esm = joined("restart.js", "restarter.js")
    kernel = traitlets.Unicode().tag(sync=True)


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
    key = kernel_id()
    display_with(Restarter(kernel=key), key, "", "")
    restart_unless_a_page_does(get_ipython())
    raise KernelRestarting(text)


def restart_unless_a_page_does(shell: Any) -> None:
    """Restart the kernel from here, where no page has done so by then."""
    try:
        asyncio.get_running_loop().call_later(_PAGE_SECONDS, restart_from_here, shell)
    except RuntimeError:  # nothing runs in which a page could
        restart_from_here(shell)
