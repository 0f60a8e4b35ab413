"""What is typed to mend something, in a notebook, in Python or in a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_magic.diagnosis.facts import Program

__all__ = ["RESTARTS", "choose", "command", "install", "is_ipython", "restart", "uninstall"]

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


def choose(program: Program, wish: str, *, is_too_late: bool = False) -> str:
    """Return how GPUs are chosen: `%gpus 0,1`; where CUDA has been initialized, with a restart.

    Parameters
    ----------
    program
        Where it is typed.
    wish
        As after `%gpus`: "0,1", "auto", "all".
    is_too_late
        Whether this process can't change its GPUs any more.

    """
    if is_ipython(program):
        return f"%gpus {wish}{' --restart' * (is_too_late and program == 'kernel')}"
    if program == "python":
        return f"gpu_magic.choose({wish!r})"
    if wish in ("all", "auto"):
        return "unset CUDA_VISIBLE_DEVICES"
    return f"export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={wish}"


def install(program: Program, what: str, installer: str = "pip") -> str:
    """Return how packages are installed for this Python: `%pip install …`, and not by another one's pip."""
    if installer == "uv":
        return f"{'!' * is_ipython(program)}uv pip install {what}"
    return f"{'%' if is_ipython(program) else 'python -m '}pip install {what}"


def uninstall(program: Program, what: str, installer: str = "pip") -> str:
    """Return how packages are removed."""
    if installer == "uv":
        return f"{'!' * is_ipython(program)}uv pip uninstall {what}"
    return f"{'%' if is_ipython(program) else 'python -m '}pip uninstall -y {what}"


def command(program: Program, line: str) -> str:
    """Return a shell's command as it is typed here: `!nvidia-smi`."""
    return f"{'!' * is_ipython(program)}{line}"


def restart(program: Program) -> str:
    """Return how this process begins anew, as a sentence."""
    text = RESTARTS[program]
    return f"{text[0].upper()}{text[1:]}."
