"""A block of code that is measured: what `gpu_magic.gpu_time()` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from gpu_magic.errors import MeasurementError
from gpu_magic.public import public
from gpu_magic.usage.recorder import recorder

if TYPE_CHECKING:
    from types import TracebackType

    from gpu_magic.usage.measurement import Measurement
    from gpu_magic.usage.record import CellUsage

__all__ = ["GpuTime"]


class GpuTime:
    """A context manager that measures its block, and keeps what it has cost.

    Parameters
    ----------
    label
        What the block is called.
    cell
        The number of the cell that it is; None for a part of a cell, or of a script.

    """

    def __init__(self, label: str = "", cell: int | None = None) -> None:
        self._label, self._cell = str(label), cell
        self._running: list[Measurement] = []
        self._usage: CellUsage | None = None

    @property
    @public
    def usage(self) -> CellUsage:
        """What the block has cost, the last time.

        Raises
        ------
        MeasurementError
            It has not ended.

        """
        if self._usage is None:
            raise MeasurementError("What the block has cost is known when it has ended: with … as measured.")
        return self._usage

    @public
    def __enter__(self) -> Self:
        self._running.append(recorder().begin(reset=True))
        return self

    @public
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._usage = recorder().end(
            self._running.pop(),
            cell=self._cell,
            code=self._label,
            has_failed=kind is not None,
            only_touched=False,
        )
        recorder().keep(self._usage)
