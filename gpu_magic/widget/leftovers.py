"""Finds the panels that earlier runs of a cell have left: no page shows them, and no variable holds them."""

from __future__ import annotations

import gc
import re
from types import MethodType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from IPython.core.interactiveshell import ExecutionResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["CellRun", "cell_run", "leftovers"]

_HISTORY = re.compile(r"_+|_\d+")  # IPython's names for what cells have returned
_MACHINERY = (MethodType, ExecutionResult)  # its own methods as callbacks; results that IPython hands around


class CellRun(NamedTuple):
    """A run of a cell.

    Parameters
    ----------
    cell
        The cell's id in the notebook; empty where the front end does not tell it.
    request
        The id of the message that asked for this run.

    """

    cell: str
    request: str


class Displayed(Protocol):
    """A widget that notes the cells that have displayed it, each with its latest run that did."""

    shown: dict[str, str]
    model_id: Any


_Panel = TypeVar("_Panel", bound=Displayed)


def cell_run(shell: Any) -> CellRun:
    """Return the run of the cell that a kernel's shell is in."""
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    cell = parent.get("metadata", {}).get("cellId", "")
    return CellRun(str(cell), str(parent.get("header", {}).get("msg_id", "")))


def leftovers(panels: Sequence[_Panel], run: CellRun, shell: Any) -> list[_Panel]:
    """Return the panels of earlier runs of the same cell, whose output is gone, unless something holds them.

    Parameters
    ----------
    panels
        Those that no page shows.
    run
        This run.
    shell
        The kernel's, whose history of results does not count.

    """
    if not run.cell:
        return []
    # No generator: it would itself hold the panel that is looked at.
    earlier = [panel for panel in panels if _is_earlier(panel.shown, run)]
    return [panel for panel in earlier if not _is_held(panel, shell, (panels, earlier))]


def _is_earlier(shown: Mapping[str, str], run: CellRun) -> bool:
    return set(shown) == {run.cell} and shown[run.cell] != run.request


def _is_held(panel: Displayed, shell: Any, lists: tuple[object, ...]) -> bool:
    """Return whether anything but the panel's own machinery, and these lists, refers to it."""
    # No comprehension here: its closure would refer to the panel.
    history = (shell.user_ns.get("_oh"), shell.displayhook, vars(shell.displayhook))
    own = set(map(id, (*lists, *history)))
    for referrer in gc.get_referrers(panel):
        if referrer is shell.user_ns or referrer is shell.user_ns_hidden:
            is_own = all(map(_HISTORY.fullmatch, _names(panel, referrer)))
        else:
            is_own = isinstance(referrer, _MACHINERY) or _is_register(referrer, panel) or id(referrer) in own
        if not is_own:
            return True
    return False


def _names(value: object, namespace: Mapping[str, object]) -> list[str]:
    return [name for name, other in namespace.items() if other is value]


def _is_register(referrer: object, panel: Displayed) -> bool:
    """Return whether it is ipywidgets' register of all widgets, or ours of all panels."""
    return type(referrer) is dict and (referrer.get(panel.model_id) is panel or panel in referrer)
