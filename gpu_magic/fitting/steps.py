"""Finds out what is asked about: which value is the model, the optimizer, the batch; which call it is."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import FitError
from gpu_magic.frameworks import imported
from gpu_magic.frameworks.prediction import FunctionCall, Step, TrainingStep
from gpu_magic.placement.uses import Evidence
from gpu_magic.spelling import either, option
from gpu_magic.text import listed, with_article

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpu_magic.frameworks.base import Framework

__all__ = ["FitOptions", "has_batch", "step_of"]

# How deep containers are looked into for what tells a framework.
_DEPTH = 4


@dataclass(frozen=True)
class FitOptions:
    """How a step is made.

    Parameters
    ----------
    loss, is_eval, amp, dtype
        As in `TrainingStep`.
    batch_size
        The batch's size along dimension 0; None: as it is.

    """

    loss: Any = None
    is_eval: bool = False
    amp: bool = False
    dtype: Any = None
    batch_size: int | None = None

    @property
    def of_training(self) -> list[str]:
        """The options that were given and that say how a model is trained."""
        given = {
            option("loss"): self.loss is not None,
            option("eval", True): self.is_eval,
            option("amp", True): self.amp,
            option("dtype"): self.dtype is not None,
        }
        return [name for name, is_given in given.items() if is_given]


def step_of(values: Sequence[Any], options: FitOptions) -> tuple[Framework, Step]:
    """Return a step that is made of some values, and the framework that it is of.

    Parameters
    ----------
    values
        A model, an optimizer and a batch, in any order; or a `FunctionCall` alone.
    options
        How it is made.

    Raises
    ------
    FitError
        They make no step.

    """
    call = values[0] if values else None
    if isinstance(call, FunctionCall):
        if given := options.of_training:
            verb = "is" if len(given) == 1 else "are"
            raise FitError(f"{listed(given)} {verb} for a model: the function itself says how it trains.")
        return _framework_of_call(call), call
    framework = _framework_of_model(values)
    if framework is None:
        what = listed(with_article(type(value).__name__) for value in values)
        step_typed, call_typed = "%gpu_fit model optimizer batch", "%gpu_fit train_step(batch)"
        made = either(step_typed, "fit(model, optimizer, batch)")
        called = either(call_typed, "fit(train_step, batch)")
        give = f"a model, an optimizer and a batch: {made}; or a call: {called}"
        raise FitError(f"There is no model{f' in {what}' * bool(values)}; give {give}.")
    step = TrainingStep(
        None,
        loss=options.loss,
        is_eval=options.is_eval,
        amp=options.amp,
        dtype=options.dtype,
    )
    batch = []
    for value in values:
        is_data = any(_holds_data(value, one, _DEPTH) for one in imported()) or _is_numpy(value)
        role = framework.role_of(value) or ("batch" if is_data else "")
        if role == "batch":
            batch.append(value)
        elif not role:
            kind = with_article(type(value).__name__)
            raise FitError(
                f"{kind} is neither a model, an optimizer nor a batch of {framework.name}'s tensors."
            )
        elif getattr(step, role) is not None:
            loss = f"; {either('--loss', 'loss=…')} names a loss" if role == "model" else ""
            raise FitError(f"There are two {role}s, and a step has one{loss}.")
        else:
            step = replace(step, **{role: value})
    return framework, replace(step, batch=batch[0] if len(batch) == 1 else tuple(batch) or None)


def has_batch(values: Sequence[Any], options: FitOptions) -> bool:
    """Return whether some values have a batch, or are a call: without one there is no step to predict."""
    _, step = step_of(values, options)
    return isinstance(step, FunctionCall) or step.batch is not None


def _framework_of_model(values: Sequence[Any]) -> Framework | None:
    """Return the framework of the model among some values: Keras before its backend, whose it is, too."""
    known = sorted(imported(), key=lambda framework: not framework.backend())
    return next((one for one in known for value in values if one.role_of(value) == "model"), None)


def _is_numpy(value: Any) -> bool:
    numpy: Any = sys.modules.get("numpy")
    inner = value if isinstance(value, tuple | list) else [value]
    return numpy is not None and bool(inner) and all(isinstance(one, numpy.ndarray) for one in inner)


def _framework_of_call(call: FunctionCall) -> Framework:
    """Return the framework that a function computes with: by what it is called with, else by what it uses."""
    known = imported()
    for value in (call.function, *call.args, *call.kwargs.values()):
        for framework in known:
            if framework.role_of(value) or _holds_data(value, framework, _DEPTH):
                return framework
    function = getattr(call.function, "__func__", call.function)
    function = getattr(function, "__wrapped__", function)
    code = getattr(function, "__code__", None)
    used = (
        [] if code is None else [one for one in known if one.module in Evidence(code, function.__globals__)]
    )
    if used or len(known) == 1:
        return (used or known)[0]
    raise FitError("Neither the function nor what it is called with shows which framework it uses.")


def _holds_data(value: Any, framework: Framework, depth: int) -> bool:
    """Return whether a value is an array of a framework, or a container of some."""
    if framework.is_array(type(value)) or framework.role_of(value) == "batch":
        return True
    return depth > 0 and any(_holds_data(one, framework, depth - 1) for one in _items(value))


def _items(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, tuple | list):
        yield from value[:100]
