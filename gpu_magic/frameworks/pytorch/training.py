"""How most programs train: what a model is called with, and what the loss is. It imports PyTorch."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from gpu_magic.errors import FitError
from gpu_magic.frameworks.pytorch.batch import tensors_in
from gpu_magic.spelling import either, option
from gpu_magic.text import with_article

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.frameworks.prediction import TrainingStep

__all__ = ["check", "dtype_of", "forward", "loss_of", "naming_arrays"]

_DTYPES = ("float16", "bfloat16", "float32", "float64")
_SHORT = {"fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}


def check(step: TrainingStep) -> None:
    """Check that a step's parts are what they should be.

    Raises
    ------
    FitError
        One is not.

    """
    dtype = dtype_of(step)
    if step.amp and dtype not in (None, torch.float16, torch.bfloat16):
        raise FitError(
            f"{option('amp', True)} computes in float16 or bfloat16, and not in {_name_of(dtype)}."
        )
    if step.is_eval and step.optimizer is not None:
        raise FitError(f"{option('eval', True)} is the forward alone: leave the optimizer out.")
    if isinstance(step.loss, type):
        name = step.loss.__name__
        raise FitError(
            f"{option('loss')} is the class {name}, and not a function or a module: {name}() makes one."
        )
    if step.loss is not None and not callable(step.loss):
        kind = with_article(type(step.loss).__name__)
        raise FitError(f"{option('loss')} is a function or a module, and not {kind}.")
    if step.optimizer is not None and _needs_closure(step.optimizer):
        name = type(step.optimizer).__name__
        alone = either("%gpu_fit model batch", "fit(model, batch)")
        raise FitError(
            f"{name} evaluates the loss again in its step, as often as numbers decide, which can't be "
            f"followed: leave it out, {alone}, and add the copies of the parameters that {name} "
            "keeps."
        )
    optimized = (
        [] if step.optimizer is None else [p for g in step.optimizer.param_groups for p in g["params"]]
    )
    own = {id(parameter) for parameter in step.model.parameters()}
    if optimized and not any(id(parameter) in own for parameter in optimized):
        raise FitError("The optimizer has no parameter of this model: was the model made again after it?")


def dtype_of(step: TrainingStep) -> torch.dtype | None:
    """Return the dtype that a step names; None where it names none.

    Raises
    ------
    FitError
        It names something else.

    """
    if step.dtype is None:
        return None
    name = _name_of(step.dtype)
    if name not in _DTYPES:
        meant = f": did you mean {_SHORT[name]}?" if name in _SHORT else "."
        raise FitError(f"{option('dtype')} {name:.40} is not one of {', '.join(_DTYPES)}{meant}")
    found: torch.dtype = getattr(torch, name)
    return found


def _name_of(dtype: object) -> str:
    """Return the name of a dtype of PyTorch's, or what was given as one."""
    return str(dtype).removeprefix("torch.")


def _needs_closure(optimizer: Any) -> bool:
    """Return whether an optimizer's step needs a function that evaluates the loss, as LBFGS's does."""
    try:
        closure = inspect.signature(optimizer.step).parameters.get("closure")
    except (TypeError, ValueError):  # it has no signature
        return False
    return closure is not None and closure.default is inspect.Parameter.empty


def _needs_targets(loss: Any) -> bool:
    """Return whether a loss can be called with outputs and targets, and not with outputs alone."""
    try:
        signature = inspect.signature(loss.forward if isinstance(loss, torch.nn.Module) else loss)
        signature.bind(None, None)
    except (TypeError, ValueError):  # it has no signature, or takes something else
        return False
    try:
        signature.bind(None)
    except TypeError:
        return True
    return False


def forward(model: Any, batch: Any, *, has_loss: bool) -> tuple[Any, Any]:
    """Call a model with a batch; return its output, and the targets, None where the batch has none."""
    if isinstance(batch, tuple | list) and len(batch) > 1 and (has_loss or not _takes(model, batch)):
        *inputs, targets = batch
        return _called(model, inputs[0] if len(inputs) == 1 else inputs), targets
    return _called(model, batch), None


@contextlib.contextmanager
def naming_arrays(batch: Any) -> Iterator[None]:
    """Where a model or a loss can't be called with NumPy's arrays, say that the batch has some.

    Raises
    ------
    FitError
        It can't.

    """
    try:
        yield
    except (AttributeError, TypeError):
        if not _has_arrays(batch):
            raise
        raise FitError(
            "The batch has NumPy's arrays, and PyTorch computes with tensors: torch.from_numpy(x) makes one."
        ) from None


def _has_arrays(batch: Any) -> bool:
    numpy: Any = sys.modules.get("numpy")
    if isinstance(batch, Mapping | tuple | list):
        return any(map(_has_arrays, batch.values() if isinstance(batch, Mapping) else batch))
    return numpy is not None and isinstance(batch, numpy.ndarray)


def loss_of(output: Any, targets: Any, loss: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the loss, and what was assumed for it, as sentences.

    Raises
    ------
    FitError
        No number of the output depends on a parameter, or the loss needs targets that there are not.

    """
    if loss is not None:
        if targets is None and _needs_targets(loss):
            given = "make it batch = (inputs, targets)"
            raise FitError(f"The loss needs targets, and the batch has none: {given}.")
        value = loss(output) if targets is None else loss(output, targets)
        return value if value.dim() == 0 else value.sum(), ()
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, torch.Tensor):
        return own, ()
    if isinstance(output, torch.Tensor) and output.dim() == 0:
        return output, ()
    trained = [tensor for tensor in tensors_in(_plain(output)) if tensor.requires_grad]
    if not trained:
        raise FitError(
            "Nothing that the model returns depends on a parameter that is trained; "
            f"try {option('eval', True)}."
        )
    value = trained[0].sum()
    for tensor in trained[1:]:
        value = value + tensor.sum()
    return value, (f"The loss is the sum of the output: {either('--loss', 'loss=…')} names another one.",)


def _plain(output: Any) -> Any:
    """Return an output that is an object of its own as a dict of its attributes."""
    is_known = isinstance(output, torch.Tensor | Mapping | tuple | list)
    return output if is_known else getattr(output, "__dict__", output)


def _called(model: Any, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if isinstance(inputs, tuple | list):
        return model(*inputs)
    return model(inputs)


def _takes(model: Any, batch: Any) -> bool:
    """Return whether a model can be called with all that a batch has."""
    try:
        inspect.signature(model.forward).bind(*batch)
    except TypeError:
        return False
    except ValueError:  # it has no signature
        return True
    return True
