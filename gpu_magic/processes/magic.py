"""`%gpu_ps`: list the user's own processes on GPUs, or end one."""

from __future__ import annotations

import re

from IPython.core.error import StdinNotImplementedError, UsageError
from IPython.display import display

import gpu_magic
from gpu_magic.process.show import show
from gpu_magic.shell.arguments import read, refusal
from gpu_magic.text import listed

__all__ = ["GpuPsMagic"]


class GpuPsMagic:
    """The magic that lists and ends processes."""

    def __init__(self, shell: object) -> None:
        del shell

    def gpu_ps(self, line: str) -> None:
        """List your own processes on GPUs (other notebooks, scripts, this kernel), or end one.

            %gpu_ps                  list your processes, with their memory on each GPU and their claims
            %gpu_ps end 4711         ask, then end this process, and print whether it ended within 5 s
            %gpu_ps end train.ipynb  the same by its name in the list, or the workers that its kernel has left

        {options}
        """
        options = read("%gpu_ps", line)
        wrong, _, which = options.request.partition("end ")
        flags = " --kill" * options.kill + " --yes" * options.yes
        if wrong or (flags and not which):
            number = re.search(r"\b[0-9]+\b", options.request)
            others = (str(one.pid) for one in gpu_magic.my_processes() if not one.how_to_end)
            which = number[0] if number else next(others, "")
            way = f"%gpu_ps end {which}{flags}" if which else "%gpu_ps"
            raise refusal(f"%gpu_ps {line.strip()} is not understood. Try {way}")
        there = gpu_magic.my_processes()
        if not which:
            display(there)
            return
        found = there.find_all(which)
        named, is_one = listed(map(str, found)), len(found) == 1
        asked = found[0] if is_one else which
        has_ended = gpu_magic.end_process(asked, kill=options.kill, confirm=None if options.yes else _ask)
        if has_ended is None:
            show(f"Nothing was sent to {named}.")
        elif has_ended:
            again = " If a Jupyter server started it, the server starts a new kernel, without variables."
            show(f"{named} {'has' if is_one else 'have'} ended.{again if found[0].is_kernel else ''}")
        else:
            kill = f"%gpu_ps end {found[0].pid if is_one else which} --kill"
            it = "it" if is_one else "those that are left"
            show(
                f"{named} did not{' all' * (not is_one)} end within 5 s. To kill {it} without saving: {kill}"
            )


def _ask(question: str) -> bool:
    try:
        answer = input(f"{question} [y/N] ")
    except (StdinNotImplementedError, EOFError):
        raise UsageError(
            f"{question} Nobody can answer here, so nothing was sent to it. To end it, add --yes"
        ) from None
    return answer.strip().lower() in ("y", "yes")
