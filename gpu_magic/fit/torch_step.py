"""A step of PyTorch on tensors without data, and the storages during the step. This imports PyTorch."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import logging
import random
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_magic.errors import FitError
from gpu_magic.fit.users_code import Functions, Unfollowed, is_users_file, one_line, tensors_in
from gpu_magic.frameworks.private import private, private_of
from gpu_magic.frameworks.torch_objects import innermost
from gpu_magic.interrupts import defer_interrupts
from gpu_magic.objects.walk import Walker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["TorchStep", "first_batch", "train"]

_PARTS = ("parameters", "gradients", "optimizer state", "batch", "activations", "temporary")
_CPU, _PLAIN = torch.device("cpu"), (torch.Tensor, torch.nn.Parameter)
_LOCK, _own = threading.Lock(), threading.local()  # `_own.predicts`: this thread holds the lock
_AUTOCAST, _SCALER = torch.amp.autocast_mode.autocast, torch.amp.GradScaler
_attention, _aten = torch.nn.functional.scaled_dot_product_attention, torch.ops.aten
# Losses that are computed for each element and then reduced. True: the result's storage keeps the size before
# the reduction (aten/src/ATen/native/BinaryOps.cpp and Loss.cpp of PyTorch 2.13).
_LOSSES = {_aten.mse_loss: True, _aten.smooth_l1_loss: True, _aten.huber_loss: False}
_LOSSES[_aten.binary_cross_entropy] = False
# Functions that go through a tensor item by item, and the most items in the search for the largest batch.
_BY_ITEMS = (torch.Tensor.__iter__, torch.Tensor.tolist, torch.Tensor.unbind, torch.unbind)
_MOST_ITEMS = 10_000


def train(model: Any, optimizer: Any, batch: Any, *, loss: Any, eval: bool, amp: bool, dtype: Any) -> str:  # noqa: A002
    """Run a step as most programs do: forward, loss, backward, optimizer. Return its assumption, or empty."""
    model.train(not eval)
    model.zero_grad()
    note = ""
    with torch.set_grad_enabled(not eval), torch.autocast("cuda", dtype, enabled=amp):
        inputs, targets = batch, None
        if isinstance(batch, tuple | list) and len(batch) > 1 and (loss or not _takes(model, batch)):
            *inputs, targets = batch
        given = inputs if isinstance(inputs, Mapping | tuple | list) else (inputs,)
        output = model(**given) if isinstance(given, Mapping) else model(*given)
        if eval:
            return note
        trained: list[Any] = []
        value = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        if loss is not None:
            value = loss(output) if targets is None else loss(output, targets)
        elif value is None:
            trained = [one for one in tensors_in(output) if one.requires_grad]
            if not trained:
                raise FitError("No output of the model depends on a trained parameter. Try --eval")
            value = functools.reduce(torch.add, (one.sum() for one in trained))
            note = "The loss is the sum of the output. To name another: --loss"
    del inputs, targets, given, output, trained
    (value.sum() if value.dim() else value).backward()
    del value
    if optimizer is not None:
        _step(optimizer)
    return note


def _step(optimizer: Any) -> None:
    try:
        optimizer.step()
    except Unfollowed:
        why = f"{type(optimizer).__name__} decides by what tensors hold. Try it without the optimizer"
        raise Unfollowed(why) from None


class TorchStep:
    """A call of a function on copies without data. Its arguments and its variables do not change.

    Floating-point tensors become `dtype`, if it is not None. `size` is the size of the batch along dimension
    0, None without a common size. `present` has the bytes of the step's own tensors on each GPU now, which
    the step does not need twice. `notes` has the assumptions.
    """

    module = "torch"

    def __init__(self, function: Any, args: Any, kwargs: Any, dtype: Any = None) -> None:
        if (mode := private("torch._subclasses.fake_tensor:FakeTensorMode")) is None:
            raise FitError(
                f"PyTorch {torch.__version__} has no fake tensors, so its steps cannot be predicted."
            )
        _check_copies((function, args, kwargs))
        self._mode, self._dtype = mode(allow_non_fake_inputs=True), dtype
        self._counter = _Counter()
        memo: dict[int, Any] = {}
        real = memo.setdefault(id(memo), [])  # `deepcopy` keeps the originals here
        with _undisturbed(), _CopyingBy(self._fake):
            functions = Functions(lambda value: copy.deepcopy(value, memo))
            self._function = functions.copied(function)
            self._args, self._kwargs = copy.deepcopy((args, kwargs), memo)
            for module in [one for one in real if isinstance(one, torch.nn.Module)]:
                for kind in ("torch.nn:Module._forward_hooks", "torch.nn:Module._forward_pre_hooks"):
                    hooks = {key: functions.copied(one) for key, one in private_of(module, kind).items()}
                    private_of(memo[id(module)], kind).update(hooks)
        self._tensors, self._modules, self._optimizers = (
            [one for one in memo.values() if isinstance(one, kind)]
            for kind in (torch.Tensor, torch.nn.Module, torch.optim.Optimizer)
        )
        self._batch = self._args[2] if function is train else (self._args, self._kwargs)
        sizes = {one.shape[0] for one in tensors_in(self._batch) if one.dim()}
        self.size = int(sizes.pop()) if len(sizes) == 1 else None
        self.notes: tuple[str, ...] = ()
        held = [one for one in real if isinstance(one, torch.Tensor)]
        with _undisturbed(), self._mode:
            for low, high, views in _overlapping([one for one in held if type(one) in _PLAIN and one.dim()]):
                shared = torch.empty(high - low, dtype=memo[id(views[0])].dtype, device=_CPU)
                for one in views if len(views) > 1 else ():
                    offset = one.storage_offset() - low
                    memo[id(one)].data = shared.as_strided(one.shape, one.stride(), offset)
        held += [one.grad for one in held if one.is_leaf and one.grad is not None]
        held = [*_unwrapped(held)]
        self.present: Counter[int] = Counter()
        for low, high, views in _overlapping(held):
            if (device := views[0].device).type not in ("cpu", "meta"):
                self.present[device.index or 0] += (high - low) * views[0].element_size()
        self._make_state()

    def _make_state(self) -> None:
        """Create the optimizer's state, which exists at the start of every step but the first."""
        for group in (group for one in self._optimizers for group in one.param_groups):
            if group.get("foreach", True) is None and not group.get("fused"):
                group["foreach"] = True  # all parameters at once, as on a GPU
            group.update({"capturable": False} if "capturable" in group else {})
        with self._followed():
            if self._function is not train:
                self._run(self._batch)
            elif optimizer := self._args[1]:
                for parameter in self._args[0].parameters():
                    parameter.grad = torch.empty_like(parameter) if parameter.requires_grad else None
                _step(optimizer)

    def _fake(self, tensor: Any) -> Any:
        """Return a CPU tensor without data. Numbers stay, because optimizers read their step count."""
        if hasattr(type(tensor), "__tensor_flatten__"):
            return self._fake_wrapper(tensor)
        if type(tensor) not in _PLAIN:
            return self._mode.from_tensor(tensor, static_shapes=True)
        is_number = tensor.dim() == 0 and tensor.device == _CPU
        number = tensor.item() if is_number else None
        dtype = self._dtype if tensor.is_floating_point() and tensor.dim() else None
        with self._mode:
            if is_number:
                return torch.tensor(number, dtype=tensor.dtype, requires_grad=tensor.requires_grad)
            return torch.empty_like(tensor, dtype=dtype, device=_CPU, requires_grad=tensor.requires_grad)

    def _fake_wrapper(self, tensor: Any) -> Any:
        """Return the same wrapper around tensors without data, in their own dtypes.

        `from_tensor` would keep a weak reference to the tensor, which then could not be moved.
        """
        names, context = tensor.__tensor_flatten__()
        inner = {name: self._fake_inner(getattr(tensor, name)) for name in names}
        new = type(tensor).__tensor_unflatten__(inner, context, tensor.size(), tensor.stride())
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        return torch.nn.Parameter(new, tensor.requires_grad) if is_parameter else new

    def _fake_inner(self, tensor: Any) -> Any:
        if hasattr(type(tensor), "__tensor_flatten__"):
            return self._fake_wrapper(tensor)
        with self._mode:
            return torch.empty_like(tensor, device=_CPU)

    def peak(self, size: int | None = None, until: float | None = None) -> dict[str, int]:
        """Return the bytes of each part at the peak, with a batch of `size`. Give up at `until`."""

        def resized(tensor: Any) -> Any:
            new = tensor.new_empty((size, *tensor.shape[1:])) if tensor.dim() else tensor
            return new.requires_grad_(tensor.requires_grad)

        batch = self._batch
        with self._followed(until):
            if size is not None:
                with _CopyingBy(resized):
                    same = {id(one): one for one in (*self._modules, *self._optimizers)}
                    batch = copy.deepcopy(batch, same)
            self._run(batch)
        return self._counter.at_peak()

    def _run(self, batch: Any) -> None:
        counter = self._counter
        buffers = (one for module in self._modules for one in module.buffers())
        counter.begin([one for one in self._tensors if one.is_leaf and one.requires_grad])
        counter.label(self._tensors, "temporary")
        counter.label((one for one in self._tensors if isinstance(one, torch.nn.Parameter)), "parameters")
        counter.label(buffers, "parameters")
        counter.label(tensors_in(self._batch), "")  # `batch` can replace it
        counter.label(tensors_in(batch), "batch")
        self._label_state()
        before = counter.clock
        if self._function is train:
            note = train(*self._args[:2], batch, **self._kwargs)
            self.notes = (note,) if note else ()
        else:
            args, kwargs = batch
            self._function(*args, **kwargs)
            if counter.clock == before:
                raise FitError("The function computes nothing with tensors.")
        counter.label_gradients()
        self._label_state()

    def _label_state(self) -> None:
        for state in (state for one in self._optimizers for state in one.state.values()):
            tensors = [one for one in state.values() if isinstance(one, torch.Tensor)]
            self._counter.label([one for one in tensors if one.dim()], "optimizer state")
            self._counter.label([one for one in tensors if not one.dim()], "")  # step counts, on the CPU

    @contextlib.contextmanager
    def _followed(self, until: float | None = None) -> Iterator[None]:
        """Run a block on fake tensors, at most until a time of `time.monotonic`."""
        with _undisturbed() as interrupts:

            def check(items: int = 0) -> None:
                if interrupts:
                    interrupts.clear()
                    raise KeyboardInterrupt
                if until is not None and (items > _MOST_ITEMS or time.monotonic() > until):
                    raise FitError("The prediction takes too long.")

            self._counter.between = check
            with self._mode, self._counter, _RedirectToCpu(self._counter):
                yield


