"""What a framework predicts of a step: how much memory it takes at its most, without running it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpu_magic.selection.target import LogicalDevice

__all__ = [
    "FunctionCall",
    "ModelCall",
    "NotFollowed",
    "Predictor",
    "Step",
    "StepMemory",
    "TrainingStep",
    "name_of",
]


@dataclass(frozen=True, eq=False)
class TrainingStep:
    """One step of training a model, or of using it.

    Parameters
    ----------
    model
        The model.
    optimizer
        Its optimizer; None: no step is made with one.
    batch
        What the model is called with.
    loss
        `loss(outputs, targets)`; None: the output's own.
    is_eval
        The forward alone, without gradients.
    amp
        In mixed precision.
    dtype
        The name of a dtype, `"bfloat16"`, or the framework's own: the model's and the batch's, or with `amp`
        that of mixed precision.

    """

    model: Any
    optimizer: Any = None
    batch: Any = None
    loss: Any = None
    is_eval: bool = False
    amp: bool = False
    dtype: Any = None


@dataclass(frozen=True, eq=False)
class FunctionCall:
    """A call of a function.

    Parameters
    ----------
    function
        The function, or a method.
    args, kwargs
        What it is called with.
    text
        The call as it was typed; empty where it was not.

    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""


Step = TrainingStep | FunctionCall


class ModelCall(NamedTuple):
    """A call of a model, and whether it was not in training."""

    model: Any
    is_eval: bool


class NotFollowed(Exception):  # noqa: N818 - it becomes a FitError, which says in which line of the user's
    """A step can't be followed without being run; the message is a clause that says why."""


class StepMemory(NamedTuple):
    """The memory of a GPU at the moment of a step at which most of it is in use, in bytes.

    Parameters
    ----------
    parts
        What it is used for: `{"parameters": …, "gradients": …}`. Together they are the peak.
    present
        The bytes on each device of the real objects that the step uses: what is there is not needed twice.
    notes
        What was assumed, a sentence each.

    """

    parts: Mapping[str, int]
    present: Mapping[LogicalDevice, int] = {}
    notes: tuple[str, ...] = ()

    @property
    def peak(self) -> int:
        """All of it."""
        return sum(self.parts.values())


def name_of(call: FunctionCall) -> str:
    """Return a call as it was typed, else the function's name, to begin a sentence with."""
    name = getattr(call.function, "__name__", type(call.function).__name__)
    return shortened(call.text, 60) or (f"{name}()" if name.isidentifier() else "The function")


class Predictor(ABC):
    """Predicts the memory of one step, for its batch and for others."""

    @property
    @abstractmethod
    def batch_size(self) -> int | None:
        """The batch's size along dimension 0; None where its tensors have no common one."""

    @abstractmethod
    def predict(self, batch_size: int | None = None) -> StepMemory:
        """Predict the memory of the step.

        Parameters
        ----------
        batch_size
            Of a batch of this size; None: as it is.

        Raises
        ------
        FitError
            The step can't be followed, or raises.

        """

    def peak(self, batch_size: int) -> int:
        """Return the most bytes in use for a batch of another size, once `predict` was called."""
        return self.predict(batch_size).peak
