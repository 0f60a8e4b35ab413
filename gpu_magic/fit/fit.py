"""`gpu_magic.fit`, which predicts the memory of a step, and its result."""

from __future__ import annotations

import os
import sys
import time
import warnings
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.devices.model import UNKNOWN, Unknown
from gpu_magic.errors import FitError
from gpu_magic.frameworks import imported
from gpu_magic.frameworks.base import MemoryPool
from gpu_magic.frameworks.target import LogicalDevice
from gpu_magic.interrupts import defer_interrupts
from gpu_magic.process.drivers import driver
from gpu_magic.public import public
from gpu_magic.text import (
    bytes_text,
    escaped,
    html_bar,
    html_block,
    listed,
    one_line,
    printable,
    simulated_mark,
    size_text,
    text_table,
    with_article,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpu_magic.process.view import Snapshot

__all__ = ["Fit", "fit", "fit_call", "fit_model"]

# The memory of a CUDA context with PyTorch's kernels, and of the workspaces of CUDA's libraries. Measured on
# an H200 (driver 580.159, PyTorch 2.11): 0.74 GiB after models had been trained, and workspaces of 0.11 to
# 0.14 GiB (32 MiB of cuBLAS for each of two threads, and temporary memory of a convolution or a sum).
_WORKSPACES = 200 << 20
_CONTEXT = (824 << 20) + _WORKSPACES
_MOST = 1 << 24  # the largest batch to try
_SECONDS = 1.4  # after one other batch, no prediction starts that would end later
_NO_FRAMEWORK = "%gpu_fit needs PyTorch or JAX. Import one first."
_DTYPES = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True, slots=True)
class Fit:
    """The peak GPU memory of one step, and on which visible GPUs it fits. `Fit` shows itself as a table.

    Parameters
    ----------
    parts
        The bytes of each part at the peak, by name: parameters (with buffers), gradients, optimizer state,
        batch, activations and temporary tensors. With JAX: arguments, outputs and temporary arrays.
    batch_size
        The size of the batch along dimension 0. None if its tensors have no common size.
    largest_batch
        The largest batch that is predicted to fit on the GPU with the most free memory. 0: none fits. None:
        unknown. If a larger batch may also fit, the verdict has "at least".
    fits
        Whether the step fits on each visible GPU: `{"cuda:0": True}`. UNKNOWN if its free memory is unknown.
    verdict
        The result as a line.
    notes
        The assumptions, a sentence each.

    """

    parts: Mapping[str, int]
    batch_size: int | None
    largest_batch: int | None
    fits: Mapping[str, bool | Unknown]
    verdict: str
    notes: tuple[str, ...] = ()

    @property
    def peak(self) -> int:
        """The most bytes of all arrays of the framework together, without CUDA's own memory."""
        return sum(self.parts.values())

    def __repr__(self) -> str:
        rows = [(name, size_text(size)) for name, size in (*self.parts.items(), ("peak", self.peak))]
        lines = text_table(("", ""), rows, right=(1,))
        return "\n".join([*lines, printable(self.verdict), *self.notes])

    def _repr_html_(self) -> str:
        body = ""
        for name, size in self.parts.items():
            bar = html_bar(size / max(self.peak, 1))
            body += f"<tr><td>{escaped(name)}</td><td class='gm-right'{bar}>{size_text(size)}</td></tr>"
        body += f"<tr><td><b>peak</b></td><td class='gm-right'>{size_text(self.peak)}</td></tr>"
        verdict = f"<p><b>{escaped(printable(self.verdict))}</b></p>"
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
    """Predict the peak GPU memory of a step. The step runs on tensors without data.

    >>> gpu_magic.fit(model, optimizer, batch)
    >>> gpu_magic.fit(train_step, batch)

    Parameters
    ----------
    model
        A PyTorch model, or a function that makes a step with PyTorch or JAX.
    values
        With a model: its optimizer and a batch, in any order. A batch is a tensor, a tuple
        `(inputs, targets)`, a dict of keywords, or a DataLoader (its first batch). With a function: its
        arguments.
    loss
        `loss(outputs, targets)`. None: the output's `.loss`, or the sum of the output.
    eval
        Only the forward pass, without gradients and the optimizer.
    amp
        Mixed precision, with float16 or `dtype`.
    dtype
        The data type of the model and the batch: "bfloat16", "float16", "float32", "float64", or PyTorch's
        own. With `amp`: the data type of mixed precision.
    batch_size
        Predict for a batch of this size along dimension 0.

    Raises
    ------
    FitError
        Neither PyTorch nor JAX is imported. Or the step cannot be predicted, because data decides what it
        does, or because it raises an error. The message then names the line of your code.

    Notes
    -----
    Your variables do not change. CUDA does not start. A function runs several times on copies whose
    tensors have no data. Its prints, file writes and network calls also happen. The bytes are those that
    PyTorch's allocator gives out, without fragmentation. The parts leave out workspaces of cuBLAS and cuDNN.
    The verdict adds memory for these workspaces and for CUDA.

    """
    torch, options = _loaded("torch"), {"loss": loss, "eval": eval, "amp": amp, "dtype": dtype}
    if not callable(model) or (torch and isinstance(model, torch.nn.Module)):
        return fit_model([model, *values], batch_size, **options)
    return fit_call(model, values, {}, batch_size, **options)