def _check_copies(values: Any) -> None:
    """Raise FitError for a tensor that copies itself: a quantized weight would copy its data."""
    walker = Walker()
    for _ in walker.walk(values):
        pass
    for kind in {type(one) for one, _ in walker.arrays if isinstance(one, torch.Tensor)}:
        if kind.__deepcopy__.__module__.partition(".")[0] != "torch":
            name = f"{kind.__name__} of {kind.__module__.partition('.')[0]}"
            why = "copies its data itself, so the step cannot be predicted. To measure it: %%gpu_time"
            raise FitError(f"{name} {why}")


def _unwrapped(tensors: Any) -> Iterator[Any]:
    """Yield the inner tensors of wrappers, and other tensors themselves."""
    for one in tensors:
        yield from innermost(one) if hasattr(type(one), "__tensor_flatten__") else (one,)


def _overlapping(tensors: list[Any]) -> Iterator[tuple[int, int, list[Any]]]:
    """Yield tensors whose elements overlap in memory, with the first element of their storage and the end."""
    spans: dict[Any, list[tuple[int, int, Any]]] = {}
    for one in tensors:
        try:
            key = one.untyped_storage().data_ptr() or id(one), one.device, one.dtype
        except (RuntimeError, NotImplementedError, ValueError):  # sparse, or not yet initialized
            continue
        low, last = (
            one.storage_offset(),
            sum((n - 1) * s for n, s in zip(one.shape, one.stride(), strict=True)),
        )
        if one.numel():
            spans.setdefault(key, []).append((low, low + last + 1, one))
    for several in spans.values():
        several.sort(key=lambda span: span[:2])
        begin, end, views = several[0][0], several[0][1], list[Any]()
        for low, high, one in several:
            if low >= end:
                yield begin, end, views
                begin, views = low, []
            end, views = max(end, high), [*views, one]
        yield begin, end, views


