"""The memory that a step takes, predicted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import FitError
from gpu_magic.public import public
from gpu_magic.spelling import option

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_magic.display.fit import Fit

__all__ = ["fit", "fit_values"]


@public
def fit(
    model: Any,
    *values: Any,
    loss: Callable[..., Any] | None = None,
    eval: bool = False,  # noqa: A002 - as --eval
    amp: bool = False,
    dtype: Any = None,
    batch_size: int | None = None,
) -> Fit:
    """Predict the peak of GPU memory in one step, without running it: on copies that have no data.

    >>> gpu_magic.fit(model, optimizer, batch)
    >>> gpu_magic.fit(train_step, batch)

    Parameters
    ----------
    model
        A model; or a function of yours that makes a step, which is followed by what it does.
    values
        With a model, its optimizer and a batch: their types say which is which. A batch is a tensor, a tuple
        `(inputs, targets)`, a dict, which is given as keywords, or a DataLoader, of which it is the first.
        With a function, what it is called with.
    loss
        `loss(outputs, targets)`. Without it: the output's `.loss`; else the output, where it is one number;
        else its sum, and the notes say so.
    eval
        The forward alone, without gradients.
    amp
        In mixed precision: float16, or `dtype`.
    dtype
        "bfloat16", "float16", "float32" or "float64", or PyTorch's own (`torch.bfloat16`): of the model and
        the batch. With `amp` it is one of the first two.
    batch_size
        As if the batch had this size along dimension 0.

    Returns
    -------
    Fit
        Bytes of the parameters, gradients, optimizer state, activations and temporary arrays at the peak;
        `fits` by GPU, and `largest_batch`. It shows itself as a table.

    Raises
    ------
    FitError
        The step can't be followed without being run, as data decides about its course, or it raises. The line
        of your code is named; where none of yours is in the model, that of its module. Nothing was changed.

    Notes
    -----
    It is what the framework's arrays take, in the blocks of 512 bytes that PyTorch's allocator rounds to. It
    does not see the workspaces of cuBLAS and cuDNN, and memory that an allocator can't use because it
    lies in pieces. An optimizer is taken to work on all parameters at once, as it does on a GPU (`foreach`),
    where it may choose; dropout keeps one byte an element; attention is fused. The tests compare it with
    PyTorch's profiler on the CPU, with `foreach=True` and without dropout.

    """
    given = [value for value in _given(model, values) if value is not None]
    if loss is None and len(given) > 3 and callable(given[3]) and not _is_data(given[3]):  # noqa: PLR2004
        *given, loss = given  # fit(model, optimizer, batch, loss)
    return fit_values(given, loss=loss, eval=eval, amp=amp, dtype=dtype, batch_size=batch_size)


def fit_values(
    values: list[Any],
    *,
    loss: Any = None,
    eval: bool = False,  # noqa: A002
    amp: bool = False,
    dtype: Any = None,
    batch_size: int | str | None = None,
) -> Fit:
    """Predict the memory of what `fitting.expressions.values` returns; see `fit`."""
    from gpu_magic.display.fit import Fit
    from gpu_magic.fitting.fit import predict
    from gpu_magic.fitting.steps import FitOptions
    from gpu_magic.process.session import current
    from gpu_magic.process.view import take_snapshot

    options = FitOptions(loss, eval, amp, dtype, _size(batch_size))
    return Fit(predict(values, options, lambda: take_snapshot(current())))


def _given(first: Any, others: tuple[Any, ...]) -> list[Any]:
    """Return what makes a step: values, or a call alone."""
    from gpu_magic.frameworks import imported
    from gpu_magic.frameworks.prediction import FunctionCall

    is_known = isinstance(first, FunctionCall) or any(one.role_of(first) for one in imported())
    return [FunctionCall(first, others)] if callable(first) and not is_known else [first, *others]


def _is_data(value: Any) -> bool:
    from gpu_magic.frameworks import imported

    return any(one.is_array(type(value)) or one.role_of(value) == "batch" for one in imported())


def _size(given: int | str | None) -> int | None:
    if given is None:
        return None
    text = str(given)
    if isinstance(given, bool) or not re.fullmatch(r"[0-9]{1,10}", text) or not 0 < int(text) < 1 << 31:
        raise FitError(f"{option('batch_size')} is a number of items, and not {text:.40}.")
    return int(text)
