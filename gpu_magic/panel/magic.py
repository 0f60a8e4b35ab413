"""`%gpu_panel`: a live panel of the GPUs, to choose them by clicking."""

from __future__ import annotations

from typing import Any

from IPython.display import display

import gpu_magic
from gpu_magic.gpus.request import is_request
from gpu_magic.process.show import show
from gpu_magic.shell.arguments import read, refusal

__all__ = ["GpuPanelMagic"]


class GpuPanelMagic:
    """The magic that shows the panel."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def gpu_panel(self, line: str) -> None:
        """Show the GPUs in a live panel. Click GPUs to choose them.

            %gpu_panel          memory, utilization, temperature, power and users of each GPU, once a second

        Click GPUs in the order of `cuda:0`, `cuda:1`, …, then "Use these". After CUDA has started, another
        choice needs a restart of the kernel. The panel offers the restart and keeps the choice.
        """
        if request := read("%gpu_panel", line).request:
            instead = f" To choose by typing: %gpus {request}" if is_request(request) else ""
            raise refusal(f"%gpu_panel takes no arguments.{instead}")
        if not hasattr(self._shell, "kernel"):
            display(gpu_magic.gpus())
            show("A live panel needs a notebook. Here, choose with %gpus auto")
            return
        display(gpu_magic.panel())