class _CopyingBy(TorchFunctionMode):  # type: ignore[misc] # the type checker does not see PyTorch
    """Makes `copy.deepcopy` copy tensors, and the data of parameters, with a function."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        super().__init__()
        self._make = make

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        if func in (torch.Tensor.__deepcopy__, torch.Tensor.clone):
            return self._make(args[0])
        return func(*args, **(kwargs or {}))


class _Counter(TorchDispatchMode):  # type: ignore[misc]
    """Records the storages that operations create. Its clock ticks when a storage is created or freed."""

    def __init__(self) -> None:
        super().__init__()
        self.between: Callable[..., object] = bool
        self.is_on_host = False
        self._living: dict[int, Any] = {}
        self._all: list[Any] = []
        self._leaves: list[Any] = []
        self.begin([])

    def begin(self, leaves: list[Any]) -> None:
        """Start a step. The storages that exist now count from its start."""
        self._all, self._leaves = list(self._living.values()), leaves
        self.clock = 0
        for one in self._all:
            one.born, one.part = 0, "temporary"
        self.label_gradients()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:  # two thirds of all calls
            return _CPU
        if any(hasattr(one, "__tensor_flatten__") for one in types):  # its inner tensors come here
            return NotImplemented
        self.between()
        if any(type(one) in (torch.Tensor, torch.nn.Parameter) and one.requires_grad for one in args):
            raise Unfollowed("it trains an object that cannot be copied (pass the model as an argument)")
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None and kwargs["device"].type != "meta":
            kwargs["device"] = _CPU
        result = func(*args, **kwargs)
        for one in tensors_in(result):
            self._see(one)
        if func.overloadpacket in _LOSSES and result.dim() == 0:
            before = _blocks(args[0].numel() * args[0].element_size())
            self._see(result).nbytes = before if _LOSSES[func.overloadpacket] else 512
            self._see(torch.empty_like(args[0]))
        elif func is _aten.bernoulli_.float:  # on a GPU, dropout's mask has one byte per element
            self._see(result).nbytes = _blocks(result.numel())
        elif func is _aten.mkldnn_rnn_layer.default:
            # cuDNN keeps the four gates and the cell state of each step (PyTorch's issue 2895).
            self._see(result[3]).nbytes = 5 * result[0].numel() * result[0].element_size()
        return result

    def label(self, tensors: Any, part: str) -> None:
        """Set the part that the storages of some tensors belong to. Empty: they do not count."""
        for found in filter(None, map(self._see, _unwrapped(tensors))):
            found.part = part
            found.born = found.born if part == "gradients" else 0

    def label_gradients(self) -> None:
        """Label the present gradients."""
        self.label((one.grad for one in self._leaves if one.grad is not None), "gradients")

    def forward_ends(self) -> None:
        """Label the storages that still live as activations, because the backward needs them."""
        for one in self._living.values():
            one.part = "activations" if one.part == "temporary" else one.part

    def at_peak(self) -> dict[str, int]:
        """Return the bytes of each part at the peak of their sum."""
        counted = [one for one in self._all if one.part]
        changes = [0] * (self.clock + 2)
        for one in counted:
            changes[one.born] += one.nbytes
            changes[min(one.died, self.clock + 1)] -= one.nbytes
        in_use = list(accumulate(changes))
        moment = in_use.index(max(in_use))
        parts = dict.fromkeys(_PARTS, 0)
        for one in counted:
            parts[one.part] += one.nbytes if one.born <= moment < one.died else 0
        return parts

    def _see(self, tensor: Any) -> Any:
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):  # sparse: its values were seen when created
            return None
        key = id(storage)  # PyTorch keeps one object for each storage
        found = self._living.get(key)
        if found is None and not self.is_on_host:
            self.clock += 1
            nbytes = _blocks(storage.nbytes())
            found = SimpleNamespace(nbytes=nbytes, born=self.clock, died=sys.maxsize, part="temporary")
            found.reference = weakref.ref(storage, functools.partial(self._end, key))
            self._living[key] = found
            self._all.append(found)
        return found

    def _end(self, key: int, _: Any) -> None:
        if (found := self._living.pop(key, None)) is not None:
            self.clock += 1
            found.died = self.clock


class _RedirectToCpu(TorchFunctionMode):  # type: ignore[misc]
    """Keeps tensors on the CPU instead of any other device. Copies to the CPU do not count."""

    def __init__(self, counter: _Counter) -> None:
        super().__init__()
        self._counter = counter
        self._constructors: set[Any] = (private("torch.utils._device:_device_constructors") or set)()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.backward:
            self._counter.forward_ends()
            kwargs.update({"grad_tensors": kwargs.pop("gradient")} if "gradient" in kwargs else {})
            loss = torch.autograd.graph.get_gradient_edge(args[0])  # a tensor would call this method again
            with self:  # also for what checkpoints recompute
                torch.autograd.backward(loss, *args[1:], **kwargs)
            return self._counter.label_gradients()
        if func is _attention and "dropout_p" in kwargs:
            kwargs["dropout_p"] = 0.0  # as in `attend`, for code that imported the function by name
        if func is torch.Tensor.__format__ and not args[0].dim():
            return "nan"
        if func in (torch.Tensor.numpy, torch.Tensor.__array__):
            raise Unfollowed("it needs what a tensor holds")
        if func in _BY_ITEMS:
            self._counter.between(args[0].numel())
        if func in (torch.Tensor.item, torch.Tensor.__float__):
            return _number(func, args[0])
        if func in (torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda, torch.Tensor.pin_memory):
            return self._moved(func, args[0], args[1:], kwargs)
        if func in self._constructors or kwargs.get("device") is not None:
            kwargs["device"] = "meta" if str(kwargs.get("device")) == "meta" else _CPU
        return func(*args, **{**kwargs, **({"pin_memory": False} if kwargs.get("pin_memory") else {})})

    def _moved(self, func: Any, tensor: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        given = (*args, *kwargs.values())
        dtypes = [getattr(one, "dtype", one) for one in given if isinstance(one, torch.dtype | torch.Tensor)]
        devices = [str(one)[:3] for one in given if isinstance(one, str | torch.device)]
        self._counter.is_on_host = func is torch.Tensor.cpu or "cpu" in devices
        try:
            return tensor.to(*dtypes, copy=self._counter.is_on_host)
        finally:
            self._counter.is_on_host = False


def _number(func: Any, tensor: Any) -> Any:
    """Return the number in a tensor. If the tensor has no data, return a finite number."""
    try:
        return func(tensor.detach())
    except Exception as error:
        if type(error).__name__ != "DataDependentOutputException":
            raise
        return _Number(1.0) if func is torch.Tensor.item else 1.0  # float() returns a plain float


class _Number(float):
    """The number in a tensor without data. Code can compute with it and print it, but not branch on it."""

    def _decide(self, *_: object) -> Any:
        raise Unfollowed("it decides by a number that a tensor holds")

    def _same(self, *_: object) -> Any:
        return self

    __bool__ = __index__ = __int__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __round__ = _decide
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _same
    __pow__ = __rpow__ = __neg__ = __abs__ = __mod__ = __rmod__ = __floordiv__ = _same
    __hash__ = float.__hash__
    __str__ = __repr__ = __format__ = lambda *_: "nan"  # type: ignore[assignment]


@contextlib.contextmanager
def _undisturbed() -> Iterator[list[int]]:
    """Hold interrupts in a block, raise errors as one line, and restore the state that the block changes."""
    if getattr(_own, "predicts", False):
        raise FitError("A step cannot predict itself or another step. Remove the prediction from the step")
    numpy: Any = sys.modules.get("numpy.random")
    # Raise interrupts only in the user's code, not while modes are entered.
    held = defer_interrupts(lambda frame: frame is not None and is_users_file(frame.f_code.co_filename))
    with one_line(), held as interrupts, _LOCK, contextlib.ExitStack() as stack:
        _own.predicts = True
        stack.callback(setattr, _own, "predicts", False)
        stack.callback(torch.set_rng_state, torch.get_rng_state())
        stack.callback(random.setstate, random.getstate())
        if numpy is not None:
            stack.callback(numpy.set_state, numpy.get_state())
        _replace_what_needs_a_gpu(stack)
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        log, own = logging.getLogger("torch._subclasses.fake_tensor"), threading.get_ident()
        is_others = lambda record: record.thread != own  # noqa: E731 - PyTorch logs errors before it raises them
        log.addFilter(is_others)
        stack.callback(log.removeFilter, is_others)
        yield interrupts


def _replace_what_needs_a_gpu(stack: contextlib.ExitStack) -> None:
    """Replace functions in this thread that start a GPU, or behave differently on one. `stack` undoes it."""
    own = threading.get_ident()
    set_up = _AUTOCAST.__init__

    def autocast(self: Any, device_type: str = "cuda", dtype: Any = None, *args: Any, **options: Any) -> None:
        set_up(self, "cpu", dtype or torch.get_autocast_dtype(device_type), *args, **options)

    def attend(query: Any, key: Any, value: Any, attn_mask: Any = None, *args: Any, **options: Any) -> Any:
        options.pop("dropout_p", None)  # GPU kernels keep no mask, but draw it again in the backward
        return _attention(query, key, value, attn_mask, 0.0, *args[1:], **options)

    def apply(self: Any, change: Callable[[Any], Any], **_: Any) -> Any:  # PyTorch's own cannot swap fakes
        for one in (*self.parameters(), *self.buffers()):
            one.data = change(one)
        return self

    def replace(owner: Any, name: str, new: Callable[..., Any]) -> None:
        old = getattr(owner, name)

        @functools.wraps(old)
        def called(*args: Any, **options: Any) -> Any:
            return (new if threading.get_ident() == own else old)(*args, **options)

        setattr(owner, name, called)
        stack.callback(setattr, owner, name, old)

    replace(_AUTOCAST, "__init__", autocast)
    replace(_SCALER, "step", lambda _, optimizer, *args: optimizer.step(*args))
    for name in ("unscale_", "update"):  # the scale does not change memory
        replace(_SCALER, name, lambda *_: None)
    replace(torch.nn.functional, "scaled_dot_product_attention", attend)
    replace(torch.nn.Module, "_apply", apply)
    replace(torch.cuda, "is_available", torch.cuda.is_initialized)  # it asks the driver, which starts CUDA
    for name in ("synchronize", "set_device", "manual_seed", "manual_seed_all"):
        replace(torch.cuda, name, lambda *_, **__: None)


def _blocks(nbytes: int) -> int:
    """Round bytes up as PyTorch's caching allocator does (kMinBlockSize, c10/cuda)."""
    return -(-nbytes // 512) * 512


def first_batch(batch: Any) -> Any:
    """Return a batch. For a DataLoader, return its first batch, without its workers and sampler."""
    if not isinstance(batch, torch.utils.data.DataLoader):
        return batch
    with _undisturbed():
        is_stream = isinstance(batch.dataset, torch.utils.data.IterableDataset)  # it may have no length
        size = 0 if is_stream else min(batch.batch_size or 0, len(batch.dataset))
        if not size:
            raise FitError("This DataLoader gives no batch here. Pass one: batch = next(iter(loader))")
        return batch.collate_fn([batch.dataset[index] for index in range(size)])


def _takes(model: Any, batch: Any) -> bool:
    """Return whether a model accepts all items of a batch as arguments."""
    with contextlib.suppress(TypeError, ValueError):
        return bool(inspect.signature(model.forward).bind(*batch))
    return False
