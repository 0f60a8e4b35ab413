"""Moves variables to one device: a plan first, then all of it or nothing."""

from __future__ import annotations

import contextlib
import gc
import time
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks import get
from gpu_magic.frameworks.base import Load
from gpu_magic.moving.critical_section import collection_paused, deferred_interrupts
from gpu_magic.moving.destination import check_numpy
from gpu_magic.moving.graph import Graph
from gpu_magic.placement.holdings import holdings_of
from gpu_magic.placement.physical import described, free_bytes
from gpu_magic.text import listed, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpu_magic.frameworks.base import Framework, Transfer
    from gpu_magic.moving.graph import Found
    from gpu_magic.moving.names import Names
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["Move", "Row"]


class Row(NamedTuple):
    """One variable of a plan; what it shares with one before it is counted there.

    Parameters
    ----------
    name
        As it was named.
    kind
        Its type, and an array's shape.
    load
        What is to be moved.
    left
        The number of NumPy arrays in it that stay.
    holds
        Whether it has arrays of its own that can be moved, elsewhere or there already.
    shared
        A variable before it that has something of it.

    """

    name: str
    kind: str
    load: Load
    left: int
    holds: bool
    shared: str


class Move:
    """The way of some variables to a device.

    Parameters
    ----------
    place
        Where to.
    converts
        The module of the framework that NumPy arrays become arrays of; None: they stay.

    """

    def __init__(self, place: LogicalDevice, converts: str | None = None) -> None:
        if converts is not None:
            check_numpy(converts)
        self.place = place  # with the type of the frameworks' own GPUs, once that is known
        self._asked = place
        self.rows: list[Row] = []
        self.seconds = 0.0
        self._done = 0  # bytes
        self._converts = converts
        self._graph = Graph(place, converts)
        self._transfers: dict[str, Transfer] = {}
        self._needs: dict[str, int] = {}
        self._named: dict[str, Any] = {}
        self._undo: list[Callable[[], None]] = []

    def add(self, name: str, value: Any) -> None:
        """Take a variable along.

        Raises
        ------
        PlacementError
            It can't be moved: why, and what to do.

        """
        with collection_paused():
            found = self._graph.add(value)
        shape = getattr(value, "shape", None) if found.arrays or found.left or found.shared else None
        kind = f"{type(value).__name__}{f' {tuple(shape)}' if isinstance(shape, tuple) else ''}"
        whose = f"{name}: " if name else ""
        if found.fixed:
            raise PlacementError(f"{whose}{found.fixed[0]}")
        if found.left and not found.arrays and self.place.kind == "gpu":
            raise PlacementError(self._why_left(name or "it", found))
        try:
            with collection_paused():
                load = self._loaded(found)
        except PlacementError as error:
            raise PlacementError(f"{whose}{error}") from None
        shared = self.rows[min(found.shared) - 1].name if found.shared else ""
        self._named[name] = value
        self.rows.append(Row(name, kind, load, len(found.left), bool(found.arrays), shared))

    def add_if_possible(self, name: str, value: Any) -> str:
        """Take a variable along if it has arrays that can be moved; else say why one that has them can't."""
        found = Graph(self._asked, self._converts).add(value)
        if not found.arrays and not found.fixed:
            return ""
        probe = Move(self._asked, self._converts)  # the plan's own graph would hold it from then on
        try:
            probe.add(name, value)
        except PlacementError as error:
            return str(error)
        if probe.rows[0].holds:
            self.add(name, value)
        return ""

    def _why_left(self, name: str, found: Found) -> str:
        if self._converts is not None:
            kinds = listed(sorted({str(array.dtype) for array in found.left}))
            return f"{name} is NumPy's, and no framework has arrays of {kinds}."
        return (
            f"{name} is NumPy's, which knows no device: --numpy torch (or numpy='torch') makes it PyTorch's "
            "there; jax and cupy will do, too."
        )

    def _loaded(self, found: Found) -> Load:
        arrays, nbytes, origins = 0, 0, set[str]()
        for module, things in found.arrays.items():
            load = self._transfer(module).add(things)
            self._needs[module] = self._needs.get(module, 0) + load.nbytes
            arrays, nbytes = arrays + load.arrays, nbytes + load.nbytes
            origins.update(load.origins)
        return Load(arrays, nbytes, sorted(origins))

    def _transfer(self, module: str) -> Transfer:
        transfer = self._transfers.get(module)
        if transfer is None:
            framework = _framework(module)
            if module != self._converts:
                self._refuse_what_is_absent(framework)
            transfer = self._transfers[module] = framework.transfer(self._asked)
            if len(self._transfers) == 1:
                self.place = framework.resolved(self.place)
        return transfer

    @property
    def nbytes(self) -> int:
        """What is to be allocated there, in bytes."""
        return sum(self._needs.values())

    @property
    def free(self) -> int | None:
        """How much is free there, in bytes, as far as it is known: the least that a framework can take."""
        found = (_framework(module).free_bytes(self._asked) for module, need in self._needs.items() if need)
        known = [one for one in found if one is not None]
        if not known and (left := free_bytes(self.place)) is not None:
            known.append(left)
        return min(known, default=None)

    def check(self) -> None:
        """Refuse what is nothing.

        Raises
        ------
        PlacementError
            None of the variables holds anything that could be moved.

        """
        if not any(row.holds for row in self.rows):
            names = listed((f"{row.name or 'it'} ({row.kind})" for row in self.rows), "the variables here")
            raise PlacementError(f"There is nothing to move in {names}: no framework's arrays.")

    def _refuse_what_is_absent(self, framework: Framework) -> None:
        if why := framework.problem(self._asked):
            raise PlacementError(f"{self._asked} can't be used: {why}.")

    def _refuse_what_is_too_much(self) -> None:
        free = self.free
        if free is not None and self.nbytes > free:
            raise PlacementError(
                f"{size_text(self.nbytes)} do not fit on {described([self.place])[0]}, where "
                f"{size_text(free)} are free. Move fewer, or see what %gpu_free gives back."
            )

    def carry_out(self, names: Names | None = None, tell: Callable[[int], object] = id) -> list[Any]:
        """Copy, then put the copies in place.

        Parameters
        ----------
        names
            Where the variables stand.
        tell
            FrameworkSettings how many bytes are done, after each piece.

        Returns
        -------
        list
            The variables as they are now.

        Raises
        ------
        PlacementError
            It failed, out of memory for example; all is as it was, and what was allocated is freed.

        """
        begun = time.monotonic()
        why = ""
        is_interrupted = False
        try:
            with collection_paused():
                if self._converts in self._transfers:  # asking it before would start it for a dry run
                    self._refuse_what_is_absent(_framework(self._converts))
                self._refuse_what_is_too_much()
                self._copy(tell)
                with deferred_interrupts() as came:
                    self._commit(names, came)
        except KeyboardInterrupt:
            is_interrupted = True
        except PlacementError as error:
            why = f"{error} Nothing was changed."
        except Exception as error:  # noqa: BLE001 - each framework has its own for being out of memory
            why = self._why(error)
        self.seconds = time.monotonic() - begun
        if is_interrupted or why:  # outside of the handlers, whose frames hold on to the copies
            self._give_up()
        if is_interrupted:
            raise KeyboardInterrupt
        if why:
            raise PlacementError(why)
        return [self._graph.now(value) for value in self._named.values()]

    def _copy(self, tell: Callable[[int], object]) -> None:
        for transfer in self._transfers.values():
            for nbytes in transfer.copy():
                self._done += nbytes
                tell(self._done)

    def _commit(self, names: Names | None, came: list[int]) -> None:
        for transfer in self._transfers.values():
            transfer.commit()
        for change in self._graph.rebuild(self._replacement):
            self._undo.append(change.undo)
            change.make()
        if names is not None:
            self._undo.append(names.undo)
            names.put({name: self._graph.now(value) for name, value in self._named.items()})
        if came:
            raise KeyboardInterrupt
        for module in self._transfers:
            _framework(module).finalize(self._graph.objects())

    def _replacement(self, thing: Any) -> Any:
        for transfer in self._transfers.values():
            if (new := transfer.replacement(thing)) is not thing:
                return new
        return thing

    def _why(self, error: Exception) -> str:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        ran_out = any(word in said.lower() for word in ("out of memory", "outofmemory", "resource_exhausted"))
        if ran_out:
            done = f"{size_text(self._done)} of {size_text(self.nbytes)}"
            return (
                f"{self.place} ran out of memory after {done}. All is as it was. Move fewer, or see what "
                "%gpu_free gives back."
            )
        return f"Moving to {self.place} failed, and all is as it was: {said[:300]}"

    def _give_up(self) -> None:
        """Put all back, whatever one step of that raises; free what was allocated, the frameworks' too."""
        with deferred_interrupts():
            while self._undo:
                with contextlib.suppress(Exception):
                    self._undo.pop()()
            for module in reversed(self._transfers):
                with contextlib.suppress(Exception):
                    self._transfers[module].undo()
        used = [_framework(module) for module in self._transfers]
        self._transfers.clear()
        self._graph = Graph(self._asked, self._converts)  # the old one holds what was built anew
        gc.collect()
        for framework in used:
            framework.empty_cache()

    def left_behind(self, others: Iterable[tuple[str, object]]) -> Iterator[tuple[str, int]]:
        """Name variables that share what was moved in place and have more elsewhere, with its bytes.

        An optimizer whose model was moved has its state where the model was; a model whose parameters were
        moved, its buffers.
        """
        moved = self._graph.kept()
        for name, value in others:
            graph = Graph(self._asked)
            found = graph.add(value)
            if found.fixed or name in self._named or not graph.kept() & moved:
                continue
            try:
                sizes = [_framework(one).transfer(self._asked).add(found.arrays[one]) for one in found.arrays]
            except PlacementError:
                continue
            if size := sum(load.nbytes for load in sizes):
                yield name, size

    def old_keys(self) -> set[Any]:
        """Return the keys of all memory that the moved arrays had, as in `Holding`."""
        found: set[Any] = set()
        for transfer in self._transfers.values():
            found.update(holdings_of(transfer.before()))
        return found


def _framework(module: str) -> Framework:
    return cast("Framework", get(module))  # its arrays are here, so it is, too
