"""`%where` and `%gpu_free`, and the lines below an out-of-memory error."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.display import display

import gpu_magic
from gpu_magic.errors import GpuMagicError
from gpu_magic.fit.users_code import fit_line
from gpu_magic.objects.memory import shortage_lines
from gpu_magic.objects.where import where_lines
from gpu_magic.process.show import show
from gpu_magic.shell.arguments import read, text_named
from gpu_magic.text import code_words, printable

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["ObjectsMagics", "explain_failure"]


class ObjectsMagics:
    """The magics that find variables and free memory."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell: Any = shell

    def where(self, line: str) -> None:
        """Show the devices that hold variables, and the bytes on each device.

            %where              every variable of this notebook that holds arrays
            %where x model      these variables, with the arrays in models, optimizers and containers
            %where batch["x"]   an expression; separate several by spaces

        Memory that several arrays share (views, tied weights) counts once per row.
        """
        options = read("%where", line, partial(text_named, self.shell))
        show(*where_lines(self.shell, code_words(options.request, commas=True)))

    def gpu_free(self, line: str) -> None:
        """Free GPU memory that only the notebook's history or a framework's cache holds.

            %gpu_free   drop the last traceback and outputs (Out, _) on GPUs, and empty the caches

        {options}

        The output has the memory in use on each GPU before and after, and the variables that hold the rest.
        """
        options = read("%gpu_free", line)
        if options.request:
            raise UsageError(
                "%gpu_free takes no names. It frees memory on all GPUs. To drop a variable: del x"
            )
        display(gpu_magic.gpu_free(dry_run=options.dry_run))


def explain_failure(shell: InteractiveShell, error: BaseException) -> None:
    """Print below an out-of-memory error what holds the memory, how to free some, and how to predict it."""
    with contextlib.suppress(GpuMagicError):  # an invalid simulation, for which %gpus prints an error
        if lines := shortage_lines(error, shell):
            if fit := fit_line(error, shell.user_global_ns):
                lines.append(f"To predict the memory of this step: {printable(fit)}")
            show(*lines)
