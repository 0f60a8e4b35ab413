"""ipyparallel's `%px`, `%%px` and `%autopx` for the cluster of this notebook."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

from ipyparallel import AsyncResult
from ipyparallel.client.magics import ParallelMagics
from ipyparallel.error import TaskAborted
from IPython.core.error import UsageError
from IPython.core.getipython import get_ipython

from gpu_magic.cluster.cluster import (
    LATE,
    Cluster,
    EngineNumber,
    about,
    as_line,
    capitalized,
    current_cluster,
)
from gpu_magic.errors import GpuMagicError, show_as
from gpu_magic.frameworks.private import private_of
from gpu_magic.text import counted

__all__ = ["add_px"]

_PATIENCE = 2.0  # seconds that engines may still run after one has failed
_AGAIN = 0.2


class PxResult(AsyncResult):  # type: ignore[misc] # ipyparallel has no types
    """ipyparallel's result of a cell, which also reports a failed engine while other engines still run."""

    _failed_at: float | None = None
    _is_noted = False

    def wait(self, timeout: float | None = -1, return_when: str | None = None) -> Any:
        """Wait as ipyparallel does. Print a line if an engine has failed while other engines still run."""
        if return_when is not None or timeout == 0:
            return super().wait(timeout, return_when=return_when)
        deadline = math.inf if timeout is None or timeout < 0 else time.monotonic() + timeout
        while not super().wait(min(_AGAIN, max(deadline - time.monotonic(), 0))):
            self._note_failed()
            if time.monotonic() >= deadline:
                return False
        return True

    def get(
        self,
        timeout: float | None = None,
        return_exceptions: bool | None = None,
        return_when: str | None = None,
    ) -> Any:
        """Return ipyparallel's result after the engines' output has arrived.

        Output can arrive after the result. ipyparallel waits for the output for at most 2 s.

        Raises
        ------
        UsageError
            An engine has not run the cell. When a cell fails, its engine drops the cells that wait there.
            ipyparallel does not report that.

        """
        try:
            result = super().get(timeout, return_exceptions, return_when)
        finally:
            if self.done():
                self.wait_for_output(LATE)
        dropped = [number for number, error in self._failed if isinstance(error, TaskAborted)]
        if dropped and not return_exceptions:
            text = about(current_cluster().find(dropped), "has", "have")
            why = "an earlier cell failed or was interrupted"
            raise UsageError(f"{text} not run the cell, because {why}.")
        return result

    @property
    def _failed(self) -> list[tuple[int, Exception]]:
        """The errors of the cell so far, with the numbers of their engines."""
        done = [(number, one.result()) for number, one in _parts(self).items() if one.done()]
        return [(number, result) for number, result in done if isinstance(result, Exception)]

    def _note_failed(self) -> None:
        failed, running = self._failed, sum(not one.done() for one in _parts(self).values())
        if self._is_noted or not (failed and running):
            return
        self._failed_at = self._failed_at or time.monotonic()
        if time.monotonic() - self._failed_at >= _PATIENCE:
            self._is_noted = True
            number, error = failed[0]
            label = capitalized(current_cluster().engines[number].label)
            run, they_wait = ("runs", "it waits") if running == 1 else ("run", "they wait")
            sys.stderr.write(
                f"{label} failed: {as_line(error)}. {counted(running, 'other engine')} still {run}. "
                f"If {they_wait} for engine {number!r}, interrupt the kernel.\n"
            )

    def _iopub_streaming_output_callback(self, eid: int, msg_future: Any, msg: Any) -> None:
        # Output from before the wait has no parent header. One engine's would replace another's.
        parent = msg.get("parent_header") or {"msg_id": msg_future.msg_id}
        super()._iopub_streaming_output_callback(eid, msg_future, {**msg, "parent_header": parent})


def _parts(result: AsyncResult) -> dict[int, Any]:
    """Return the result of each engine. Empty if ipyparallel does not tell them apart."""
    targets = private_of(result, "ipyparallel:AsyncResult._targets")
    children = private_of(result, "ipyparallel:AsyncResult._children")
    return {} if targets is None or children is None else dict(zip(targets, children, strict=True))


class PxMagics(ParallelMagics):  # type: ignore[misc]
    """ipyparallel's magics, with interrupts that wait for the engines.

    ipyparallel sends a signal to the engines and does not wait. These magics name the engines that still run
    after 5 s. The next cell raises an error instead of waiting for these engines.
    """

    signal_on_interrupt = None  # `_interrupt` sends the signal
    _last_result: PxResult | None = None

    @property
    def last_result(self) -> PxResult | None:
        """The result of the latest cell, for `%pxresult`."""
        return self._last_result

    @last_result.setter
    def last_result(self, result: AsyncResult | None) -> None:
        if result is not None:
            result.__class__ = PxResult
        self._last_result = result

    def parallel_execute(self, cell: str, *args: Any, **options: Any) -> Any:
        """Run a cell in the target engines."""
        targets = self.view.targets
        try:
            cluster = current_cluster()
            some = [targets] if isinstance(targets, int) else targets
            engines = cluster.check(None if targets in ("all", None) else some)
        except GpuMagicError as error:
            raise UsageError(str(error)) from None
        self.last_result, self.view.targets = None, [*map(EngineNumber, engines)]
        numbers = [engine.number for engine in engines]
        try:
            return super().parallel_execute(cell, *args, **options)
        except (KeyboardInterrupt, TimeoutError) as error:
            # With --no-stream, ipyparallel then shows the missing result, which raises TimeoutError.
            interrupt = error if isinstance(error, KeyboardInterrupt) else error.__context__
            if not isinstance(interrupt, KeyboardInterrupt):
                raise
            show_as(interrupt, "KeyboardInterrupt", *self._interrupt(cluster))
            raise interrupt from None
        finally:
            self.view.targets = targets
            cluster.wait_for_notes(numbers)  # the controller knows of an end before the report

    def _interrupt(self, cluster: Cluster) -> list[str]:
        """Interrupt the engines. Return a line about engines that still run."""
        if (result := self.last_result) is None:
            return []
        running: dict[int, Any] = _parts(result) or dict.fromkeys(cluster.engines, result)
        if there := [number for number in running if number in cluster.client.ids]:
            cluster.client.abort(result, targets=there, block=False)  # queued cells
        left = cluster.interrupt(running)
        return [cluster.still_running(left)] if left else []


def add_px(cluster: Cluster) -> None:
    """Add the magics to this process's shell, if there is one, for all engines of a cluster."""
    if shell := get_ipython():
        view = cluster.client.direct_view("all")
        view.block = True
        shell.register_magics(PxMagics(shell, view))
