"""`%gpus`: show the GPUs, or choose some."""

from __future__ import annotations

import re
import warnings
from functools import partial
from typing import TYPE_CHECKING

from IPython.display import display

import gpu_magic
from gpu_magic.errors import CudaInitializedWarning
from gpu_magic.gpus.request import is_request, normalize_request
from gpu_magic.shell.arguments import read, refusal, refuse_name
from gpu_magic.shell.extension import magics_of
from gpu_magic.shell.values import expand
from gpu_magic.shell.waiting_line import waiting_line

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["GpusMagic"]


class GpusMagic:
    """The magic that shows and chooses GPUs."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def gpus(self, line: str) -> None:
        """Show the GPUs of this machine, or choose which of them CUDA sees in this kernel.

        %gpus               show memory, utilization, who uses each GPU, and its name in this kernel
        %gpus 2,0           choose by nvidia-smi's numbers: cuda:0 is GPU 2. Also 0-3, GPU-8f3a, 2:1, amd:1
        %gpus auto:2        pick two unclaimed GPUs: free GPUs first, then those with the most free memory
        %gpus all           choose all GPUs of this kernel. Also none (hide them), reset (undo the choice)
        %gpus {n}           use a variable or an expression

        --only-free         pick only free, unclaimed GPUs; also with numbers: %gpus 1,3 --only-free
        --min-free 20GB     auto: GPUs with at least this much free memory
        --model A100        auto: GPUs with these words in their names
        --wait 30m          wait until the GPUs are free; earlier waits choose first
        --growth            TensorFlow and JAX allocate memory as needed, not most of a GPU at once
        --memory-limit 8GB  TensorFlow, JAX and PyTorch use at most this much of each GPU
        --order fastest     set CUDA_DEVICE_ORDER to FASTEST_FIRST; pci: PCI_BUS_ID, nvidia-smi's order
        --in-process        after CUDA has started: frameworks use these visible GPUs from here on
        --restart           if it is too late: restart the kernel; %load_ext gpu_magic applies the choice
        --strict            if it is too late: raise an error, which stops Run All
        --force             allow GPUs outside those that the kernel was given
        --dry-run           print what would be set, and change nothing

        2:1 is MIG instance 1 of GPU 2. amd:1 is AMD GPU 1. Choose before a framework starts CUDA.
        After that, a choice changes nothing and prints what works instead.
        Sizes: 8GB (10^9 bytes) or 8GiB (2^30). Times: 90s, 30m, 1h30m, 2d or a number of seconds.
        """
        # Options of earlier versions, and their replacements.
        if found := re.search(r"(?:^|\s)--(by|no-claim)(?=[\s=]|$)[\s=]*(\w*)", line):
            value = f"by = {found[2] or 'uuid'!r}" if found[1] == "by" else "claims = False"
            raise refusal(f"--{found[1]} is now configuration. Try %config GpuMagics.{value}")
        if found := re.search(r"--(mine|end)\b[ =]*(.*)", line):
            now = f"end {found[2]}".strip() if found[1] == "end" else ""
            raise refusal(f"%gpus {line.strip()} is now another magic. Try {f'%gpu_ps {now}'.strip()}")
        is_strict = getattr(magics_of(self._shell), "on_frozen", "warn") == "error"
        options = vars(read("%gpus", line.rstrip("; "), partial(expand, self._shell, write=_typed, depth=5)))
        request = options.pop("request")
        refuse_name(self._shell, "%gpus", request, is_request)
        if not request:
            display(gpu_magic.gpus())
            return
        options["strict"] |= is_strict
        with warnings.catch_warnings():
            # The refusal is shown below, so that the user's filters cannot hide it.
            warnings.simplefilter("ignore", CudaInitializedWarning)
            with waiting_line() as show:
                choice = gpu_magic.choose(request, on_wait=show, **options)
        if choice.too_late:
            display(choice.too_late)
        else:
            print(choice)


def _typed(value: object) -> str:
    """Format a value as magic arguments."""
    return str(value) if isinstance(value, float) else normalize_request(value)