def _loaded(module: str) -> Any:
    """Return a framework if it is imported. None for another module of its name, or a failed import."""
    return sys.modules[module] if any(one.module == module for one in imported()) else None


def fit_call(function: Any, args: Any, kwargs: Any, size: int | None, **of_model: Any) -> Fit:
    """Predict the memory of a call; see `fit`."""
    jax, torch = _loaded("jax"), _loaded("torch")
    if any(of_model.values()):
        raise FitError(f"{listed(f'--{name}' for name in of_model)} are for a model, not for a function.")
    if jax and (
        torch is None
        or hasattr(function, "lower")
        or any(isinstance(one, jax.Array) for one in jax.tree.leaves((args, kwargs)))
    ):
        from gpu_magic.fit.jax_step import JaxStep

        return _fit(lambda: JaxStep(function, args, kwargs), size)
    if torch is None:
        raise FitError(_NO_FRAMEWORK)
    from gpu_magic.fit.torch_step import TorchStep

    return _fit(lambda: TorchStep(function, args, kwargs), size, torch)


def fit_model(values: list[Any], size: int | None, *, loss: Any, eval: bool, amp: bool, dtype: Any) -> Fit:  # noqa: A002
    """Predict the memory of a step with a model, its optimizer and a batch in any order; see `fit`."""
    torch = _loaded("torch")
    kinds = (torch.nn.Module, torch.optim.Optimizer) if torch else ((), ())
    models, optimizers = ([one for one in values if isinstance(one, kind)] for kind in kinds)
    batch = [one for one in values if not isinstance(one, kinds)]
    if not (torch or _loaded("jax")):
        raise FitError(_NO_FRAMEWORK)
    way = "%gpu_fit model optimizer batch"
    if not models:
        name = next((one.__name__ for one in batch if isinstance(one, FunctionType)), "")
        way = f"%gpu_fit {name}(batch)" if name else way
        raise FitError(f"{f'{name} is a function' if name else 'No PyTorch model is named'}. Try {way}")
    model, kind = models[0], type(models[0]).__name__
    own = {id(one) for one in model.parameters()}
    trained = [id(one) for each in optimizers for group in each.param_groups for one in group["params"]]
    name, known = str(dtype).removeprefix("torch."), _DTYPES[: 2 if amp else 4]
    is_keras = any(base.__module__.startswith("keras.") for base in type(model).__mro__)
    is_no_loss = loss is not None and not callable(loss)
    many = len(models) > 1 or len(optimizers) > 1
    wrong = {
        "A step has one model and one optimizer. To name a loss: --loss": many,
        f"{kind} is a Keras model. %gpu_fit supports PyTorch models.": is_keras,
        f"No batch is named. Try {way}": not batch,
        f"--dtype is one of {', '.join(known)}, not {name:.40}.": dtype and name not in known,
        f"--loss is the class {getattr(loss, '__name__', '')}. Add () behind it.": isinstance(loss, type),
        f"--loss is {with_article(type(loss).__name__)}, not a function.": is_no_loss,
        f"{kind} spreads a step over GPUs. Predict model.module with the batch of one GPU.": "DataParallel"
        in kind,
        "The optimizer has no parameter of this model. Create it again.": trained and own.isdisjoint(trained),
    }
    for why in (why for why, is_wrong in wrong.items() if is_wrong):
        raise FitError(why)
    from gpu_magic.fit.torch_step import TorchStep, first_batch, train
    from gpu_magic.fit.users_code import tensors_in

    batch = [first_batch(one) for one in batch]
    for one in batch:
        if not tensors_in(one):
            raise FitError(f"There is no tensor in {with_article(type(one).__name__)}. Try {way}")
    optimizer = optimizers[0] if optimizers and not eval else None
    while optimizer is not None and "param_groups" not in vars(
        optimizer
    ):  # Fabric's, which loses it in copies
        optimizer = next((one for one in vars(optimizer).values() if isinstance(one, kinds[1])), None)
    of_step = {"loss": loss, "eval": eval, "amp": amp, "dtype": getattr(torch, name, None)}
    args = (model, optimizer, batch[0] if len(batch) == 1 else tuple(batch))
    dtype = None if amp else of_step["dtype"]
    return _fit(lambda: TorchStep(train, args, of_step, dtype), size, torch)


