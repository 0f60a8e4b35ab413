"""A step of PyTorch on tensors without data, and the storages that live during it. It imports PyTorch."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import random
import sys
import threading
import weakref
from collections.abc import Mapping
from itertools import accumulate
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_magic.errors import FitError
from gpu_magic.fit.copies import Functions
from gpu_magic.fit.failed_step import Unfollowed, is_users_file, one_line
from gpu_magic.frameworks.private import private
from gpu_magic.interrupts import HeldInterrupts, held_interrupts
from gpu_magic.spelling import either, option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["TorchStep", "first_batch", "train"]

_PARTS = ("parameters", "gradients", "optimizer state", "batch", "activations", "temporary")
_CPU = torch.device("cpu")
_LOCK = threading.Lock()
_AUTOCAST, _SCALER = torch.amp.autocast_mode.autocast, torch.amp.GradScaler
_attention, _aten = torch.nn.functional.scaled_dot_product_attention, torch.ops.aten
# Losses that are computed for each element and then reduced, and whether the result keeps that size
# (aten/src/ATen/native/BinaryOps.cpp and Loss.cpp of PyTorch 2.13).
_LOSSES = {_aten.mse_loss: True, _aten.smooth_l1_loss: True, _aten.huber_loss: False}
_LOSSES[_aten.binary_cross_entropy] = False


def train(model: Any, optimizer: Any, batch: Any, loss: Any, options: SimpleNamespace) -> str:
    """Make a step as most programs do: forward, loss, backward, optimizer; return what was assumed."""
    model.train(not options.eval)
    model.zero_grad()
    note = ""
    autocast = torch.autocast("cuda", dtype=options.dtype) if options.amp else contextlib.nullcontext()
    with torch.set_grad_enabled(not options.eval), autocast:
        inputs, targets = batch, None
        if isinstance(batch, tuple | list) and len(batch) > 1 and (loss or not _takes(model, batch)):
            *inputs, targets = batch
        given = inputs if isinstance(inputs, Mapping | tuple | list) else (inputs,)
        output = model(**given) if isinstance(given, Mapping) else model(*given)
        if options.eval:
            return note
        trained: list[Any] = []
        value = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        if loss is not None:
            value = loss(output) if targets is None else loss(output, targets)
        elif value is None:
            trained = [one for one in _tensors(output) if one.requires_grad]
            if not trained:
                why = "No output of the model depends on a parameter that is trained; try"
                raise FitError(f"{why} {option('eval', True)}.")
            value = functools.reduce(torch.add, (one.sum() for one in trained))
            note = f"The loss is the sum of the output: {either('--loss', 'loss=…')} names another one."
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
        why = f"{type(optimizer).__name__} decides by what tensors hold; try it without the optimizer"
        raise Unfollowed(why) from None


class TorchStep:
    """A call of a function on copies without data: what it is called with and uses is not changed.

    Parameters
    ----------
    function, args, kwargs
        The call.
    dtype
        What floating-point tensors become; None: as they are.

    Attributes
    ----------
    size
        The batch's size along dimension 0; None if its tensors have no common one.
    present
        The bytes of the step's own tensors on each GPU now: they are not needed twice.
    notes
        What was assumed.

    """

    def __init__(self, function: Any, args: Any, kwargs: Any, dtype: Any = None) -> None:
        self._copies = _Fakes(dtype)
        self._counter = _Counter()
        with _undisturbed():
            functions = Functions(self._copies.copy)
            self._function = functions.copied(function)
            self._args, self._kwargs = self._copies.copy((args, kwargs))
            for module in [one for one in self._copies.memo.values() if isinstance(one, torch.nn.Module)]:
                for hooks in (module._forward_hooks, module._forward_pre_hooks):  # noqa: SLF001
                    hooks.update({key: functions.copied(hook) for key, hook in hooks.items()})
        self._batch = self._args[2] if function is train else (self._args, self._kwargs)
        sizes = {one.shape[0] for one in _tensors(self._batch) if one.dim()}
        self.size = int(sizes.pop()) if len(sizes) == 1 else None
        self.notes: tuple[str, ...] = ()
        self.present: dict[int, int] = {}
        on_gpus = [one for one in self._copies.real if one.device.type not in ("cpu", "meta")]
        for one in {one.untyped_storage().data_ptr(): one for one in on_gpus}.values():
            at = one.device.index or 0
            self.present[at] = self.present.get(at, 0) + one.untyped_storage().nbytes()
        for group in (group for one in self._optimizers for group in one.param_groups):
            if group.get("foreach", True) is None and not group.get("fused"):
                group["foreach"] = True  # all parameters at once, as on a GPU
            group.update({"capturable": False} if "capturable" in group else {})
        with self._followed():  # the first step makes the optimizer's state, with which all others begin
            if function is not train:
                self._run(self._batch)
            for optimizer in self._optimizers if function is train else ():
                for parameter in self._args[0].parameters():
                    parameter.grad = torch.empty_like(parameter) if parameter.requires_grad else None
                _step(optimizer)

    def peak(self, size: int | None = None) -> dict[str, int]:
        """Return the bytes of each part at the peak; of a batch of another size."""
        with self._followed():
            self._run(self._batch if size is None else _resized(self._batch, size))
        return self._counter.at_peak()

    @property
    def _optimizers(self) -> list[Any]:
        return [one for one in self._copies.memo.values() if isinstance(one, torch.optim.Optimizer)]

    def _run(self, batch: Any) -> None:
        counter, copies = self._counter, self._copies.memo.values()
        tensors = [one for one in copies if isinstance(one, torch.Tensor)]
        counter.begin([one for one in tensors if one.is_leaf and one.requires_grad])
        counter.label(tensors, "temporary")
        counter.label((one for one in tensors if isinstance(one, torch.nn.Parameter)), "parameters")
        for module in copies:
            counter.label(module.buffers() if isinstance(module, torch.nn.Module) else (), "parameters")
        counter.label(_tensors(self._batch), "")  # another one can stand in for it
        counter.label(_tensors(batch), "batch")
        self._label_state()
        if self._function is train:
            model, optimizer, _, *rest = self._args
            note = train(model, optimizer, batch, *rest)
            self.notes = (note,) if note else ()
        else:
            args, kwargs = batch
            self._function(*args, **kwargs)
            if not counter.has_computed:
                raise FitError("The function computes nothing with tensors: give the call of one that does.")
        counter.label_gradients()
        self._label_state()

    def _label_state(self) -> None:
        for state in (state for one in self._optimizers for state in one.state.values()):
            for name, tensor in state.items():
                if isinstance(tensor, torch.Tensor):  # the count of steps stays on the CPU
                    self._counter.label([tensor], "" if name == "step" else "optimizer state")

    @contextlib.contextmanager
    def _followed(self) -> Iterator[None]:
        """Run a block on fake tensors."""
        with _undisturbed() as interrupts:
            self._counter.between = interrupts.check
            with self._copies.mode, self._counter, _AsOnGpu(self._counter), interrupts.open():
                yield


class _Fakes:
    """Copies objects with fake tensors of the CPU; those of views share a storage as the real ones do."""

    def __init__(self, dtype: Any) -> None:
        names = ("FakeTensorMode", "FakeTensor", "FakeCopyMode")
        make, self._kind, copying = (private(f"torch._subclasses.fake_tensor:{name}") for name in names)
        if not (make and self._kind and copying):
            raise FitError(f"PyTorch {torch.__version__} has no fake tensors: its steps cannot be predicted.")
        self.mode, self._copying, self._dtype = make(allow_non_fake_inputs=True), copying(self), dtype
        self.memo: dict[int, Any] = {}

    def copy(self, value: Any) -> Any:
        """Return the copy of an object."""
        with self._copying:
            return copy.deepcopy(value, self.memo)

    @property
    def real(self) -> Iterator[Any]:
        """The tensors that were copied, and their gradients: `deepcopy` keeps what it has copied alive."""
        for one in self.memo.get(id(self.memo), ()):
            if isinstance(one, torch.Tensor):
                yield from (one, *([one.grad] if one.is_leaf and one.grad is not None else []))

    def from_tensor(self, tensor: Any, *, static_shapes: bool) -> Any:
        """Return the fake tensor of a real one: for FakeCopyMode."""
        del static_shapes
        if isinstance(tensor, self._kind):
            return tensor
        is_known = tensor.dim() == 0 and tensor.device == _CPU and type(tensor) is torch.Tensor
        number = tensor.detach().clone() if is_known else None  # an optimizer reads its count of steps

        def make(meta: Callable[[], Any], **_: Any) -> Any:
            return self._kind(self.mode, meta(), _CPU, constant=number)

        converter = self.mode.fake_tensor_converter
        found = converter.meta_converter(tensor, callback=make)
        if found is NotImplemented:
            raise Unfollowed(f"a {type(tensor).__name__} cannot be copied without its data")
        if number is not None and found.constant is not None:
            converter.add_constant_storage_mapping(found)
        if self._dtype is not None and tensor.is_floating_point() and tensor.dim():
            with self.mode:
                found = torch.empty_strided(found.size(), found.stride(), dtype=self._dtype)
        return found


class _Counter(TorchDispatchMode):  # type: ignore[misc] # the type checker does not see PyTorch
    """Counts the storages that operations make while it is entered; its clock counts births and ends."""

    def __init__(self) -> None:
        super().__init__()
        self.between: Callable[[], object] = bool
        self.is_on_host = self.has_computed = False
        self._living: dict[int, Any] = {}
        self._all: list[Any] = []
        self._ends: list[int] = []
        self._leaves: list[Any] = []
        self.begin([])

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # it would cost a third of the time, and there is nothing to compile

    def begin(self, leaves: list[Any]) -> None:
        """Begin a step: what is there now is there from its beginning."""
        self._all = [one for one in self._all if one.died is None]
        for one in self._all:
            one.born = 0
        self._clock, self._ends, self._leaves, self.has_computed = 0, [], leaves, False
        self.label_gradients()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        if func is torch.ops.prim.device.default:  # two thirds of all calls
            return getattr(args[0], "fake_device", _CPU)
        self.between()
        if any(type(one) in (torch.Tensor, torch.nn.Parameter) and one.requires_grad for one in args):
            raise Unfollowed("it trains a parameter of what cannot be copied; pass the model as an argument")
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None and kwargs["device"].type != "meta":
            kwargs["device"] = _CPU
        result = func(*args, **kwargs)
        self.has_computed = True
        for one in _tensors(result):
            self._see(one)
        if func.overloadpacket in _LOSSES and result.dim() == 0:
            before = _blocks(args[0].numel() * args[0].element_size())
            self._see(result).nbytes = before if _LOSSES[func.overloadpacket] else 512
            self._clock += 2
            scratch = SimpleNamespace(nbytes=before, born=self._clock - 1, died=self._clock, part="temporary")
            self._all.append(scratch)
        elif func is _aten.bernoulli_.float:  # dropout's mask has a byte an element on a GPU
            self._see(result).nbytes = _blocks(result.numel())
        elif func is _aten.mkldnn_rnn_layer.default:
            # cuDNN keeps the four gates and the cell's state of each step, by PyTorch's issue 2895.
            self._see(result[3]).nbytes = 5 * result[0].numel() * result[0].element_size()
        return result

    def label(self, tensors: Any, part: str) -> None:
        """Say what the storages of some tensors are; empty for what does not count."""
        for found in filter(None, map(self._see, tensors)):
            found.part = part
            found.born = found.born if part == "gradients" else 0

    def label_gradients(self) -> None:
        """Label the gradients that there are."""
        self.label((one.grad for one in self._leaves if one.grad is not None), "gradients")

    def forward_ends(self) -> None:
        """Note that what lives now is there for the backward."""
        self._ends.append(self._clock)

    def at_peak(self) -> dict[str, int]:
        """Return the bytes of each part at the moment when most is in use."""
        counted = [one for one in self._all if one.part]
        changes = [0] * (self._clock + 2)
        for one in counted:
            one.died = self._clock + 1 if one.died is None else one.died
            changes[one.born] += one.nbytes
            changes[one.died] -= one.nbytes
        in_use = list(accumulate(changes))
        moment = in_use.index(max(in_use))
        parts = dict.fromkeys(_PARTS, 0)
        for one in counted:
            if one.born <= moment < one.died:
                is_kept = any(one.born <= end < one.died for end in self._ends)
                parts["activations" if one.part == "temporary" and is_kept else one.part] += one.nbytes
        for one in counted:
            one.died = None if one.died > self._clock else one.died
        return parts

    def _see(self, tensor: Any) -> Any:
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):  # of a sparse one the values are seen as they are made
            return None
        key = storage._cdata  # noqa: SLF001
        found = self._living.get(key)
        if found is None and not self.is_on_host:
            self._clock += 1
            nbytes = _blocks(storage.nbytes())
            found = SimpleNamespace(nbytes=nbytes, born=self._clock, died=None, part="temporary")
            found.reference = weakref.ref(storage, functools.partial(self._end, key))
            self._living[key] = found
            self._all.append(found)
        return found

    def _end(self, key: int, _: Any) -> None:
        if (found := self._living.pop(key, None)) is not None:
            self._clock += 1
            found.died = self._clock


class _AsOnGpu(TorchFunctionMode):  # type: ignore[misc]
    """Keeps tensors on the CPU, whatever device they are meant for; what is moved there does not count."""

    def __init__(self, counter: _Counter) -> None:
        super().__init__()
        self._counter = counter
        self._constructors: set[Any] = (private("torch.utils._device:_device_constructors") or set)()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.backward:
            self._counter.forward_ends()
            names = ("tensors", "grad_tensors", "retain_graph", "create_graph")
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            given["grad_tensors"] = given.pop("gradient", given.get("grad_tensors"))
            with self:  # what checkpoints compute again is also seen
                torch.autograd.backward(**given)
            return self._counter.label_gradients()
        if func is _attention and "dropout_p" in kwargs:
            kwargs["dropout_p"] = 0.0  # as in `attend`, for who has imported the function by its name
        if func is torch.Tensor.__format__ and not args[0].dim():
            return "nan"
        if func in (torch.Tensor.item, torch.Tensor.__float__):
            try:
                return func(*args)
            except Exception as error:
                if type(error).__name__ != "DataDependentOutputException":
                    raise
                return _Number(1.0)  # which is finite
        if func in (torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda, torch.Tensor.pin_memory):
            return self._moved(func, args[0], args[1:], kwargs)
        if func in self._constructors or kwargs.get("device") is not None:
            kwargs["device"] = "meta" if str(kwargs.get("device")) == "meta" else _CPU
        return func(*args, **{**kwargs, **({"pin_memory": False} if kwargs.get("pin_memory") else {})})

    def _moved(self, func: Any, tensor: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        self._counter.has_computed = True
        places = (*args[:1], kwargs.get("device"))
        devices = [one for one in places if isinstance(one, str | int | torch.device)]
        dtypes = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.dtype)]
        dtypes += [one.dtype for one in args if isinstance(one, torch.Tensor)]
        if func is torch.Tensor.cpu or (devices and torch.device(devices[0]).type == "cpu"):
            self._counter.is_on_host = True
            try:
                return tensor.to(*dtypes, copy=True)
            finally:
                self._counter.is_on_host = False
        return tensor.to(dtypes[0]) if dtypes else tensor


class _Number(float):
    """The number that a tensor without data holds: to compute with and to print, not to decide by."""

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
def _undisturbed() -> Iterator[HeldInterrupts]:
    """Hold interrupts in a block, raise what goes wrong in one line, and put back what it changes."""
    numpy: Any = sys.modules.get("numpy.random")
    with one_line(), held_interrupts(_can_raise) as interrupts, _LOCK, contextlib.ExitStack() as stack:
        stack.callback(torch.set_rng_state, torch.get_rng_state())
        stack.callback(random.setstate, random.getstate())
        if numpy is not None:
            stack.callback(numpy.set_state, numpy.get_state())
        _replace_what_needs_a_gpu(stack)
        yield interrupts


def _replace_what_needs_a_gpu(stack: contextlib.ExitStack) -> None:
    """Replace in this thread what would start a GPU, or do otherwise than one; `stack` puts it back."""
    own = threading.get_ident()
    set_up, move = _AUTOCAST.__init__, torch.nn.Module.to

    def autocast(self: Any, device_type: str = "cuda", dtype: Any = None, *args: Any, **options: Any) -> None:
        set_up(self, "cpu", dtype or torch.get_autocast_dtype(device_type), *args, **options)

    def attend(query: Any, key: Any, value: Any, attn_mask: Any = None, *args: Any, **options: Any) -> Any:
        options.pop("dropout_p", None)  # a GPU's kernels draw it again in the backward, and keep no mask
        return _attention(query, key, value, attn_mask, 0.0, *args[1:], **options)

    def module_to(self: Any, *args: Any, **options: Any) -> Any:
        kinds = [one for one in (*args, *options.values()) if isinstance(one, torch.dtype | torch.Tensor)]
        return move(self, *args, **options) if kinds else self

    def replace(owner: Any, name: str, new: Callable[..., Any]) -> None:
        old = getattr(owner, name, None)
        if old is not None:

            @functools.wraps(old)
            def called(*args: Any, **options: Any) -> Any:
                return (new if threading.get_ident() == own else old)(*args, **options)

            setattr(owner, name, called)
            stack.callback(setattr, owner, name, old)

    replace(_AUTOCAST, "__init__", autocast)
    replace(_SCALER, "_maybe_opt_step", lambda _, optimizer, __, *args: optimizer.step(*args))
    replace(_SCALER, "update", lambda self, *_: self._per_optimizer_states.clear())
    replace(torch.nn.functional, "scaled_dot_product_attention", attend)
    replace(torch.nn.Module, "to", module_to)
    replace(torch.nn.Module, "cuda", lambda self, *_: self)
    replace(torch.cuda, "is_available", torch.cuda.is_initialized)  # it asks the driver, which starts CUDA
    for name in ("synchronize", "set_device", "manual_seed", "manual_seed_all"):
        replace(torch.cuda, name, lambda *_, **__: None)


def _blocks(nbytes: int) -> int:
    """Return bytes as PyTorch's caching allocator hands them out (kMinBlockSize, c10/cuda)."""
    return -(-nbytes // 512) * 512


def _tensors(value: Any, seen: set[int] | None = None) -> list[Any]:
    """Return the tensors in containers and in objects, but not those of models and optimizers."""
    if isinstance(value, torch.Tensor):
        return [value]
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, type | torch.nn.Module | torch.optim.Optimizer):
        return []
    seen.add(id(value))
    inner = value if isinstance(value, tuple | list) else getattr(value, "__dict__", {}).values()
    inner = value.values() if isinstance(value, Mapping) else inner
    return [one for part in inner for one in _tensors(part, seen)]


