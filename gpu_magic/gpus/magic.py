"""`%gpus`: show the GPUs, or choose some."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.display import display

from gpu_magic.errors import CudaInitializedWarning
from gpu_magic.gpus.choose import choose
from gpu_magic.gpus.request import is_request, normalize_request
from gpu_magic.gpus.table import gpus
from gpu_magic.shell.arguments import read, refuse_name
from gpu_magic.shell.extension import magics_of
from gpu_magic.shell.values import expand
from gpu_magic.shell.waiting_line import waiting_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["GpusMagic"]


class GpusMagic:
    """The magic that shows and chooses GPUs."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def gpus(self, line: str, *, names: Mapping[str, Any]) -> None:
        """Show the GPUs of this machine, or choose which of them CUDA sees in this kernel.

            %gpus               show memory, utilization, who uses each GPU, and its name in this kernel
            %gpus 2,0           choose by nvidia-smi's numbers: cuda:0 is GPU 2. Also 0-3, GPU-8f3a, 2:1
            %gpus auto:2        pick two unclaimed GPUs: free GPUs first, then those with the most free memory
            %gpus all           choose all GPUs of this kernel. Also none (hide them), reset (undo the choice)
            %gpus {n}           use a variable or an expression

        {options}

        2:1 is MIG instance 1 of GPU 2. Choose before a framework starts CUDA.
        After that, a choice changes nothing and prints what works instead.
        Sizes: 8GB (10^9 bytes) or 8GiB (2^30). Times: 90s, 30m, 1h30m, 2d or a number of seconds.
        """
        is_strict = getattr(magics_of(self._shell), "on_frozen", "warn") == "error"
        options = vars(read("%gpus", line.rstrip("; "), partial(expand, names=names, write=_typed)))
        request = options.pop("request")
        refuse_name(self._shell, "%gpus", request, is_request)
        if not request:
            display(gpus())
            return
        options["strict"] |= is_strict
        with warnings.catch_warnings():
            # The refusal is shown below, so that the user's filters cannot hide it.
            warnings.simplefilter("ignore", CudaInitializedWarning)
            with waiting_line() if options["wait"] else nullcontext() as show:
                choice = choose(request, on_wait=show, **options)
        display(choice.too_late or choice)


def _typed(value: object) -> str:
    """Format a value as magic arguments."""
    return str(value) if isinstance(value, float) else normalize_request(value)
