"""`%gpus`: show the GPUs, choose them."""

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
        """Show the GPUs of this machine, or choose those that CUDA will see in this kernel.

        %gpus              show them: memory, utilization, temperature, power, who uses them, and what
                           this kernel calls them
        %gpus 1,3          choose by nvidia-smi's numbers: cuda:0 is GPU 1, cuda:1 is GPU 3
        %gpus amd:1        AMD's GPU 1 by rocm-smi's number; without NVIDIA's GPUs 1 is enough
        %gpus 2,0          the order is kept: cuda:0 is GPU 2
        %gpus 0-2,5        a range
        %gpus GPU-8f3a     the beginning of a UUID, as far as it is unique
        %gpus 2:1          one MIG instance: number 1 of GPU 2, as nvidia-smi -L counts; or MIG-41b7
        %gpus auto         one that nobody uses or has claimed, else the one with the most free memory
        %gpus auto:2       two of them; one line says why these, and why not the others
        %gpus all          all that this kernel was given
        %gpus none         hide every GPU
        %gpus reset        back to what the kernel was started with
        %gpus {n}          a variable, or any expression

        --order pci|fastest
                           CUDA_DEVICE_ORDER: PCI_BUS_ID is nvidia-smi's order, and what is set without this
                           option, unless the kernel was started with FASTEST_FIRST; with that the fastest
                           of all, or of auto:2, is cuda:0
        --growth           have TensorFlow and JAX take memory as they need it, not most of a GPU at once
        --memory-limit 8GB the most that TensorFlow, JAX and PyTorch take of each GPU
        --only-free        auto takes GPUs that nobody uses, or none; with 1,3 these, where nobody else uses
                           or has claimed them
        --min-free 20GB --model A100
                           auto takes GPUs with so much free memory, and with these words in their names
        --wait 30m         auto waits for GPUs that are free, or have --min-free; with 1,3 it waits until
                           nobody else uses or has claimed these. First come, first served; interrupt it
                           at any time
        --in-process       once CUDA has started: have the imported frameworks use these,
                           among those that the kernel has; `%gpus reset --in-process` takes it back
        --restart          where it is too late: restart the kernel; the next %load_ext gpu_magic then
                           applies the choice
        --dry-run          say what would be set, and change nothing
        --force            allow GPUs outside the CUDA_VISIBLE_DEVICES that the kernel was started with
        --strict           where it is too late: an error, which stops Run All

        Choose before a framework starts CUDA. After that a different choice changes nothing, and says
        since when it is too late, by what, and what works instead; `c.GpuMagics.on_frozen = "error"`
        in IPython's configuration makes that an error everywhere. Sizes are 8GB (10^9 bytes each) or 8GiB
        (2^30); times are 90s, 30m, 1h30m, 2d, or a number of seconds.
        """
        # For this version: what they are now.
        if found := re.search(r"(?:^|\s)--(by|no-claim)(?=[\s=]|$)[\s=]*(\w*)", line):
            value = f"by = {found[2] or 'uuid'!r}" if found[1] == "by" else "claims = False"
            raise refusal(f"--{found[1]} is configuration now: %config GpuMagics.{value}")
        if found := re.search(r"--(mine|end)\b[ =]*(.*)", line):
            now = f"end {found[2]}".strip() if found[1] == "end" else ""
            raise refusal(f"%gpus {line.strip()} is {f'%gpu_ps {now}'.strip()} now.")
        is_strict = getattr(magics_of(self._shell), "on_frozen", "warn") == "error"
        options = vars(read("%gpus", line.rstrip("; "), partial(expand, self._shell, write=_typed, depth=5)))
        request = options.pop("request")
        refuse_name(self._shell, "%gpus", request, is_request)
        if not request:
            display(gpu_magic.gpus())
            return
        options["strict"] |= is_strict
        with warnings.catch_warnings():
            # It is shown below, whatever the user's filters say: what is typed is answered.
            warnings.simplefilter("ignore", CudaInitializedWarning)
            with waiting_line() as show:
                choice = gpu_magic.choose(request, on_wait=show, **options)
        if choice.too_late:
            display(choice.too_late)
        else:
            print(choice)


def _typed(value: object) -> str:
    """Return what one would type for the value of an expression."""
    return str(value) if isinstance(value, float) else normalize_request(value)
