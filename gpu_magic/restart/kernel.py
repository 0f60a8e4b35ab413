"""The Jupyter kernel that this process is: its id, its files, its first cell, and its restart of itself.

A restarted kernel has the connection file of before, so a choice can be kept under that file's name
(ipykernel 6.30 to 7.4 beneath jupyter_client 8: the file is `kernel-<id>.json`, with the server's id).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_magic import process

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["kernel_id", "restart_from_here", "saved_choice_file", "say_in_first_cell"]


def saved_choice_file() -> Path | None:
    """Return the file for this kernel's saved choice; None where this process is not a Jupyter kernel."""
    file = process.connection_file()
    return Path(process.saved_choices_folder(), Path(file).name) if file else None


def kernel_id() -> str:
    """Return the Jupyter server's id of this kernel; empty where it is not known."""
    name = Path(process.connection_file()).stem
    return name.removeprefix("kernel-") if name.startswith("kernel-") else ""


def restart_from_here(shell: Any) -> None:
    """End this kernel, for whoever started it to start it again.

    A Jupyter server does. JupyterLab shows "appears to have died" meanwhile, so a page is asked first.
    """
    shell.kernel.do_shutdown(True)


def say_in_first_cell(shell: Any, say: Callable[[], None]) -> None:
    """Call what prints something, now or, where no cell is running, at the beginning of the first cell."""
    if _is_in_cell(shell):
        say()
        return

    def once(*_: object) -> None:
        shell.events.unregister("pre_run_cell", once)
        say()

    shell.events.register("pre_run_cell", once)


def _is_in_cell(shell: Any) -> bool:
    """Return whether what is printed now belongs to a cell; a configuration loads extensions before any."""
    try:
        return bool(getattr(shell, "parent_header", True))
    except LookupError:
        return False
