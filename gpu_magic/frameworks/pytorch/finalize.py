"""What PyTorch's modules need once their tensors are elsewhere: to be told it; RNNs one piece of memory."""

from __future__ import annotations

import contextlib
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = ["flatten_rnns", "modules_in", "tell_device"]


def modules_in(objects: Iterable[Any]) -> list[Any]:
    """Return the modules among some objects."""
    kind = sys.modules["torch"].nn.Module
    return [obj for obj in objects if issubclass(type(obj), kind)]


def tell_device(modules: Sequence[Any], device: Any) -> Iterator[Callable[[], None]]:
    """Call the `to` of modules that remember their device there, or in `_apply`; yield what undoes each call.

    Lightning's modules do the first, the metrics of torchmetrics the second. Their tensors are on the device
    already, so the calls move nothing. As with a `to` of the user's, the outermost modules may refuse; what
    is within them is not asked by PyTorch's own `to`, so that it can't refuse here.
    """
    inner = {id(child) for module in modules for child in module._modules.values()}  # noqa: SLF001
    for module in sorted(modules, key=lambda module: id(module) in inner):
        is_outermost = id(module) not in inner
        if _is_own(type(module), "to") or _is_own(type(module), "_apply"):
            before = _attributes_of(module)
            yield partial(_restore, before)
            with contextlib.nullcontext() if is_outermost else contextlib.suppress(Exception):
                module.to(device)
            _keep_objects(before)


def flatten_rnns(modules: Iterable[Any]) -> None:
    """Make each RNN's weights one contiguous piece, as `Module.to` does: cuDNN needs that.

    Where there is no room for it, PyTorch does it at every call instead, and warns.
    """
    kind = sys.modules["torch"].nn.RNNBase
    for module in modules:
        if issubclass(type(module), kind):
            with contextlib.suppress(RuntimeError):
                module.flatten_parameters()


def _is_own(cls: type, method: str) -> bool:
    """Return whether a module's method is another package's, or the user's, and not PyTorch's."""
    owner = next((base for base in cls.__mro__ if method in vars(base)), None)
    return owner is not None and owner.__module__.partition(".")[0] != "torch"


def _attributes_of(module: Any) -> list[tuple[Any, Mapping[str, Any], Mapping[str, Any]]]:
    """Return a module and those within it, each with its attributes and its parameters."""
    modules = sys.modules["torch"].nn.Module.modules(module)  # not its own method, which can be anything
    return [(one, dict(vars(one)), dict(one._parameters)) for one in modules]  # noqa: SLF001


def _keep_objects(before: Sequence[tuple[Any, Mapping[str, Any], Mapping[str, Any]]]) -> None:
    """Put parameters back that became new ones, and lists that became new ones of the same items."""
    for module, attributes, parameters in before:
        module._parameters.update(parameters)  # noqa: SLF001
        mine = vars(module)
        for name, value in attributes.items():
            now = mine.get(name)
            if type(value) is list is type(now) and list(map(id, value)) == list(map(id, now)):
                mine[name] = value


def _restore(before: Sequence[tuple[Any, Mapping[str, Any], Mapping[str, Any]]]) -> None:
    for module, attributes, parameters in before:
        module._parameters.update(parameters)  # noqa: SLF001
        mine = vars(module)
        for name, value in attributes.items():
            if mine.get(name) is not value:
                mine[name] = value
