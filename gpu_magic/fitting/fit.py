"""Predicts the memory of a step: on which GPUs of this process it fits, and how large a batch would."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.errors import FitError
from gpu_magic.fitting.largest_batch import LargestBatch, find_largest
from gpu_magic.fitting.steps import FitOptions, step_of
from gpu_magic.fitting.verdict import Room, rooms
from gpu_magic.frameworks.prediction import Step, StepMemory, TrainingStep
from gpu_magic.spelling import either, option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpu_magic.frameworks.base import Framework
    from gpu_magic.frameworks.prediction import Predictor
    from gpu_magic.process.view import Snapshot

__all__ = ["Prediction", "predict"]

# Seconds for a whole prediction: those for other batches begin only within it.
_SECONDS = 2.7


@dataclass(frozen=True)
class Prediction:
    """What was predicted of a step.

    Parameters
    ----------
    memory
        The memory at its peak.
    rooms
        The GPUs of this process; UNKNOWN where they are not known.
    batch_size
        The batch's; None where there is no common dimension 0.
    largest
        The largest batch that fits on the GPU with the most room; None where none is known to.
    problem
        Why there are no GPUs; empty where there are.
    simulated
        Whether these GPUs are simulated.

    """

    memory: StepMemory
    rooms: tuple[Room, ...] | Unknown
    batch_size: int | None = None
    largest: LargestBatch | None = None
    problem: str = ""
    simulated: str = ""


def predict(values: Sequence[Any], options: FitOptions, machine: Callable[[], Snapshot] | None) -> Prediction:
    """Predict the memory of a step.

    Parameters
    ----------
    values, options
        As for `step_of`.
    machine
        Reads the machine; None: no verdict is wanted.

    Raises
    ------
    FitError
        They make no step, or it can't be followed.

    """
    began = time.monotonic()
    framework, step = step_of(values, options)
    predictor = _predictor(framework, step)
    size = predictor.batch_size
    if options.batch_size is not None and size is None:
        needs = "needs a batch whose tensors have a common dimension 0, and this one has none"
        raise FitError(f"{option('batch_size')} {needs}.")
    at = time.monotonic()
    memory = predictor.predict(options.batch_size)
    took = time.monotonic() - at
    size = size if options.batch_size is None else options.batch_size
    if machine is None:
        return Prediction(memory, (), size)
    snapshot = machine()
    found = rooms(snapshot, framework, memory.present)
    largest = None
    if size and found is not UNKNOWN and (room := _most(found)) is not None:
        known = {size: memory.peak}
        budget = _SECONDS - (time.monotonic() - began), took / 2  # the first one does what is done once
        largest = find_largest(predictor.peak, known, _guess(memory, size, room), room, budget)
    return Prediction(memory, found, size, largest, snapshot.problem, snapshot.simulated)


def _predictor(framework: Framework, step: Step) -> Predictor:
    if isinstance(step, TrainingStep) and step.batch is None:
        way = either("%gpu_fit model optimizer batch", "fit(model, optimizer, batch)")
        raise FitError(f"There is no batch: {way}.")
    predictor = framework.predictor(step)
    if predictor is None:
        raise FitError(f"The memory of a step of {framework.name}'s can't be predicted.")
    return predictor


def _most(found: tuple[Room, ...]) -> int | None:
    """Return the most bytes that a step can have on one of the GPUs; None where that is not known."""
    known = [room.available - room.context for room in found if room.available is not UNKNOWN]
    return max(known, default=None)


def _guess(memory: StepMemory, size: int, available: int) -> int:
    """Return about how large a batch fits: what the forward makes grows with it, and nothing else."""
    grows = memory.parts.get("activations", 0) + memory.parts.get("temporary", 0)
    stays = memory.peak - grows
    return size * max(0, available - stays) // grows if grows else size * 2
