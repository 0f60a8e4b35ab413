"""Measures the blocks of this process, and keeps what they have cost."""

from __future__ import annotations

import os
import platform
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING
from weakref import WeakSet

from gpu_magic.errors import GpuMagicError
from gpu_magic.frameworks import imported
from gpu_magic.process.sampler import Sampler
from gpu_magic.process.session import current
from gpu_magic.usage.analysis import analyze
from gpu_magic.usage.measurement import Measurement
from gpu_magic.usage.reading import read
from gpu_magic.usage.record import CellUsage
from gpu_magic.usage.targets import Machine, MachineCache, Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpu_magic.frameworks.base import Framework
    from gpu_magic.usage.reading import Reading

__all__ = ["Recorder", "recorder"]

_SECONDS = 1 / 20  # between two readings
_LINGER = 60.0  # seconds in which somebody who runs cell after cell has run another one
_MOST_KEPT = 1000


class Recorder:
    """Measures blocks: begins and ends them, and reads the machine twenty times a second between.

    Attributes
    ----------
    kept
        What blocks have cost, the latest last: a thousand of them.
    cells
        How many of them were whole cells, ever.

    """

    def __init__(self) -> None:
        self.kept: deque[CellUsage] = deque(maxlen=_MOST_KEPT)
        self.cells = 0
        self._pid = os.getpid()
        self._machines = MachineCache()
        self._lock = threading.Lock()  # guards the blocks that run, and their readings
        # Weak: where an interrupt comes before the caller has its block, nobody would end it.
        self._running: WeakSet[Measurement] = WeakSet()
        self._sampler = Sampler(self._tick, _SECONDS, "usage", _LINGER)

    def begin(self, *, reset: bool) -> Measurement:
        """Begin to measure.

        Parameters
        ----------
        reset
            Have the frameworks count their peaks from now on, as their own functions for that do, so that the
            block's peak is exact. Otherwise it is where it is higher than all before it.

        Raises
        ------
        SimulationError
            The machine is simulated, and its description is not understood.

        """
        session = current()
        machine = self._machines.find(session)
        first = read(session, _uuids(machine), None)
        if machine.targets and not first.devices:  # the driver's library was closed since, by an unload
            machine = self._machines.find(session, anew=True)
            first = read(session, _uuids(machine), None)
        names: set[str] = set()
        if reset:
            with self._lock:
                around = list(self._running)
                for block in around:
                    block.keep_peaks(first)
            names = {framework.name for framework in imported() if _reset_peaks(framework)}
            with self._lock:
                for block in around:
                    block.was_reset(names)
        block = Measurement(machine, first, names)
        with self._lock:
            self._running.add(block)
        self._sampler.start()
        return block

    def end(
        self, block: Measurement, *, cell: int | None, code: str, has_failed: bool, only_touched: bool
    ) -> CellUsage:
        """End a block, and return what it has cost.

        Parameters
        ----------
        block
            The block.
        cell, code, has_failed
            As in `CellUsage`.
        only_touched
            Leave out GPUs that this process has memory on, and that the block has not touched.

        """
        wall, user, system = block.stop()
        with self._lock:
            self._running.discard(block)
        session = current()
        last = read(session, block.uuids, block.since)
        block.add_last(last)
        machine = self._machines.find(session)  # the block can have chosen GPUs
        found = (
            analyze(block, target, wall, only_touched=only_touched)
            for target in _targets(block, machine, last)
        )
        return CellUsage(
            cell=cell,
            code=code,
            started=block.started,
            wall=wall,
            user=user,
            system=system,
            gpus=tuple(usage for usage in found if usage is not None),
            problem=machine.problem,
            has_failed=has_failed,
            versions=_versions(machine),
            simulated=machine.simulated,
        )

    def keep(self, usage: CellUsage) -> None:
        """Keep what a block has cost, for `gpu_magic.history()`."""
        self.kept.append(usage)
        self.cells += usage.cell is not None

    def _tick(self) -> bool:
        """Read the machine for the blocks that run; return whether there are any."""
        with self._lock:
            running = list(self._running)
        if not running or os.getpid() != self._pid:
            return False
        try:
            uuids = dict.fromkeys(uuid for block in running for uuid in block.uuids)
            reading = read(current(), tuple(uuids), min(block.since for block in running))
        except GpuMagicError:  # the simulated machine's description was changed: nothing is read
            return True
        with self._lock:
            for block in running:
                if block in self._running:
                    block.add(reading)
        return True


def _targets(block: Measurement, machine: Machine, last: Reading) -> Iterator[Target]:
    """Yield the devices that were measured, as they are called now, and frameworks' others."""
    measured, now = set(block.uuids), {target.uuid: target for target in machine.targets}
    targets = [*machine.targets, *(one for one in block.machine.targets if one.uuid not in now)]
    for target in targets:
        if target.uuid in measured:  # one that is not seen any more has no name
            yield target if target.uuid in now else target._replace(name="")
    named = {target.name for target in targets}
    for name in sorted({name for pools in last.pools.values() for name in pools} - named):
        yield Target("", name, "", "")  # an accelerator that no driver here tells of


def _uuids(machine: Machine) -> tuple[str, ...]:
    return tuple(target.uuid for target in machine.targets)


def _reset_peaks(framework: Framework) -> bool:
    try:
        return framework.reset_peaks()
    except Exception:  # noqa: BLE001 - after an error of CUDA's, each call can raise it again
        return False


def _versions(machine: Machine) -> Mapping[str, str]:
    """Return the versions that the notebook ran on."""
    found = {"driver": machine.driver} if machine.driver else {}
    found["Python"] = platform.python_version()
    modules = {"gpu_magic": "gpu_magic"} | {one.name: one.module for one in imported()}
    for name, module in modules.items():
        if version := getattr(sys.modules.get(module), "__version__", ""):
            found[name] = str(version)
    return found


def recorder() -> Recorder:
    """Return this process's recorder; the first call makes it, and the first one in a forked process."""
    global _recorder  # noqa: PLW0603
    if _recorder is None or _recorder._pid != os.getpid():  # noqa: SLF001
        _recorder = Recorder()
    return _recorder


_recorder: Recorder | None = None
