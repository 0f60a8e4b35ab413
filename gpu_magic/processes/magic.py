"""`%gpu_ps`: list the user's own processes on GPUs, or end one."""

from __future__ import annotations

import re

from IPython.core.error import StdinNotImplementedError, UsageError
from IPython.display import display

import gpu_magic
from gpu_magic.shell.arguments import read, refusal

__all__ = ["GpuPsMagic"]


class GpuPsMagic:
    """The magic that lists and ends processes."""

    def __init__(self, shell: object) -> None:
        del shell

    def gpu_ps(self, line: str) -> None:
        """List your own processes on GPUs (other notebooks, scripts, this kernel), or end one.

            %gpu_ps                  list your processes, with their memory on each GPU and their claims
            %gpu_ps end 4711         ask, then end this process, and print whether it ended within 5 s
            %gpu_ps end train.ipynb  the same by its name in the list

        {options}
        """
        options = read("%gpu_ps", line)
        wrong, _, which = options.request.partition("end ")
        flags = " --kill" * options.kill + " --yes" * options.yes
        if wrong or (flags and not which):
            number = re.search(r"\b[0-9]+\b", options.request)
            which = number[0] if number else "4711"
            raise refusal(f"%gpu_ps {line.strip()} is not understood. Try %gpu_ps end {which}{flags}")
        there = gpu_magic.my_processes()
        if not which:
            display(there)
            return
        own = there.find(which)
        has_ended = gpu_magic.end_process(own, kill=options.kill, confirm=None if options.yes else _ask)
        if has_ended is None:
            print(f"Nothing was sent to {own}.")
        elif has_ended:
            again = " If a Jupyter server started it, the server starts a new kernel, without variables."
            print(f"{own} has ended.{again if own.is_kernel else ''}")
        else:
            print(f"{own} did not end within 5 s. To kill it without saving: %gpu_ps end {own.pid} --kill")


def _ask(question: str) -> bool:
    try:
        answer = input(f"{question} [y/N] ")
    except (StdinNotImplementedError, EOFError):
        raise UsageError(
            f"{question} Nobody can answer here, so nothing was sent to it. To end it, add --yes"
        ) from None
    return answer.strip().lower() in ("y", "yes")
