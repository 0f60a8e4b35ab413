"""`gpu_magic.map`: a function and items go to engines, and results come back, or an error in words."""

from __future__ import annotations

import reprlib
from collections import deque
from typing import TYPE_CHECKING, Any

from gpu_magic.engines.sources import with_cells
from gpu_magic.engines.spread import EnginesEnded, Failed, Spread
from gpu_magic.errors import CallFailed, ClusterError
from gpu_magic.launching.pickling import NotPickled, pickled
from gpu_magic.text import listed, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpu_magic.engines.cluster import Cluster
    from gpu_magic.engines.engine import Engine

__all__ = ["map_over"]

_NAME, _ITEM = 40, 60  # characters in a message


def map_over(
    cluster: Cluster, engines: Iterable[Engine], function: Callable[[Any], Any], items: Iterable[Any]
) -> list[Any]:
    """Call a function with each item, in engines; return what it returns, in the order of the items.

    Parameters
    ----------
    cluster, engines
        The engines, and those of them to use.
    function, items
        What is called, and with what.

    Raises
    ------
    CallFailed
        A call has failed, or its engine has ended. No other call runs any more.
    ClusterError
        The function or an item can't be handed over: nothing has run.

    """
    if not callable(function):
        raise ClusterError(f"map calls a function with each item, and {function!r:.40} is none.")
    numbers = [int(number) for number in cluster.targets(engine.number for engine in engines)]
    given = list(items)
    name = shortened(str(getattr(function, "__name__", type(function).__name__)), _NAME)
    try:
        text = pickled(name, function)
        ready = deque(pickled(f"Item {position}", item) for position, item in enumerate(given))
    except NotPickled as error:
        raise ClusterError(str(error)) from None
    spread = Spread(cluster, numbers, name, text, ready)
    try:
        return spread.results()
    except BaseException as error:  # noqa: BLE001 - an interrupt, too; it is raised
        anew = spread.end()
        raise _in_words(error, anew, spread, name, given) from None


def _in_words(
    error: BaseException, anew: Sequence[Engine], spread: Spread, name: str, items: Sequence[Any]
) -> BaseException:
    """Return what a user gets for an error, with a line on engines that were started anew."""
    if isinstance(error, Failed):
        error = _failed(error, name, items, spread.files)
    elif isinstance(error, EnginesEnded):
        error = _ended(error.engines, name, items, spread.lost())
    if anew:
        begin = _about(anew, "was started anew: its", "were started anew: their")
        error.add_note(f"{begin} variables are gone.")
    if isinstance(error, KeyboardInterrupt):
        lines = ["KeyboardInterrupt", *getattr(error, "__notes__", ())]
        error._render_traceback_ = lambda: lines  # type: ignore[attr-defined] # IPython's way
    return error


def _failed(failed: Failed, name: str, items: Sequence[Any], files: Iterable[str]) -> CallFailed:
    failure, engine, position = failed.failure, failed.engine, failed.position
    what = f"{name} can't be used" if position is None else f"Item {_item(items, position)} has failed"
    text = with_cells(failure.text, files).rstrip("\n")
    return CallFailed(f"{what} in {engine.label}:\n{text}", position, engine.number, failure.kind)


def _ended(engines: Sequence[Engine], name: str, items: Sequence[Any], lost: Sequence[int]) -> CallFailed:
    position = lost[0] if len(lost) == 1 else None  # else it can't be known which of them has run
    work = f"it worked on item {_item(items, position)}" if position is not None else f"{name} was mapped"
    return CallFailed(
        f"{_about(engines, 'has', 'have')} ended while {work}.", position, engines[0].number, ""
    )


def _item(items: Sequence[Any], position: int) -> str:
    """Return what a message calls an item: its position and itself, `3 (0.01)`."""
    return f"{position} ({shortened(reprlib.repr(items[position]), _ITEM)})"


def _about(engines: Sequence[Engine], one: str, several: str) -> str:
    """Return the beginning of a sentence: `Engine 0 (GPU 2) and engine 1 (GPU 0) have`."""
    text = listed(engine.label for engine in engines)
    return f"{text[0].upper()}{text[1:]} {one if len(engines) == 1 else several}"
