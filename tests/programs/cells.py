"""Cells in an IPython shell of this process, and the guides in `guides`, cell by cell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

if TYPE_CHECKING:
    from collections.abc import Callable

GUIDES = Path(__file__).parent / "guides"


def shell_with_magics() -> InteractiveShell:
    """Return a shell with the extension."""
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    shell.run_line_magic("load_ext", "gpu_magic")
    return shell


def run(shell: InteractiveShell, cell: str) -> Any:
    """Return the value of a cell; raise what it raises."""
    result = shell.run_cell(cell, store_history=True)
    result.raise_error()
    return result.result


def run_guide(name: str, device: str, state: Callable[[], object]) -> dict[str, Any]:
    """Run each cell of a guide on a device.

    Returns
    -------
    dict
        "value": that of the last cell. "left": the first lines of the cells after which the state is another
        one than before.

    """
    shell, before, left, value = shell_with_magics(), state(), [], None
    cells = (GUIDES / f"{name}.ipy").read_text(encoding="utf-8").split("# %%")[1:]
    for cell in cells:
        value = run(shell, f"%%on_gpu {device}\n#{cell}")
        if state() != before:
            left.append(cell.strip().partition("\n")[0])
    return {"value": value, "left": left}
