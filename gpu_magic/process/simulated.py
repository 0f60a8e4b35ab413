"""A CUDA driver for `testing.simulate`: not started in this process, until a test starts it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from gpu_magic.process import Driver, use_driver
from gpu_magic.process.watch import cuda_watch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["SimulatedDriver", "simulated_cuda"]


class SimulatedDriver(Driver):
    """Answers for CUDA where the GPUs do not exist. The real driver is not asked."""

    def __init__(self) -> None:
        self.error = 0
        self._uuids: tuple[str, ...] | None = None

    def initialize(self, uuids: Sequence[str]) -> None:
        """Initialize CUDA with these devices, as cuInit does; a second time changes nothing."""
        if self._uuids is None:
            self._uuids = tuple(uuid.partition("-")[2] for uuid in uuids)

    def is_loaded(self) -> bool:
        return self._uuids is not None

    def is_initialized(self) -> bool:
        return self._uuids is not None

    def is_forked(self) -> bool:
        return False

    def may_be_forked(self) -> bool:
        return False

    def devices(self) -> tuple[str, ...]:
        return self._uuids or ()


@contextlib.contextmanager
def simulated_cuda() -> Iterator[SimulatedDriver]:
    """Ask a simulated driver within a `with` block."""
    cuda = SimulatedDriver()
    before, first = use_driver(cuda), cuda_watch.first
    cuda_watch.first = None
    try:
        yield cuda
    finally:
        use_driver(before)
        cuda_watch.first = first
