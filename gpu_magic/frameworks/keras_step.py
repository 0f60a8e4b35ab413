"""A step of Keras's as its backend makes it, with the optimizer and the loss of its `compile`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from gpu_magic.errors import FitError
from gpu_magic.frameworks import get
from gpu_magic.frameworks.prediction import FunctionCall, Step, TrainingStep
from gpu_magic.spelling import either, option

if TYPE_CHECKING:
    from gpu_magic.frameworks.base import Framework
    from gpu_magic.frameworks.prediction import Predictor

__all__ = ["predictor"]


def predictor(step: Step, backend: str) -> Predictor | None:
    """Return what predicts the memory of a step.

    Parameters
    ----------
    step
        With a model of Keras's, which was compiled.
    backend
        The one that Keras computes with.

    Raises
    ------
    FitError
        The backend has no way to tell, or the model was not compiled.

    """
    if not isinstance(step, TrainingStep):
        raise FitError(f"Give the model and a batch: {either('%gpu_fit model batch', 'fit(model, batch)')}.")
    if backend not in ("jax", "torch"):
        raise FitError(
            f"Keras on {backend} runs a step to know its memory: it can be predicted with the backends jax "
            "and torch alone."
        )
    model = step.model
    if step.loss is not None or step.amp or step.dtype is not None or step.optimizer is not None:
        raise FitError("A Keras model has its own optimizer, loss and precision: model.compile() sets them.")
    if not model.built:
        raise FitError("The model is not built yet: call it once, or give its layers an Input.")
    if not step.is_eval and getattr(model, "optimizer", None) is None:
        raise FitError(
            f"The model has no optimizer yet: call model.compile(...), or use {option('eval', True)}."
        )
    inner = cast("Framework", get(backend))
    return inner.predictor(_on_torch(step) if backend == "torch" else _on_jax(step))


def _on_torch(step: TrainingStep) -> FunctionCall:
    batch = _as_tensors(step.batch)
    if step.is_eval:
        return FunctionCall(_Predict(step.model), (batch[0] if isinstance(batch, tuple | list) else batch,))
    return FunctionCall(step.model.train_step, (batch,))


def _as_tensors(batch: Any) -> Any:
    """Return a batch with PyTorch's tensors over NumPy's arrays."""
    if isinstance(batch, tuple | list):
        return type(batch)(map(_as_tensors, batch))
    return batch if isinstance(batch, dict) else sys.modules["torch"].as_tensor(batch)


class _Predict:
    """Calls a model on PyTorch without gradients."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __call__(self, inputs: Any) -> Any:
        with sys.modules["torch"].no_grad():
            return self._model(inputs, training=False)


def _on_jax(step: TrainingStep) -> FunctionCall:
    """Return a step of pure functions over the values of the model's and the optimizer's variables."""
    jax: Any = sys.modules["jax"]
    model, optimizer = step.model, step.model.optimizer
    weights, rest = [
        [v.value for v in group] for group in (model.trainable_variables, model.non_trainable_variables)
    ]
    is_pair = isinstance(step.batch, tuple | list)
    inputs = step.batch[0] if is_pair else step.batch

    def forward(weights: Any, rest: Any, inputs: Any) -> Any:
        return model.stateless_call(weights, rest, inputs, training=False)[0]

    if step.is_eval:
        return FunctionCall(jax.jit(forward), (weights, rest, inputs))
    if not is_pair:
        raise FitError("A Keras model is trained with a batch of (inputs, targets).")
    if not optimizer.built:
        raise FitError("The optimizer is not built yet: optimizer.build(model.trainable_variables).")

    def loss(weights: Any, rest: Any, inputs: Any, targets: Any) -> Any:
        outputs, rest = model.stateless_call(weights, rest, inputs, training=True)
        return model.compute_loss(x=inputs, y=targets, y_pred=outputs), rest

    def train(weights: Any, rest: Any, state: Any, inputs: Any, targets: Any) -> Any:
        (value, rest), gradients = jax.value_and_grad(loss, has_aux=True)(weights, rest, inputs, targets)
        weights, state = optimizer.stateless_apply(state, gradients, weights)
        return value, weights, rest, state

    state = [variable.value for variable in optimizer.variables]
    # As Keras does, the new variables take the place of the old ones.
    return FunctionCall(jax.jit(train, donate_argnums=(0, 1, 2)), (weights, rest, state, *step.batch))
