"""ipyparallel's `%px`, `%%px` and `%autopx` for the cluster of this notebook."""

from __future__ import annotations

import math
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ipyparallel import AsyncResult
from ipyparallel.client.magics import ParallelMagics
from ipyparallel.error import TaskAborted
from IPython.core.error import UsageError
from IPython.core.getipython import get_ipython

from gpu_magic.cluster.cluster import OUTPUT_SECONDS, about, as_line, capitalized, current_cluster
from gpu_magic.errors import GpuMagicError, show_as
from gpu_magic.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.cluster.cluster import Cluster, Engine

__all__ = ["add_px"]

_PATIENCE_SECONDS = 2.0  # that engines may still run after one has failed
_POLL_SECONDS = 0.2


class PxResult(AsyncResult):  # type: ignore[misc] # ipyparallel has no types
    """ipyparallel's result of a cell. It names GPUs, and reports a failed engine while other engines run."""

    cluster: Cluster
    engines: Sequence[Engine] = ()
    _failed_at: float | None = None
    _is_noted = False

    @property
    def running(self) -> dict[int, str]:
        """The message ids of the engines that still run the cell, by engine number."""
        outstanding = self.cluster.client.outstanding
        messages = zip(self.engines, self.msg_ids, strict=True)
        return {engine.number: message for engine, message in messages if message in outstanding}

    def wait(self, timeout: float | None = -1, return_when: str | None = None) -> Any:
        """Wait as ipyparallel does. Print a line if an engine has failed while other engines still run."""
        if return_when is not None or timeout == 0:
            return super().wait(timeout, return_when=return_when)
        deadline = math.inf if timeout is None or timeout < 0 else time.monotonic() + timeout
        while not super().wait(min(_POLL_SECONDS, max(deadline - time.monotonic(), 0))):
            self.cluster.report_ends()
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
                self.wait_for_output(OUTPUT_SECONDS)
        if not return_exceptions and self.done():
            results = zip(self.engines, super().get(return_exceptions=True), strict=True)
            if dropped := [engine for engine, one in results if isinstance(one, TaskAborted)]:
                why = "an earlier cell failed or was interrupted"
                raise UsageError(f"{about(dropped, 'has', 'have')} not run the cell, because {why}.")
        return result

    def display_outputs(self, groupby: str = "type", result_only: bool = False) -> None:
        """Show the outputs as ipyparallel does, and the GPUs of each engine."""
        outputs = self.metadata
        numbers = [output["engine_id"] for output in outputs]
        try:
            for engine, output in zip(self.engines, outputs, strict=True):
                output["engine_id"] = str(engine)
            super().display_outputs(groupby, result_only)
        finally:
            for number, output in zip(numbers, outputs, strict=True):
                output["engine_id"] = number

    def _note_failed(self) -> None:
        """Report the first engine that has failed, if other engines still run 2 s later."""
        running = len(self.running)
        if self._is_noted or not 0 < running < len(self.engines):
            return
        parts = zip(self.engines, self.split(), strict=True)
        failed = [(engine, error) for engine, one in parts if one.done() and (error := one.exception())]
        if not failed:
            return
        self._failed_at = self._failed_at or time.monotonic()
        if time.monotonic() - self._failed_at >= _PATIENCE_SECONDS:
            self._is_noted = True
            engine, error = failed[0]
            run, they_wait = ("runs", "it waits") if running == 1 else ("run", "they wait")
            sys.stderr.write(
                f"{capitalized(engine.label)} failed: {as_line(error)}. "
                f"{counted(running, 'other engine')} still {run}. "
                f"If {they_wait} for engine {engine.number}, interrupt the kernel.\n"
            )

    # ipyparallel calls it with each output of an engine. See the table in frameworks/private.py.
    def _iopub_streaming_output_callback(self, number: int, future: Any, msg: Any) -> None:
        labels = {engine.number: str(engine) for engine in self.engines}
        label = labels.get(number, str(number))
        output = type(future.output.metadata)(future.output.metadata, engine_id=label)
        named = SimpleNamespace(
            msg_id=future.msg_id, header=future.header, output=SimpleNamespace(metadata=output)
        )
        # Output from before the wait has no parent header. One engine's would replace another's.
        parent = msg.get("parent_header") or {"msg_id": future.msg_id}
        super()._iopub_streaming_output_callback(label, named, {**msg, "parent_header": parent})


class PxMagics(ParallelMagics):  # type: ignore[misc]
    """ipyparallel's magics, with interrupts that wait for the engines.

    ipyparallel sends a signal to the engines and does not wait. These magics name the engines that still run
    after 5 s. The next cell raises an error instead of waiting for these engines.
    """

    signal_on_interrupt = None  # `_interrupt` sends the signal
    _last_result: PxResult | None = None
    _engines: Sequence[Engine] = ()

    @property
    def last_result(self) -> PxResult | None:
        """The result of the latest cell, for `%pxresult`."""
        return self._last_result

    @last_result.setter
    def last_result(self, result: AsyncResult | None) -> None:
        if result is not None:
            result.__class__ = PxResult
            result.cluster, result.engines = current_cluster(), self._engines
        self._last_result = result

    def parallel_execute(self, cell: str, *args: Any, **options: Any) -> Any:
        """Run a cell in the target engines."""
        targets = self.view.targets
        try:
            cluster = current_cluster()
            some = [targets] if isinstance(targets, int) else targets
            self._engines = cluster.check(None if targets in ("all", None) else some)
        except GpuMagicError as error:
            raise UsageError(str(error)) from None
        numbers = [engine.number for engine in self._engines]
        self.last_result, self.view.targets = None, numbers
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
            cluster.report_ends()

    def _interrupt(self, cluster: Cluster) -> list[str]:
        """Interrupt the engines. Return a line about engines that still run."""
        if (result := self.last_result) is None:
            return []
        running = result.running
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
