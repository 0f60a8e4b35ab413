"""`%gpu_panel`: a live panel of the GPUs, to choose them by clicking."""

from __future__ import annotations

from typing import Any

from IPython.display import display

import gpu_magic
from gpu_magic.gpus.request import is_request
from gpu_magic.shell.arguments import read, refusal

__all__ = ["GpuPanelMagic"]


class GpuPanelMagic:
    """The magic that shows the panel."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def gpu_panel(self, line: str) -> None:
        """Show the GPUs in a live panel, and choose them by clicking.

        %gpu_panel         memory and whose it is, utilization over the last minutes, temperature, power, the
                           people and processes, what this kernel calls each GPU; once a second, also while
                           a cell runs

        Click GPUs in the order of cuda:0, cuda:1, …, then "Use these". Once CUDA has started, a different
        choice needs a restart of the kernel: the panel offers it, and keeps the choice.
        """
        if request := read("%gpu_panel", line).request:
            instead = f"%gpus {request} chooses by typing" if is_request(request) else "it needs none"
            raise refusal(f"%gpu_panel takes no arguments; {instead}.")
        if not hasattr(self._shell, "kernel"):
            display(gpu_magic.gpus())
            print("A live panel needs a notebook; here %gpus shows the same, and %gpus 1,3 chooses.")
            return
        display(gpu_magic.panel())
