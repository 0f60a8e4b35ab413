"""Parks the variables of an idle kernel by itself, and brings them back before its next cell.

A thread looks at the GPUs while no cell runs. Variables move on the main thread, in the kernel's event loop,
between cells. `c.GpuMagics.park_after` says when, or the Jupyter server asks for it by a comm.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.pace import paced
from gpu_magic.errors import GpuMagicError, NotFreeError, PlacementError, show_as
from gpu_magic.frameworks import imported
from gpu_magic.gpus.room import check_room, wait_for_room
from gpu_magic.interrupts import defer_interrupts, in_background
from gpu_magic.measure.sampler import Sampler
from gpu_magic.park.idle import OwnRest, runs_cell, runs_task
from gpu_magic.park.park import park
from gpu_magic.park.unpark import bring_back
from gpu_magic.process.parked import parked, parked_line, stop_telling, tell_next_cell
from gpu_magic.process.show import show
from gpu_magic.shell.before_cell import BeforeCell
from gpu_magic.shell.waiting_line import waiting_line
from gpu_magic.text import listed, one_line, size_text, with_full_stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpu_magic.move.plan import Plan

__all__ = ["IdleParking"]

# Seconds between two looks: more than 15, and work can be missed. The server gets its answer after two looks.
_BETWEEN_LOOKS, _FOR_SERVER = 10.0, 1.0
_MOST_ASKING = 8  # comms, because a server can open any number of them
# A cell that parks or brings back variables itself before it does anything else.
_OWN = re.compile(
    r"(?:\s*(?:#[^\n]*\n|(?:import|from)\b[^;\n]*[;\n]))*"  # comments and imports
    r"\s*(?:\w+\s*=\s*)?(?:%?gpu_|gpu_magic\.)(un)?park\b"
)


class IdleParking:
    """Parks by itself in one shell of a kernel. `ask` works on any thread.

    It tries once after each cell. `now` is a clock in seconds.
    """

    def __init__(self, shell: Any, now: Callable[[], float] = time.monotonic) -> None:
        self._shell, self._now = shell, now
        self._after: float | None = None  # seconds. None: off
        self._rests_since = now()  # when the last cell or task ended
        self._has_tried = False  # since the last cell
        self._note = ""  # why it has failed
        self._asking: list[Any] = []  # the comms of the server that have no answer yet
        self._asked_at = 0  # the number of the next cell when the first of them asked
        self._lock = threading.Lock()  # guards them
        self._rest = OwnRest()
        self._sampler = Sampler(self.look, paced(_BETWEEN_LOOKS), "park")
        self._before = BeforeCell(shell, self._before_cell)

    def set_after(self, seconds: float | None) -> None:
        """Park after this time without a cell and without work on a GPU. None: only if the server asks."""
        self._after = seconds
        hooks = self._shell.events.callbacks["post_run_cell"]
        if (self.after_cell in hooks) != (seconds is not None):
            (hooks.append if seconds is not None else hooks.remove)(self.after_cell)

    def ask(self, comm: Any) -> None:
        """Park unless a cell runs, and send the bytes through a comm, or why this kernel does not park."""
        with self._lock:
            is_one_more = len(self._asking) < _MOST_ASKING
            if not self._asking:
                self._asked_at = self._shell.execution_count
            if is_one_more:
                self._asking.append(comm)
        if is_one_more:
            self._sampler.start()
            self._sampler.poke()
        else:
            _answer([comm], refused="This kernel was asked too often at the same time.")

    def close(self) -> None:
        """Stop, because the extension is unloaded."""
        self.set_after(None)
        self._before.remove()
        self._sampler.stop()
        self._rest.close()
        _answer(self._take_asking(), refused="gpu_magic was unloaded in this kernel.")

    def _take_asking(self) -> list[Any]:
        with self._lock:
            asking, self._asking = self._asking, []
        return asking

    def after_cell(self, result: object) -> None:  # noqa: ARG002 - IPython passes it
        """Look from now on whether the kernel is idle."""
        self._rests_since, self._has_tried = self._now(), False
        self._sampler.start()

    # On the thread that looks

    def look(self) -> bool:
        """Look whether this kernel is idle. Return whether another look is needed."""
        is_due = self._after is not None and not self._has_tried and bool(imported())
        if not (is_due or self._asking):
            return False  # the end of the next cell starts the thread again
        if self._is_in_use():
            return True
        with in_background():
            rest = self._rest.look(int(self._now() - self._rests_since))
            if self._asking:  # the first look does not know the work of each process
                time.sleep(paced(_FOR_SERVER))
                rest = self._rest.look(int(self._now() - self._rests_since))
        if rest.why_not:
            _answer(self._take_asking(), refused=rest.why_not)
        elif self._asking or (self._after is not None and rest.seconds >= self._after):
            self._shell.kernel.io_loop.add_callback(self._park_between_cells)
        return True

    def _is_in_use(self) -> bool:
        """Return whether a cell runs, or has run since the server asked. The question then came too late."""
        if runs_cell() or runs_task():
            self._rests_since = self._now()
        has_run = bool(self._asking) and self._shell.execution_count != self._asked_at
        if not (runs_cell() or has_run) or runs_task():
            return False  # a task is named by `OwnRest`
        _answer(self._take_asking(), refused="This kernel is in use.")
        return True

    # On the main thread, between cells

    def _park_between_cells(self) -> None:
        """Park, unless a cell has begun since the look. The loop also runs while a cell awaits."""
        is_due = self._after is not None and self._now() - self._rests_since >= self._after
        if self._is_in_use() or runs_task() or not (self._asking or (is_due and not self._has_tried)):
            return
        self._has_tried, asking = True, self._take_asking()
        with defer_interrupts() as received:
            try:
                self._park()
            except Exception as error:  # noqa: BLE001 - of a framework. No cell shows it
                why = _text(error)
                self._note = f"This idle kernel could not park its variables: {why}"
                self._before.add()
                _answer(asking, refused=why)
            else:
                _answer(asking, parked=sum(parked.nbytes().values()))
            received.clear()  # there is no cell to interrupt

    def _park(self) -> None:
        if parked.nbytes():  # by hand, which the next cell must not undo
            if park(dry_run=True).variables:
                raise PlacementError("Others are parked by hand. To bring them back: %gpu_unpark")
        elif park().variables:
            stop_telling(self._shell)
            self._before.add()
            if panels := sys.modules.get("gpu_magic.panel.state"):
                panels.panel_state().find_variables_again()

    # Before a cell that the user sees

    def _before_cell(self, cell: str) -> None:
        """Bring the variables back, or wait for room. An error or an interrupt stops the cell."""
        own, sizes = _OWN.match(cell), parked.nbytes()
        if sizes and own and own[1]:
            return  # it brings them back, or fails
        lines = [self._note] * bool(self._note)
        if sizes and own:
            tell_next_cell(self._shell)  # from now on as if parked by hand
        elif sizes:
            self._bring_back()
            back = listed(f"{size_text(size)} on {device}" for device, size in sizes.items())
            lines.append(f"Variables were parked while this kernel was idle. Back: {back}.")
            lines += filter(None, [parked_line()])
        self._note = ""
        self._before.remove()
        show(*lines)

    def _bring_back(self) -> None:
        try:
            with waiting_line() as show:
                bring_back((), partial(_make_room, show=show))
        except KeyboardInterrupt as interrupt:
            still = (
                f" Variables are parked on the CPU: {parked}. To use another GPU: %gpu_unpark --device 1. "
                "To leave them on the CPU: %gpu_park"
            )
            show_as(interrupt, f"KeyboardInterrupt: This cell did not run.{still if parked.nbytes() else ''}")
            raise
        except Exception as error:  # noqa: BLE001 - of a framework
            what, why = "This cell did not run because its variables are parked", with_full_stop(_text(error))
            raise PlacementError(f"{what}: {why} To leave them on the CPU: %gpu_park") from None


def _make_room(plans: Sequence[Plan], show: Callable[[object], None]) -> None:
    """Wait without a limit until the GPUs have room."""
    try:
        check_room(plans)
    except NotFreeError as full:
        try:
            wait_for_room(plans, None, show)
        except PlacementError:  # a GPU whose figures nobody knows
            raise full from None


def _text(error: Exception) -> str:
    return one_line(str(error) if isinstance(error, GpuMagicError) else f"{type(error).__name__}: {error}")


def _answer(comms: Iterable[Any], **answer: object) -> None:
    for comm in comms:
        comm.send(answer)
        comm.close()
