"""Samples with a generator of another device, on that device. It imports PyTorch: import it only after that.

PyTorch (2.13) refuses a generator that is not of the tensor's own kind of device. Notebooks have the CPU's,
`torch.Generator().manual_seed(0)`, for the same numbers everywhere. Here such a generator gives on a GPU what
it gives on the CPU.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["SAMPLERS", "sample"]

# They make a tensor. `normal` can also take its mean and its deviation from others.
_MAKERS = frozenset((torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal))
# They take the probabilities or the shape from another tensor.
_OF_TENSORS = frozenset(
    (
        torch.bernoulli,
        torch.binomial,
        torch.multinomial,
        torch.poisson,
        torch.rand_like,
        torch.randint_like,
        torch.randn_like,
        torch.Tensor.bernoulli,
        torch.Tensor.multinomial,
    )
)
_IN_PLACE = frozenset(
    (
        torch.Tensor.bernoulli_,
        torch.Tensor.cauchy_,
        torch.Tensor.exponential_,
        torch.Tensor.geometric_,
        torch.Tensor.log_normal_,
        torch.Tensor.normal_,
        torch.Tensor.random_,
        torch.Tensor.uniform_,
        # These hand the tensor on as a keyword, and sample where no mode sees it.
        torch.nn.init.kaiming_uniform_,
        torch.nn.init.normal_,
        torch.nn.init.uniform_,
    )
)
# All that takes a generator as a keyword.
SAMPLERS = _MAKERS | _OF_TENSORS | _IN_PLACE


def sample(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], default: Any) -> Any:
    """Call one of the samplers with its generator, whichever device that is of.

    Parameters
    ----------
    func, args, kwargs
        The call.
    default
        The device of what is made where no tensor and no device is given.

    """
    if kwargs.get("device") is not None or kwargs.get("out") is not None:
        return func(*args, **kwargs)  # where it has to be is said: PyTorch refuses what does not fit
    source = kwargs["generator"].device
    given = next((value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)), None)
    if given is None:
        return _made(func, args, kwargs, source, default)
    if given.device.type == source.type:
        return func(*args, **kwargs)
    if func in _IN_PLACE:
        with torch.no_grad():  # as in these functions themselves
            return given.copy_(_sampled_there(func, args, kwargs, source, filled=given))
    return _sampled_there(func, args, kwargs, source).to(given.device)


def _made(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], source: Any, default: Any) -> Any:
    """Make a tensor on a device with a generator that can be of another kind of device."""
    if source.type == default.type:
        return func(*args, **{**kwargs, "device": default})
    made = func(*args, **{**kwargs, "device": source, "requires_grad": False}).to(default)
    return made.requires_grad_(bool(kwargs.get("requires_grad")))  # a leaf, which a moved one is not


def _sampled_there(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], source: Any, filled: Any = None
) -> Any:
    """Call a sampler with copies of its tensors on its generator's device; what it fills needs no copy."""

    def there(value: Any) -> Any:
        if value is filled and filled is not None:
            return torch.empty_like(value, device=source)
        return value.to(source) if isinstance(value, torch.Tensor) else value

    return func(*map(there, args), **{name: there(value) for name, value in kwargs.items()})
