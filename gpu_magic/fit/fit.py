"""The memory that a step takes, predicted: `gpu_magic.fit`, and its answer."""

from __future__ import annotations

import html
import os
import sys
import time
from dataclasses import dataclass
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.errors import FitError
from gpu_magic.frameworks import imported
from gpu_magic.public import public
from gpu_magic.spelling import either, option
from gpu_magic.text import bytes_text, html_block, listed, printable, size_text, text_table, with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpu_magic.process.view import Snapshot

__all__ = ["Fit", "fit", "fit_call", "fit_model"]

# What CUDA takes of a GPU when a process starts it there, with PyTorch's kernels: about half a GiB.
_CONTEXT = 1 << 29
_MOST = 1 << 24  # the largest batch that is looked for
_SECONDS = 1.4  # after one other batch, no prediction begins that would end later
_DTYPES = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True, slots=True)
class Fit:
    """The peak of GPU memory in one step, and on which visible GPUs it fits. Shows itself as a table.

    Parameters
    ----------
    parts
        The bytes of each part at the peak, by name: parameters (with buffers), gradients, optimizer state,
        batch, activations and temporary tensors. Of JAX: arguments, outputs and temporary arrays.
    batch_size
        The batch's size along dimension 0; None if its tensors have no common one.
    largest_batch
        The largest batch that was predicted to fit on the GPU with the most room; 0 for none, None for
        unknown. The verdict has "at least" if a larger one may also fit.
    fits
        Whether the step fits on each visible GPU: `{"cuda:0": True}`; UNKNOWN if its free memory is unknown.
    verdict
        The same as a line.
    notes
        What was assumed, a sentence each.

    """

    parts: Mapping[str, int]
    batch_size: int | None
    largest_batch: int | None
    fits: Mapping[str, bool | Unknown]
    verdict: str
    notes: tuple[str, ...] = ()

    @property
    def peak(self) -> int:
        """The most bytes that the framework's arrays take together, without CUDA's own."""
        return sum(self.parts.values())

    def __repr__(self) -> str:
        rows = [(name, size_text(size)) for name, size in (*self.parts.items(), ("peak", self.peak))]
        lines = text_table(("", ""), rows, right=(1,))
        return "\n".join([*lines, printable(self.verdict), *self.notes])

    def _repr_html_(self) -> str:
        body = ""
        for name, size in self.parts.items():
            bar = f"<i class='gm-bar'><b style='width:{size / max(self.peak, 1):.0%}'></b></i>"
            body += f"<tr><td>{html.escape(name)}</td><td class='gm-right'>{size_text(size)}{bar}</td></tr>"
        body += f"<tr><td><b>peak</b></td><td class='gm-right'>{size_text(self.peak)}</td></tr>"
        verdict = f"<p><b>{html.escape(printable(self.verdict))}</b></p>"
        return html_block("", f"<table><tbody>{body}</tbody></table>{verdict}", self.notes)


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
    """Predict the peak of GPU memory in one step: by running it on tensors without data.

    >>> gpu_magic.fit(model, optimizer, batch)
    >>> gpu_magic.fit(train_step, batch)

    Parameters
    ----------
    model
        A model of PyTorch, or a function that makes a step.
    values
        With a model, its optimizer and a batch, in any order. A batch is a tensor, a tuple
        `(inputs, targets)`, a dict of keywords, or a DataLoader (its first batch). With a function, its
        arguments.
    loss
        `loss(outputs, targets)`. Without it: the output's `.loss`, or the sum of the output.
    eval
        The forward alone, without gradients.
    amp
        In mixed precision: float16, or `dtype`.
    dtype
        "bfloat16", "float16", "float32", "float64", or PyTorch's own, of the model and the batch; with `amp`
        of mixed precision.
    batch_size
        Predict for a batch of this size along dimension 0.

    Returns
    -------
    Fit
        Bytes of each part at the peak, the GPUs on which the step fits, and the largest batch.

    Raises
    ------
    FitError
        The step cannot be predicted, because data decides what it does, or it raises. The message names the
        line of your code.

    Notes
    -----
    The model, the optimizer, the batch, random numbers and variables stay as they are; CUDA is not started.
    A function is run several times on copies: what it prints, writes or sends, it does.
    The figures are those of the framework's arrays, in the allocator's blocks of 512 bytes: workspaces of
    cuBLAS and cuDNN, and fragmentation, are not in them. The tests compare them with PyTorch's profiler.

    """
    torch = _loaded("torch")
    if not callable(model) or (torch and isinstance(model, torch.nn.Module)):
        return fit_model([model, *values], loss, batch_size, eval=eval, amp=amp, dtype=dtype)
    if loss or eval or amp or dtype:
        raise FitError("loss, eval, amp and dtype are for a model: a function trains as it says.")
    return fit_call(model, values, {}, batch_size)


def _loaded(module: str) -> Any:
    """Return a framework that is imported; None for another module of its name, or a failed import."""
    return sys.modules[module] if any(one.module == module for one in imported()) else None


