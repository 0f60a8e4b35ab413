"""What is typed to mend something, in a notebook, in Python or in a shell."""

from __future__ import annotations

import sys
from shlex import quote
from typing import TYPE_CHECKING

from gpu_magic.selection.mask import PCI
from gpu_magic.selection.variables import show
from gpu_magic.selection.visible import HIP, MASK, ROCR, Variables

if TYPE_CHECKING:
    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.devices.model import Device
    from gpu_magic.diagnosis.facts import Program

__all__ = [
    "RESTARTS",
    "choose",
    "choose_devices",
    "command",
    "conda_install",
    "install",
    "is_ipython",
    "restart",
    "uninstall",
]

# How a process begins anew.
RESTARTS: dict[Program, str] = {
    "kernel": "restart the kernel",
    "unattended kernel": "start the notebook anew",
    "ipython": "start IPython anew",
    "python": "start Python anew",
    "shell": "start your program anew",
}


def is_ipython(program: Program) -> bool:
    """Return whether magics can be typed."""
    return program in ("kernel", "unattended kernel", "ipython")


def choose(program: Program, wish: str, *, is_too_late: bool = False, force: bool = False) -> str:
    """Return how GPUs are chosen: `%gpus 0,1`; where CUDA has been initialized, with a restart.

    Parameters
    ----------
    program
        Where it is typed.
    wish
        As after `%gpus`: "auto", "all", "reset". In a shell each is to hide none.
    is_too_late
        Whether this process can't change its GPUs any more.
    force
        Whether it was started with others than these.

    """
    if is_ipython(program):
        options = " --force" * force + " --restart" * (is_too_late and program == "kernel")
        return f"%gpus {wish}{options}"
    if program == "python":
        return f"gpu_magic.choose({wish!r}{', force=True' * force})"
    return f"unset {MASK} {HIP} {ROCR}"


def choose_devices(
    program: Program,
    devices: tuple[Device, ...],
    machine: Inventory,
    *,
    is_too_late: bool = False,
    force: bool = False,
) -> str:
    """Return how some GPUs of a machine, of one vendor, are chosen.

    A shell has only the variables, in which numbers do not name each GPU: not beside one that is lost, and no
    MIG instance.
    """
    if program != "shell":
        wish = ",".join(device.number_text for device in devices)
        return choose(program, wish, is_too_late=is_too_late, force=force)
    values = show(devices, PCI, machine, Variables(), by=None, given="unset")
    return f"export {' '.join(f'{name}={value}' for name, value in values.items() if value is not None)}"


def install(program: Program, what: str, installer: str = "pip") -> str:
    """Return how packages are installed for this Python: `%pip install …`, and not by another one's pip."""
    if installer == "uv":
        return f"{'!' * is_ipython(program)}uv pip install --python {quote(sys.executable)} {what}"
    return f"{'%' if is_ipython(program) else 'python -m '}pip install {what}"


def conda_install(program: Program, what: str) -> str:
    """Return how packages are installed into this Python's conda environment."""
    return f"{'%' * is_ipython(program)}conda install -c conda-forge {what}"


def uninstall(program: Program, what: str, installer: str = "pip") -> str:
    """Return how packages are removed."""
    if installer == "uv":
        return f"{'!' * is_ipython(program)}uv pip uninstall --python {quote(sys.executable)} {what}"
    return f"{'%' if is_ipython(program) else 'python -m '}pip uninstall -y {what}"


def command(program: Program, line: str) -> str:
    """Return a shell's command as it is typed here: `!nvidia-smi`."""
    return f"{'!' * is_ipython(program)}{line}"


def restart(program: Program) -> str:
    """Return how this process begins anew, as a sentence."""
    text = RESTARTS[program]
    return f"{text[0].upper()}{text[1:]}."