def _resized(value: Any, size: int, memo: dict[int, Any] | None = None) -> Any:
    """Return a batch of fake tensors with another size along dimension 0; what holds none is the same."""
    memo = {} if memo is None else memo
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, torch.Tensor) and value.dim():
        return value.new_empty((size, *value.shape[1:])).requires_grad_(value.requires_grad)
    if isinstance(value, torch.Tensor) or not _tensors(value):
        return value
    if isinstance(value, tuple):
        items = [_resized(one, size, memo) for one in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    new = memo[id(value)] = copy.copy(value)
    if isinstance(value, Mapping):
        for name, one in value.items():
            new[name] = _resized(one, size, memo)
    elif isinstance(value, list):
        new[:] = [_resized(one, size, memo) for one in value]
    else:
        vars(new).update({name: _resized(one, size, memo) for name, one in vars(value).items()})
    return new


def first_batch(batch: Any) -> Any:
    """Return a batch; of a DataLoader the first one, without its workers and its sampler."""
    if not isinstance(batch, torch.utils.data.DataLoader):
        return batch
    with _undisturbed():
        size = min(batch.batch_size or 0, len(batch.dataset))
        if not size:
            raise FitError("Give a batch in place of this DataLoader: batch = next(iter(loader)).")
        return batch.collate_fn([batch.dataset[index] for index in range(size)])


def _takes(model: Any, batch: Any) -> bool:
    """Return whether a model can be called with all that a batch has."""
    try:
        inspect.signature(model.forward).bind(*batch)
    except (TypeError, ValueError):
        return False
    return True


def _can_raise(frame: Any, count: int) -> bool:
    """Return whether an interrupt can be raised in a frame: in the user's code, not between two modes."""
    del count
    return frame is not None and is_users_file(frame.f_code.co_filename)