def fit_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], batch_size: int | None
) -> Fit:
    """Predict the memory of a call; see `fit`."""
    began = time.monotonic()
    if jax := _loaded("jax"):
        code, namespace = (getattr(function, f"__{name}__", None) for name in ("code", "globals"))
        uses = ((namespace or {}).get(name) for name in getattr(code, "co_names", ()))
        is_jax = any(str(getattr(one, "__name__", "")).partition(".")[0] == "jax" for one in uses)
        if is_jax or any(isinstance(one, jax.Array) for one in jax.tree.leaves((args, kwargs))):
            from gpu_magic.fit.jax_step import JaxStep

            return _fit(JaxStep(function, args, kwargs), batch_size, began)
    if _loaded("torch") is None:
        raise FitError("%gpu_fit predicts steps of PyTorch and of JAX, and neither is imported.")
    from gpu_magic.fit.torch_step import TorchStep

    return _fit(TorchStep(function, args, kwargs), batch_size, began)


def fit_model(  # noqa: C901 - one check after another
    values: list[Any],
    loss: Any,
    batch_size: int | None,
    *,
    eval: bool,  # noqa: A002
    amp: bool,
    dtype: Any,
) -> Fit:
    """Predict the memory of a step with a model: the types of values say what they are; see `fit`."""
    began, torch = time.monotonic(), _loaded("torch")
    values = [one for one in values if one is not None]
    if loss is None and len(values) > 3 and callable(values[-1]):  # noqa: PLR2004 - the loss as the fourth value
        *values, loss = values
    kinds = (torch.nn.Module, torch.optim.Optimizer) if torch else ((), ())
    models, optimizers = ([one for one in values if isinstance(one, kind)] for kind in kinds)
    batch = [one for one in values if not any(isinstance(one, kind) for kind in kinds)]
    way = either("%gpu_fit model optimizer batch", "fit(model, optimizer, batch)")
    name = next((one.__name__ for one in batch if isinstance(one, FunctionType)), "")
    if not models and name:
        way = either(f"%gpu_fit {name}(batch)", f"fit({name}, batch)")
        raise FitError(f"{name} is a function: give its call, {way}.")
    if not models or any(base.__module__.startswith("keras.") for base in type(models[0]).__mro__):
        what = listed(with_article(type(one).__name__) for one in values)
        raise FitError(f"There is no model of PyTorch{f' in {what}' if what else ''}; try {way}.")
    if len(models) > 1 or len(optimizers) > 1:
        raise FitError(f"A step has one model and one optimizer; {option('loss')} names a loss.")
    for one in batch:
        if isinstance(one, str | int | float | type) or (callable(one) and not hasattr(one, "shape")):
            kind = with_article(type(one).__name__)
            raise FitError(f"{kind} is neither a model, an optimizer nor a batch; try {way}.")
    if not batch:
        raise FitError(f"There is no batch; try {way}.")
    name, known = str(dtype).removeprefix("torch."), _DTYPES[: 2 if amp else 4]
    if dtype is not None and name not in known:
        raise FitError(f"{option('dtype')} is one of {', '.join(known)}, and not {name:.40}.")
    if loss is not None and (isinstance(loss, type) or not callable(loss)):
        kind = f"the class {loss.__name__}" if isinstance(loss, type) else with_article(type(loss).__name__)
        raise FitError(f"{option('loss')} is a function or a module, and not {kind}.")
    if eval and optimizers:
        raise FitError(f"{option('eval', True)} is the forward alone: leave the optimizer out.")
    model = getattr(models[0], "_orig_mod", models[0])  # of torch.compile
    if type(model).__name__ in ("DataParallel", "DistributedDataParallel"):
        kind = type(model).__name__
        raise FitError(f"{kind} spreads a step over GPUs: predict model.module, with the batch of one GPU.")
    own = {id(one) for one in model.parameters()}
    trained = (one for optimizer in optimizers for group in optimizer.param_groups for one in group["params"])
    if optimizers and own.isdisjoint(map(id, trained)):
        raise FitError("The optimizer has no parameter of this model: was the model made again after it?")
    from gpu_magic.fit.torch_step import TorchStep, first_batch, train

    given = first_batch(batch[0]) if len(batch) == 1 else tuple(batch)
    found = None if dtype is None else getattr(torch, name)
    options = SimpleNamespace(eval=eval, amp=amp, dtype=found)
    args = (model, *(optimizers or [None]), given, loss, options)
    return _fit(TorchStep(train, args, {}, None if amp else found), batch_size, began)


def _fit(followed: Any, size: int | None, began: float) -> Fit:
    """Predict a step and the largest batch, and say where they fit."""
    from gpu_magic.process.session import current
    from gpu_magic.process.view import take_snapshot

    if size is not None and followed.size is None:
        raise FitError(f"{option('batch_size')} needs a batch whose tensors have a common dimension 0.")
    parts = followed.peak(size)
    size = size or followed.size
    snapshot = take_snapshot(current())
    rooms = _rooms(snapshot, followed.present)
    known = [room.left for room in rooms if room.free is not UNKNOWN]
    largest, is_exact = None, False
    if size and known:
        largest, is_exact = _largest(followed, size, parts, max(known), began + _SECONDS)
    verdict = _verdict(sum(parts.values()), snapshot, rooms, largest, is_exact)
    fits = {room.name: room.fits(sum(parts.values())) for room in rooms}
    return Fit(parts, size, largest, fits, verdict, followed.notes)


