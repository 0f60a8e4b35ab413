"""The variables that say which GPUs this process sees: empty, misspelled, or in an unknown order."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.diagnosis.commands import choose, choose_devices
from gpu_magic.diagnosis.finding import Finding
from gpu_magic.errors import ChoiceError
from gpu_magic.process.state import State
from gpu_magic.selection.find import find
from gpu_magic.selection.seen import in_force, read_visible
from gpu_magic.selection.visible import HIP, MASK, ROCR
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.devices.model import Device
    from gpu_magic.diagnosis.facts import Facts, Kernel

__all__ = ["check_visible_devices", "choose_meant"]

_AT_START = "As this process was started: "
_WITHOUT_FORCE = "This process was started so, and it is for those who start it to change that."
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
    # What CUDA has read is what counts then, and `check_cuda` says it. Of a lost GPU `check_gpus` says how to
    # leave it out.
    is_hidden = is_frozen and kernel.guard.is_known and not kernel.guard.devices
    about = _hiding(kernel, machine)[0]
    mend = choose_meant(kernel, machine, is_too_late=not kernel.guard.can_change)
    meaning = "" if mend else _WITHOUT_FORCE
    is_lost = any(gpu.problem for gpu in machine.gpus)
    for note in kernel.notes:
        if note.startswith(_AT_START):
            yield Finding("worth knowing", about, note, "What was chosen since has taken its place.")
        elif not (is_hidden and "has read" in note) and not (is_lost and "not answer" in note):
            is_wrong = kernel.seen is not UNKNOWN and not ("MIG instance" in note and kernel.seen)
            # The last sentence of the one about quotes is a command, too.
            what = note.partition(" %env takes no quotes")[0]
            yield Finding("wrong" if is_wrong else "worth knowing", about, what, meaning, mend)
    if kernel.seen == () and not kernel.notes and not is_frozen:
        yield _empty(kernel, machine)


def choose_meant(kernel: Kernel, machine: Inventory, *, is_too_late: bool) -> str:
    """Return how those GPUs are chosen that variables seem to have meant; "auto" where that is not clear.

    It is empty where they may not be taken: a process that was started with others needs `--force`, which an
    administrator can forbid, and which takes GPUs that a scheduler has given to others.
    """
    hiding = in_force(kernel.variables, machine)
    if not hiding and machine.gpus and kernel.program != "shell":
        return choose(kernel.program, "all", is_too_late=is_too_late)
    mask = kernel.variables.mask
    devices = tuple(gpu for gpu in machine.gpus if not gpu.problem) if mask is None else _named(mask, machine)
    # Numbers are HIP's there, and can differ from those of AMD's tools.
    devices = () if "amd" in machine.vendors else devices
    force = kernel.program != "shell" and _is_outside(devices, kernel, machine)
    if force and (kernel.given_by or not kernel.can_force):
        return ""
    if not devices:
        return choose(kernel.program, "auto", is_too_late=is_too_late, force=force)
    return choose_devices(kernel.program, devices, machine, is_too_late=is_too_late, force=force)


def _is_outside(devices: tuple[Device, ...], kernel: Kernel, machine: Inventory) -> bool:
    """Return whether GPUs, or any at all, are not among those that the process was started with."""
    if not in_force(kernel.launched, machine):
        return False
    had = read_visible(kernel.launched, machine).devices
    return had is UNKNOWN or not had or not set(devices) <= set(had)


def _named(mask: str, machine: Inventory) -> tuple[Device, ...]:
    """Return the devices that a value seems to name, however it is written."""
    entries = list(filter(None, re.split(r"[\s,;\"'\[\](){}]+", mask)))
    if [entry.lower() for entry in entries] == ["all"]:
        return tuple(gpu for gpu in machine.gpus if not gpu.problem)
    wanted: dict[Device, None] = {}
    for identifier in chain.from_iterable(map(_identifiers, entries)):
        with suppress(ChoiceError, ValueError):
            wanted[find(identifier, machine)] = None
    return tuple(wanted)


def _identifiers(entry: str) -> list[int | str]:
    """Return what an entry seems to mean: a number, also as `cuda:2` or with the letter O; those of `0-2`."""
    text = re.sub(r"^(?:cuda|gpu):", "", entry, flags=re.IGNORECASE)
    if re.fullmatch(r"[0-9O]{1,4}(?:-[0-9O]{1,4})?", text, re.IGNORECASE):
        first, _, last = re.sub("o", "0", text, flags=re.IGNORECASE).partition("-")
        return list(range(int(first), int(last or first) + 1))
    return [entry]


def _hiding(kernel: Kernel, machine: Inventory) -> tuple[str, str | None]:
    """Return the variable that says which GPUs are seen, and its value; see `selection.hip` for AMD's."""
    variables = kernel.variables
    if machine.vendors != ("amd",):
        return MASK, variables.mask
    if variables.rocr == "":
        return ROCR, ""
    return (HIP, variables.hip) if variables.hip or variables.mask is None else (MASK, variables.mask)


def _empty(kernel: Kernel, machine: Inventory) -> Finding:
    name, value = _hiding(kernel, machine)
    runtime = "ROCm" if machine.vendors == ("amd",) else "CUDA"
    is_named = value is not None and value.strip()
    shown = f"{name}={shortened(value, _LONGEST)}" if is_named and value else f"{name} is empty"
    what = f"{shown}: {runtime} sees no GPU." if is_named else f"{shown}, so {runtime} sees no GPU."
    if machine.problem:  # none can be chosen
        return Finding("worth knowing", name, what, "It hides GPUs also once they can be read.")
    if kernel.chosen:
        mend = choose(kernel.program, "reset" if kernel.program not in ("python", "shell") else "all")
        return Finding("worth knowing", name, what, "You have chosen so.", mend)
    if kernel.launched.named((name,))[name] != value:
        return Finding(
            "wrong", name, what, "A cell has set it, or a module.", choose(kernel.program, "reset")
        )
    asked = next((how for name, how in _ASK.items() if kernel.given_by.startswith(name)), "")
    if asked:
        return Finding(
            "wrong", name, what, f"{kernel.given_by} was given none. A job asks for one by:", asked
        )
    if not kernel.can_force:
        meaning = "This process was started so, and an administrator has forbidden to take others here."
        return Finding("wrong", name, what, meaning)
    mend = choose(kernel.program, "all")
    if kernel.program != "shell":
        mend = f"{mend} --force" if mend.startswith("%") else mend.replace("'all'", "'all', force=True")
    return Finding("wrong", name, what, "This process was started so.", mend)
