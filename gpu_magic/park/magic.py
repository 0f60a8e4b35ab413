"""`%gpu_park` and `%gpu_unpark`."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.display import display

import gpu_magic
from gpu_magic.shell.arguments import read, text_named
from gpu_magic.shell.waiting_line import waiting_line
from gpu_magic.text import code_words

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["ParkMagics"]


class ParkMagics:
    """The magics that park variables and bring them back."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell: Any = shell

    def gpu_park(self, line: str) -> None:
        """Move what variables hold on GPUs to the host's memory, so that others can use the GPUs.

            %gpu_park             everything
            %gpu_park model opt   these variables, and what else holds the same arrays

        {options}

        If that fails, nothing moves. Ties, views, optimizers and gradients are kept. The output has the
        memory in use on each GPU before and after, and what stays there. %gpu_unpark brings everything back.
        """
        options = read("%gpu_park", line, partial(text_named, self.shell))
        display(gpu_magic.park(*code_words(options.request, commas=True), dry_run=options.dry_run))

    def gpu_unpark(self, line: str) -> None:
        """Put what %gpu_park has parked back on its GPUs.

            %gpu_unpark             everything, each array to the GPU that it was on
            %gpu_unpark model opt   these variables, and what else holds the same arrays

        {options}

        If that fails, nothing moves. What you have replaced or moved meanwhile is left as it is.
        """
        options = read("%gpu_unpark", line, partial(text_named, self.shell))
        names = code_words(options.request, commas=True)
        more = {"device": options.device, "wait": options.wait, "dry_run": options.dry_run}
        with waiting_line() if options.wait else nullcontext() as show:
            found = gpu_magic.unpark(*names, on_wait=show, **more)
        display(found)
