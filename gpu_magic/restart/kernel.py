"""The Jupyter kernel that this process is: its connection file, and an end after which it is started again.

A restarted kernel has the connection file of before, and so its name is what a choice can be kept under
(ipykernel 6.30 to 7.4 beneath jupyter_client 8: the file is `kernel-<id>.json`, the server's id).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["kernel_id", "restart_from_here", "saved_choice_file", "say_in_first_cell"]


def saved_choice_file() -> Path | None:
    """Return where a choice is kept for this kernel; None where this process is no Jupyter kernel.

    It takes microseconds, as `%load_ext` asks.
    """
    file = _connection_file()
    return file.with_name(f"gpu_magic-{file.stem}.json") if file else None


def _connection_file() -> Path | None:
    """Return this kernel's connection file; None where this process is no Jupyter kernel."""
    module: Any = sys.modules.get("ipykernel.kernelapp")  # a kernel has it; nobody else need import it
    if module is None or not module.IPKernelApp.initialized():
        return None
    file = Path(module.IPKernelApp.instance().abs_connection_file)
    return file if file.name and file.is_absolute() else None


def kernel_id() -> str:
    """Return what a Jupyter server calls this kernel; empty where that can't be told."""
    file = _connection_file()
    return file.stem.removeprefix("kernel-") if file and file.name.startswith("kernel-") else ""


def restart_from_here(shell: Any) -> None:
    """End this kernel, so that whoever started it starts it again.

    A Jupyter server does; JupyterLab shows "appears to have died" meanwhile, which is why the page is asked
    first.
    """
    shell.kernel.do_shutdown(True)


def _in_a_cell(shell: Any) -> bool:
    """Tell whether what is printed now belongs to a cell; extensions in a configuration are loaded before."""
    try:
        return bool(getattr(shell, "parent_header", True))
    except LookupError:
        return False


def say_in_first_cell(shell: Any, say: Callable[[], None]) -> None:
    """Say something at once, or where no cell is running, at the beginning of the first one."""
    if _in_a_cell(shell):
        say()
        return

    def once(*_: object) -> None:
        shell.events.unregister("pre_run_cell", once)
        say()

    shell.events.register("pre_run_cell", once)