class _Room(NamedTuple):
    """The room on one visible GPU: what is free, and what CUDA takes of that if it has not started there."""

    name: str
    label: str
    free: int | Unknown
    context: int

    @property
    def left(self) -> int:
        """The bytes that a step can have; 0 for unknown."""
        return 0 if self.free is UNKNOWN else self.free - self.context

    def fits(self, peak: int) -> bool | Unknown:
        return UNKNOWN if self.free is UNKNOWN else peak <= self.left


def _rooms(snapshot: Snapshot, present: Mapping[int, int]) -> list[_Room]:
    """Return the room on each visible GPU, with what PyTorch caches and what the step has there already."""
    torch = _loaded("torch")
    names = snapshot.kernel.names
    devices = {str(device.uuid): device for device in snapshot.devices}
    rooms = []
    for index, device in enumerate(map(devices.get, () if names is UNKNOWN else names)):
        if device is None:
            continue
        free, processes = device.status.memory_free, device.status.processes
        if free is not UNKNOWN:
            free += present.get(index, 0)
            if torch and torch.cuda.is_initialized() and not snapshot.simulated:
                free += torch.cuda.memory_reserved(index) - torch.cuda.memory_allocated(index)
        is_started = processes is not UNKNOWN and any(
            one.mine and one.pid == os.getpid() for one in processes
        )
        label = f"{'SIMULATED ' if snapshot.simulated else ''}{device.label}"
        rooms.append(_Room(f"cuda:{index}", label, free, 0 if is_started else _CONTEXT))
    return rooms


def _largest(
    followed: Any, size: int, parts: Mapping[str, int], room: int, until: float
) -> tuple[int | None, bool]:
    """Return the largest batch that was predicted to fit, and whether one more was predicted not to.

    Memory is about linear in the batch, by pieces: a line through two sizes says which one to predict next.
    """
    known = {size: sum(parts.values())}
    grows = sum(parts.get(name, 0) for name in ("batch", "activations", "temporary"))
    following = size * max(0, room - known[size] + grows) // grows if grows else 2 * size
    longest = (time.monotonic() - until + _SECONDS) / 2  # what was done once took the rest
    for turn in range(1, 25):
        low = max((one for one, peak in known.items() if peak <= room), default=0)
        high = min((one for one, peak in known.items() if peak > room), default=_MOST + 1)
        if high - low <= 1 or (turn > 1 and time.monotonic() + longest > until):
            break
        following, began = max(low + 1, min(following, high - 1)), time.monotonic()
        try:
            known[following] = sum(followed.peak(following).values())
        except FitError:  # a size that the step does not take, or more elements than a tensor can have
            known[following] = sys.maxsize
        longest = max(longest, time.monotonic() - began)
        nearest = sorted(known, key=lambda one: abs(known[one] - room))[:2]
        rise = (known[nearest[1]] - known[nearest[0]]) / (nearest[1] - nearest[0])
        following = nearest[0] + int((room - known[nearest[0]]) / rise) if rise else 16 * following
        if turn % 3 == 0 or known.get(high) == sys.maxsize:  # memory has steps: the interval is halved
            following = int((max(low, 1) * high) ** 0.5)
    is_exact = high - low <= 1 and known.get(high, sys.maxsize) < sys.maxsize
    return (low, is_exact) if low or is_exact else (None, False)


def _verdict(peak: int, snapshot: Snapshot, rooms: list[_Room], largest: int | None, is_exact: bool) -> str:
    """Return on which GPUs a step fits, and the largest batch, as a line."""
    known = sorted((one for one in rooms if one.free is not UNKNOWN), key=lambda one: -one.left)
    if not known:
        why = snapshot.problem or "no GPU is visible"
        if rooms:
            why = f"the free memory of {listed(room.label for room in rooms)} is unknown"
        elif snapshot.kernel.names is UNKNOWN:
            why = "it is unknown which GPUs are visible; choose one with %gpus 0"
        return f"{size_text(peak)}. No verdict: {why.rstrip('.')}."
    needs = f"{size_text(peak)}{f', and {bytes_text(_CONTEXT)} for CUDA' if known[0].context else ''}"
    fitting = [f"{one.label} ({bytes_text(one.left + one.context)} free)" for one in known if one.fits(peak)]
    batch = f" Largest batch: {'' if is_exact else 'at least '}{largest}."
    batch = {None: "", 0: " A batch of 1 does not fit."}.get(largest, batch)
    if fitting:
        more = [f"{len(fitting) - 4} more"] if len(fitting) > 4 else []  # noqa: PLR2004
        return f"{needs}: fits on {listed(fitting[:4] + more)}.{batch}"
    most = f"Most free: {known[0].label}, {bytes_text(known[0].left + known[0].context)}."
    return f"{needs}: fits on no visible GPU. {most}{batch}"