def _fit(make_step: Callable[[], Any], size: int | None, torch: Any = None) -> Fit:
    """Predict a step, the largest batch, and the GPUs on which they fit. `torch` is for a PyTorch step."""
    from gpu_magic.process.session import current
    from gpu_magic.process.view import Snapshot

    if size is not None and (type(size) is not int or size < 1):
        raise FitError(f"--batch {size!s:.40} is not a number of items. Try --batch 64")
    predict = partial(_predicted, make_step, size, Snapshot.take(current()))
    # A build of PyTorch for CUDA or ROCm starts it in a backward, even on the CPU, because autograd creates a
    # thread for each GPU when it first runs (`Engine::start_device_threads`; seen with PyTorch 2.11). After
    # CUDA has started, autograd does not work in a forked process, and no forked process is needed.
    is_for_gpus = torch is not None and (torch.version.cuda or torch.version.hip)
    starts_cuda = is_for_gpus and not driver().is_started()
    return _in_child(predict, torch) if starts_cuda else predict()


def _in_child(predict: Callable[[], Fit], torch: Any) -> Fit:
    """Predict in a forked process, which inherits all that the step uses, like a DataLoader's workers."""
    from multiprocessing import get_context

    context = get_context("fork")
    answers, answer = context.Pipe(duplex=False)

    def work() -> None:
        torch.set_num_threads(1)  # a forked process has no OpenMP threads
        try:
            found: Fit | FitError = predict()
        except FitError as error:
            found = error
        except Exception as error:  # noqa: BLE001 - a bug in gpu_magic, which must be visible
            found = FitError(f"The prediction failed: {one_line(f'{type(error).__name__}: {error}')}")
        answer.send(found)

    child = context.Process(target=work)  # not a daemon, because the step can start workers
    try:
        with defer_interrupts(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX and Python 3.12 warn about threads, which the child ignores
            child.start()
            answer.close()
        found: Fit | FitError = answers.recv()
    except EOFError:
        raise FitError(
            "The predicting process ended without an answer. The kernel is not affected."
        ) from None
    finally:
        if child.pid is not None:
            child.kill()
            child.join()
    if isinstance(found, FitError):
        raise found
    return found


def _predicted(make_step: Callable[[], Any], size: int | None, snapshot: Snapshot) -> Fit:
    """Predict a step. `snapshot` was taken before, because a prediction can start CUDA in this process."""
    began, step = time.monotonic(), make_step()
    if size is not None and step.size is None:
        raise FitError("--batch needs a batch whose tensors have a common dimension 0.")
    parts = step.peak(size)
    seconds, peak = (time.monotonic() - began) / 2, sum(parts.values())
    size = size or step.size
    pools = next(one.pools() for one in imported() if one.module == step.module)
    rooms = _rooms(snapshot, step.present, pools)
    most = max((room.left for room in rooms if room.left is not UNKNOWN), default=None)
    largest, is_exact = None, False
    if size and most is not None:
        ends = {"seconds": seconds, "until": began + _SECONDS}
        largest, is_exact = _largest(step.peak, size, parts, most, **ends)
    fits = {room.name: room.fits(peak) for room in rooms}
    return Fit(parts, size, largest, fits, _verdict(peak, snapshot, rooms, largest, is_exact), step.notes)


class _Room(NamedTuple):
    """A visible GPU, its free bytes, and the bytes that are left after CUDA's own memory."""

    name: str
    label: str
    free: Any  # or UNKNOWN. Then `left` is also UNKNOWN
    left: Any
    maybe: int = 0  # further bytes, if CUDA already has its memory there, which is unknown

    def fits(self, peak: int) -> bool | Unknown:
        if self.left is UNKNOWN or self.left < peak <= self.left + self.maybe:
            return UNKNOWN
        return bool(peak <= self.left)


def _rooms(
    snapshot: Snapshot, present: Mapping[int, int], pools: Mapping[LogicalDevice, MemoryPool]
) -> list[_Room]:
    """Return the room on each visible GPU. It includes the framework's cache and the step's own tensors."""
    rooms = []
    for index, device in enumerate(() if snapshot.visible is UNKNOWN else snapshot.visible):
        if isinstance(device, str):
            continue
        free, processes = device.status.memory_free, device.status.processes
        left: int | Unknown = UNKNOWN
        maybe = 0
        if free is not UNKNOWN:
            pool = pools.get(LogicalDevice("gpu", index, "cuda"), MemoryPool(0, 0))
            free += present.get(index, 0) + pool.reserved - pool.used
            here = () if processes is UNKNOWN else processes
            has_context = pool.reserved > 0 or any(
                one.is_this_process is True and one.pid == os.getpid() for one in here
            )
            # In a container the driver's list does not tell which process is this one.
            can_have = processes is UNKNOWN or any(one.is_this_process is UNKNOWN for one in here)
            left = free - (_WORKSPACES if has_context else _CONTEXT)
            maybe = _CONTEXT - _WORKSPACES if can_have and not has_context and driver().is_started() else 0
        label = f"{simulated_mark(snapshot.simulated)}{device.label}"
        rooms.append(_Room(f"cuda:{index}", label, free, left, maybe))
    return rooms


def _largest(
    predicted: Callable[[int, float], Mapping[str, int]],
    size: int,
    parts: Mapping[str, int],
    room: int,
    *,
    seconds: float,
    until: float,
) -> tuple[int | None, bool]:
    """Return the largest batch that was predicted to fit, and whether one item more was predicted not to fit.

    Memory is roughly piecewise linear in the batch size. So a line through two sizes gives the size to
    predict next. A prediction takes about `seconds`. After the first one, none starts that would end after
    `until`.
    """
    peak = sum(parts.values())
    grows = sum(parts.get(name, 0) for name in ("batch", "activations", "temporary"))
    peaks = {0: peak - grows, size: peak}
    for turn in range(24):
        low = max((one for one, at in peaks.items() if at <= room), default=0)
        high = min((one for one, at in peaks.items() if one and at > room), default=_MOST + 1)
        if high - low <= 1 or (turn and time.monotonic() + seconds > until):
            break
        near, far = sorted(peaks, key=lambda one: abs(peaks[one] - room))[:2]
        rise = (peaks[far] - peaks[near]) / (far - near)
        following = near + int((room - peaks[near]) / rise) if rise else 16 * max(near, far)
        if (turn and turn % 3 == 0) or peaks.get(high) == sys.maxsize:  # memory grows in steps: bisect
            following = int((max(low, 1) * high) ** 0.5)
        following, began = max(low + 1, min(following, high - 1)), time.monotonic()
        try:  # with a time limit, because a step can go through its items one by one
            peaks[following] = sum(predicted(following, began + max(_SECONDS, 10 * seconds)).values())
        except FitError:  # the step refuses the size, or a tensor would have too many elements
            peaks[following] = sys.maxsize
        seconds = max(seconds, time.monotonic() - began)
    is_exact = high - low <= 1 and peaks.get(high, sys.maxsize) < sys.maxsize
    return (low, is_exact) if low or is_exact else (None, False)


def _verdict(peak: int, snapshot: Snapshot, rooms: list[_Room], largest: int | None, is_exact: bool) -> str:
    """Return a line with the GPUs on which a step fits, and the largest batch."""
    known = sorted((one for one in rooms if one.left is not UNKNOWN), key=lambda one: -one.left)
    if not known:
        why = "which GPUs are visible is unknown. Choose one with %gpus auto"
        if snapshot.problem:
            why = snapshot.problem.what
        elif snapshot.visible is not UNKNOWN:
            why = "no GPU is visible"
        if rooms:
            why = f"the free memory of {listed(room.label for room in rooms)} is unknown"
        return f"{size_text(peak)}. No verdict: {why}."
    needs = size_text(peak)
    needs += f", and {bytes_text(known[0].free - known[0].left)} for CUDA"
    batch = f" Largest batch: {'' if is_exact else 'at least '}{largest}."
    batch = {None: "", 0: " A batch of 1 does not fit."}.get(largest, batch)
    fitting = [f"{one.label} ({bytes_text(one.free)} free)" for one in known if peak <= one.left]
    if fitting:
        more = [f"{len(fitting) - 4} more"] if len(fitting) > 4 else []  # noqa: PLR2004
        return f"{needs}: fits on {listed(fitting[:4] + more)}.{batch}"
    if unclear := [one.label for one in known if one.fits(peak) is UNKNOWN]:
        why = "because the driver does not show whether CUDA already has its memory there"
        return f"{needs}: whether it fits on {listed(unclear)} is unknown, {why}.{batch}"
    return (
        f"{needs}: fits on no visible GPU. Most free: {known[0].label}, {bytes_text(known[0].free)}.{batch}"
    )
