"""The variables that say which GPUs this process sees: empty, misspelled, or in an unknown order."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.diagnosis.commands import choose
from gpu_magic.diagnosis.finding import Finding
from gpu_magic.errors import ChoiceError
from gpu_magic.process.state import State
from gpu_magic.selection.find import find
from gpu_magic.selection.visible import MASK
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.diagnosis.facts import Facts, Kernel

__all__ = ["check_visible_devices", "wish_of"]

_AT_START = "As this process was started: "
_LONGEST = 60  # characters of a value
# How a job asks for a GPU, by the scheduler's name.
_ASK = {
    "Slurm": "#SBATCH --gres=gpu:1",
    "LSF": '#BSUB -gpu "num=1"',
    "PBS": "#PBS -l select=1:ngpus=1",
}


def check_visible_devices(facts: Facts) -> Iterator[Finding]:
    kernel, machine = facts.kernel, facts.machine
    if kernel is UNKNOWN or machine is UNKNOWN:
        return
    is_frozen = kernel.guard.state is State.FROZEN
    # What CUDA has read is what counts then, and `check_cuda` says it.
    is_hidden = is_frozen and kernel.guard.is_known and not kernel.guard.devices
    mend = choose(kernel.program, wish_of(kernel, machine), is_too_late=not kernel.guard.can_change)
    for note in kernel.notes:
        if note.startswith(_AT_START):
            yield Finding("worth knowing", MASK, note, "What was chosen since has taken its place.")
        elif not (is_hidden and "has read" in note):
            is_wrong = kernel.seen is not UNKNOWN and "MIG instance" not in note
            # The last sentence of the one about quotes is a command, too.
            what = note.partition(" %env takes no quotes")[0]
            yield Finding("wrong" if is_wrong else "worth knowing", MASK, what, mend=mend)
    if kernel.seen == () and not kernel.notes and not is_frozen:
        yield _empty(kernel)


def wish_of(kernel: Kernel, machine: Inventory) -> str:
    """Return what CUDA_VISIBLE_DEVICES seems to have meant, as after %gpus; "auto" for nothing."""
    wanted: dict[str, None] = {}
    for entry in filter(None, re.split(r"[\s,;\"']+", kernel.variables.mask or "")):
        try:
            device = find(int(entry) if entry.isdecimal() else entry, machine)
        except (ChoiceError, ValueError):
            continue
        wanted[device.number_text] = None
    if kernel.variables.mask is None and machine.gpus:
        return "all"
    return ",".join(wanted) or "auto"


def _empty(kernel: Kernel) -> Finding:
    value = kernel.variables.mask
    is_named = value is not None and value.strip()
    shown = f"{MASK}={shortened(value, _LONGEST)}" if is_named and value else f"{MASK} is empty"
    what = f"{shown}: CUDA sees no GPU." if is_named else f"{shown}, so CUDA sees no GPU."
    if kernel.chosen:
        mend = choose(kernel.program, "reset" if kernel.program not in ("python", "shell") else "all")
        return Finding("worth knowing", MASK, what, "You have chosen so.", mend)
    if kernel.launched.mask != value:
        return Finding(
            "wrong", MASK, what, "A cell has set it, or a module.", choose(kernel.program, "reset")
        )
    asked = next((how for name, how in _ASK.items() if kernel.given_by.startswith(name)), "")
    if asked:
        return Finding(
            "wrong", MASK, what, f"{kernel.given_by} was given none. A job asks for one by:", asked
        )
    if not kernel.can_force:
        meaning = "This process was started so, and an administrator has forbidden to take others here."
        return Finding("wrong", MASK, what, meaning)
    mend = choose(kernel.program, "all")
    if kernel.program != "shell":
        mend = f"{mend} --force" if mend.startswith("%") else mend.replace("'all'", "'all', force=True")
    return Finding("wrong", MASK, what, "This process was started so.", mend)
