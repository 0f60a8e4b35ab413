"""Finds the step that an error has ended: the model that was called then, and with which batch."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.frameworks import imported

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

    from gpu_magic.frameworks.base import Framework

__all__ = ["FailedStep", "causes", "find_failed_step"]

_MOST_CAUSES = 20


class FailedStep(NamedTuple):
    """A step that has failed in its forward.

    Parameters
    ----------
    values
        The model, its optimizer where one is known, and the batch.
    batch_size
        The batch's, along dimension 0.
    is_eval
        Whether the model was not in training.

    """

    values: tuple[Any, ...]
    batch_size: int
    is_eval: bool


def find_failed_step(error: BaseException, variables: Mapping[str, object]) -> FailedStep | None:
    """Return the step in whose forward an error was raised; None where that is not plain.

    Parameters
    ----------
    error
        The error, with its traceback.
    variables
        Those of the notebook, of which one may be the model's optimizer.

    """
    for frame in _frames(error):
        for framework in imported():
            call = framework.model_call(frame)
            if call is None:
                continue
            if (len(call.args) == 1) == bool(call.kwargs):  # a batch is one value, or all are named
                return None
            batch = call.args[0] if call.args else call.kwargs
            size = framework.batch_size(batch)
            if not size:
                return None
            optimizers = [] if call.is_eval else _optimizers(framework, call.model, variables)
            optimizer = optimizers if len(optimizers) == 1 else []  # of several it is not known which one
            return FailedStep((call.model, *optimizer, batch), size, call.is_eval)
    return None


def _frames(error: BaseException) -> Iterator[FrameType]:
    """Yield the frames that an error has passed, the outermost first, and then those of what led to it."""
    for cause in causes(error):
        trace = cause.__traceback__
        while trace is not None:
            yield trace.tb_frame
            trace = trace.tb_next


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, those of a group, and those that each was raised from.

    One that was merely being handled when it was raised is none: `raise … from` says which is.
    """
    seen: set[int] = set()
    waiting = deque([error])
    while waiting and len(seen) < _MOST_CAUSES:
        found = waiting.popleft()
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        if found.__cause__ is not None:
            waiting.append(found.__cause__)
        if isinstance(found, BaseExceptionGroup):
            waiting.extend(found.exceptions)


def _optimizers(framework: Framework, model: object, variables: Mapping[str, object]) -> list[object]:
    """Return the optimizers of a model, each once."""
    optimizers = (value for value in variables.values() if framework.role_of(value) == "optimizer")
    found = {id(value): value for value in optimizers if framework.trains(value, model)}
    return list(found.values())
