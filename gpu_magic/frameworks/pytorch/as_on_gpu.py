"""Has PyTorch's functions do with fake tensors of the CPU what they would do on a GPU. It imports PyTorch."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from gpu_magic.frameworks.prediction import NotFollowed
from gpu_magic.frameworks.pytorch.unknown_number import UnknownNumber

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_magic.frameworks.pytorch.step_memory import StepCounter

__all__ = ["AsOnGpu"]

_CPU = torch.device("cpu")
# PyTorch's functions ask these whether a mode wants to have a say; within one that it was asked about, no.
_ASKING = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
_opened_globals: dict[int, dict[str, Any]] = {}
_opened: dict[Any, Any] = {}


class AsOnGpu(TorchFunctionMode):  # type: ignore[misc] # the type checker does not see PyTorch
    """Sends all tensors to the CPU, whichever device they are meant for; and takes a GPU's way.

    - What is moved to a GPU is there already; what is moved to the CPU does not count.
    - Dropout keeps a mask of one byte an element, as a GPU's does, and not one of floats; in attention it
      keeps none (flash and memory-efficient attention make it again in the backward).
    - A number of a tensor is an `UnknownNumber`, and deciding by one raises.

    Parameters
    ----------
    counter
        What counts the memory.

    """

    def __init__(self, counter: StepCounter) -> None:
        super().__init__()
        self._counter = counter
        self._within: set[Any] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        own = self._own.get(func)
        if own is not None:
            return own(self, func, args, kwargs)
        if kwargs:
            if kwargs.get("device") is not None and str(kwargs["device"]) != "meta":
                kwargs = {**kwargs, "device": _CPU}
            if kwargs.get("pin_memory"):
                kwargs = {**kwargs, "pin_memory": False}
        if "device" not in kwargs and func in _device_constructors():
            kwargs = {**kwargs, "device": _CPU}  # and not the default one, which can be a GPU
        if type(func) is FunctionType and func not in self._within:
            return self._inside(func, args, kwargs)
        return func(*args, **kwargs)

    def _inside(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call one of PyTorch's functions that is written in Python, and have a say in what that calls."""
        self._within.add(func)
        try:
            with self:
                return _open(func)(*args, **kwargs)
        finally:
            self._within.discard(func)

    def _backward(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._counter.forward_ends()
        return self._inside(func, args, kwargs) if func not in self._within else func(*args, **kwargs)

    def _to(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._counter.has_computed = True  # what is moved to a GPU is there then
        tensor, *values = args
        device = kwargs.get("device")
        kwargs = {name: value for name, value in kwargs.items() if name not in ("device", "non_blocking")}
        if values and isinstance(values[0], str | torch.device | int) and not isinstance(values[0], bool):
            device, *more = values
            values = [one for one in more[:1] if isinstance(one, torch.dtype)]
        if device is not None and str(device) == "meta":
            return func(tensor, device, *values, **kwargs)
        if device is not None and torch.device(device).type == "cpu":
            return self._to_host(func, (tensor, _CPU, *values), kwargs)
        if not values and not kwargs:
            return tensor
        return func(tensor, *values, **kwargs)

    def _to_host(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Copy a tensor to the host's memory, which does not count."""
        del kwargs
        with self._counter.on_host():
            return func(*args).clone()

    def _stay(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        del func, kwargs
        self._counter.has_computed = True
        return args[0]

    def _dropout(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensor, p, train = _bound(("input", "p", "train"), args, kwargs)
        if not train or not p or not (torch.is_grad_enabled() and tensor.requires_grad):
            return func(*args, **kwargs)
        return torch.native_dropout(tensor, p, train)[0]

    def _attention(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        names = ("query", "key", "value", "attn_mask", "dropout_p")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        if len(args) <= len(names):
            return func(**{**given, "dropout_p": 0.0})
        return func(*args, **kwargs)

    def _item(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return func(*args, **kwargs)
        except DataDependentOutputException:
            return UnknownNumber()

    def _format(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        del kwargs
        tensor, how = args
        if tensor.dim():
            return func(tensor, "")
        return format(self._item(torch.Tensor.item, (tensor,), {}), how)

    def _leave(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        del kwargs
        if args and isinstance(args[0], torch._subclasses.FakeTensor):  # noqa: SLF001
            raise NotFollowed(f"{func.__name__}() takes a tensor's data out of PyTorch")
        return func(*args)

    _own: ClassVar[dict[Any, Callable[..., Any]]] = {
        torch.Tensor.backward: _backward,
        torch.Tensor.to: _to,
        torch.Tensor.cpu: _to_host,
        torch.Tensor.cuda: _stay,
        torch.Tensor.pin_memory: _stay,
        torch.dropout: _dropout,
        torch.nn.functional.scaled_dot_product_attention: _attention,
        torch.Tensor.item: _item,
        torch.Tensor.__float__: _item,
        torch.Tensor.__format__: _format,
        torch.Tensor.numpy: _leave,
        torch.Tensor.__array__: _leave,
        torch.Tensor.tolist: _leave,
    }


def _open(func: FunctionType) -> FunctionType:
    """Return one of PyTorch's functions without its question whether a mode wants to do it."""
    found: FunctionType | None = _opened.get(func)
    if found is None:
        given = func.__globals__
        namespace = _opened_globals.get(id(given))
        if namespace is None:
            asking = {name: _no for name in _ASKING if name in given}
            namespace = _opened_globals[id(given)] = {**given, **asking} if asking else given
        found = FunctionType(func.__code__, namespace, func.__name__, func.__defaults__, func.__closure__)
        found.__kwdefaults__ = func.__kwdefaults__
        _opened[func] = found
    return found


def _no(*tensors: object) -> bool:
    del tensors
    return False


def _bound(names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return [given[name] for name in names]
