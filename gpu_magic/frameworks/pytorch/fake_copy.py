"""Copies what a step uses, with fake tensors in place of real ones. It imports PyTorch."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from gpu_magic.frameworks.prediction import NotFollowed
from gpu_magic.frameworks.pytorch.fake_tensors import FakeTensors
from gpu_magic.frameworks.pytorch.parallel import why_not_wrapped
from gpu_magic.frameworks.pytorch.stand_ins import stand_in
from gpu_magic.frameworks.shadow.objects import Shadow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpu_magic.frameworks.pytorch.step_memory import StepCounter

__all__ = ["FakeCopy"]


class FakeCopy:
    """Copies objects, each once; call it with one.

    Parameters
    ----------
    counter
        What counts the memory of the fake tensors.
    between
        Called before an object is copied; it may raise.

    """

    def __init__(self, counter: StepCounter, between: Callable[[], object]) -> None:
        self.fakes = FakeTensors()
        self._between = between
        self._counter = counter
        self._shadow = Shadow(self._special)
        self._optimizers: list[Any] = []
        self._leaves: list[Any] = []
        self._hooks: list[Any] = []

    def __call__(self, obj: Any) -> Any:
        """Return the copy of an object."""
        return self._shadow.copy(obj)

    def cast(self, tensors: Iterable[Any], dtype: Any) -> None:
        """Have the copies of real tensors be of another dtype, where they are of floating-point numbers."""
        for tensor in tensors:
            if tensor.is_floating_point():
                self.fakes.cast(tensor, dtype)

    @property
    def has_gradients(self) -> bool:
        """Whether a parameter has a gradient now."""
        return any(leaf.grad is not None for leaf in self._leaves)

    def label_state(self) -> None:
        """Tell the counter what the optimizers hold now."""
        for optimizer in self._optimizers:
            for state in optimizer.state.values():
                for name, tensor in state.items() if isinstance(state, dict) else ():
                    if not isinstance(tensor, torch.Tensor):
                        continue
                    self._counter.label([tensor], "optimizer state")
                    if name == "step":  # an optimizer keeps its count of steps on the CPU
                        self._counter.leave_out(tensor)

    def close(self) -> None:
        """Let go of all copies and of what they are copies of.

        A hook of a tensor's is held in C++, where the garbage collector does not see what it leads to.
        """
        for hook in self._hooks:
            hook.remove()
        for one in (self._hooks, self._leaves, self._optimizers):
            one.clear()
        self._shadow.close()
        self.fakes.close()

    def _special(self, obj: Any) -> Any:
        self._between()
        if isinstance(obj, torch.Tensor):
            return self._tensor(obj)
        if isinstance(obj, torch.jit.ScriptModule):
            raise NotFollowed(f"{type(obj).__name__} is scripted, and keeps its tensors outside Python")
        if isinstance(obj, torch.nn.Module):
            if why := why_not_wrapped(obj):
                raise NotFollowed(why)
            original = obj.__dict__.get("_modules", {}).get("_orig_mod")
            return self._module(obj) if original is None else self._shadow.copy(original)
        if isinstance(obj, torch.optim.Optimizer):
            return self._optimizer(obj)
        keras: Any = sys.modules.get("keras")
        if keras is not None and isinstance(obj, keras.optimizers.Optimizer):
            return self._keras_optimizer(obj)
        return stand_in(obj)

    def _tensor(self, tensor: Any) -> Any:
        fake = self.fakes.fake(tensor)
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        self._counter.label([fake], "parameters" if is_parameter else "activations", is_present=True)
        if fake.is_leaf and fake.requires_grad:
            self._leaves.append(fake)
            if fake.grad is not None:
                self._counter.label([fake.grad], "gradients", is_present=True)
            self._hooks.append(fake.register_post_accumulate_grad_hook(self._note_gradient))
        return fake

    def _note_gradient(self, leaf: Any) -> None:
        self._counter.label([leaf.grad], "gradients")

    def _module(self, module: Any) -> Any:
        new = self._shadow.plain(module)
        new.__dict__["_compiled_call_impl"] = None  # what torch.compile made of it
        new.__dict__["_apply"] = partial(_apply, new)  # PyTorch's own swaps fake parameters, and fails
        self._counter.label(new.__dict__.get("_buffers", {}).values(), "parameters", is_present=True)
        return new

    def _keras_optimizer(self, optimizer: Any) -> Any:
        """Copy an optimizer of Keras's, which knows the variables that it trains by their ids (3.15)."""
        new = self._shadow.plain(optimizer)
        places = new.__dict__.get("_trainable_variables_indices")
        for variable in optimizer.__dict__.get("_trainable_variables", ()) if places else ():
            places[id(self._shadow.copy(variable))] = places.pop(id(variable))
        state = [variable.value for variable in new.variables]
        self._counter.label(state, "optimizer state", is_present=True)
        return new

    def _optimizer(self, optimizer: Any) -> Any:
        """Copy an optimizer, which on a GPU takes all parameters at once where it may choose."""
        new = self._shadow.plain(optimizer)
        for group in (*new.param_groups, new.defaults):
            if (
                group.get("foreach", True) is None
                and not group.get("fused")
                and not group.get("differentiable")
            ):
                group["foreach"] = True
            if "capturable" in group:
                group["capturable"] = False
        self._optimizers.append(new)
        self.label_state()
        return new


def _apply(module: Any, function: Callable[[Any], Any], recurse: bool = True) -> Any:
    """Do what `Module._apply` does, which `to` and `half` call: give a module's tensors to a function."""
    for child in module.children() if recurse else ():
        child._apply(function)  # noqa: SLF001
    for name, parameter in module._parameters.items():  # noqa: SLF001
        if parameter is not None and (new := function(parameter)) is not parameter:
            module._parameters[name] = torch.nn.Parameter(new, parameter.requires_grad)  # noqa: SLF001
    for name, buffer in module._buffers.items():  # noqa: SLF001
        if buffer is not None:
            module._buffers[name] = function(buffer)  # noqa: SLF001
    return module
