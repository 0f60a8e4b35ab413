"""What PyTorch's objects are made of: modules, optimizers, packed and sparse tensors."""

from __future__ import annotations

import sys
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from gpu_magic.frameworks.answers import Components

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_magic.selection.target import LogicalDevice

__all__ = ["components_of"]

_DICTS = ("_parameters", "_buffers", "_modules")  # often empty
# Attributes of an optimizer that are treated one by one, or hold no tensors.
_OPTIMIZERS_OWN = ("defaults", "param_groups", "state")


def components_of(obj: Any, to: LogicalDevice | None) -> Components | None:
    """See `base.Framework.components`."""
    torch: Any = sys.modules["torch"]
    kind = type(obj)
    if issubclass(kind, torch.Tensor):
        is_sparse = obj.layout != torch.strided and not obj.requires_grad
        return _sparse(torch, obj) if is_sparse else None
    if issubclass(kind, torch.nn.Module):
        mine, hooks = vars(obj), _hooks(torch)
        names = [name for name in mine if name not in hooks and not (name in _DICTS and not mine[name])]
        return Components([mine[name] for name in names], partial(_put_items, obj, names))
    if issubclass(kind, torch.optim.Optimizer):
        return _optimizer(obj, to)
    if issubclass(kind, torch.nn.utils.rnn.PackedSequence):
        return Components([obj.data, obj.sorted_indices, obj.unsorted_indices], partial(_packed, obj), False)
    distributions = torch.distributions
    if issubclass(kind, distributions.Distribution | distributions.Transform):
        names = list(vars(obj))
        return Components([vars(obj)[name] for name in names], partial(_put_items, obj, names))
    data, optim = torch.utils.data, torch.optim
    if issubclass(kind, data.Dataset | data.DataLoader | data.Sampler):
        return Components(list(vars(obj).values()))
    if issubclass(kind, optim.lr_scheduler.LRScheduler | torch.amp.GradScaler):
        return Components([])  # they refer to the optimizer, and that stays the same object
    return None


@cache
def _hooks(torch: Any) -> frozenset[str]:
    """Return the attributes that every module has, except those that hold tensors."""
    return frozenset(vars(torch.nn.Module())) - set(_DICTS)


def _put_items(obj: Any, keys: Sequence[Any], old: Sequence[Any], new: Sequence[Any]) -> Any:
    mine = vars(obj)
    for key, before, value in zip(keys, old, new, strict=True):
        if value is not before:
            mine[key] = value
    return obj


def _optimizer(obj: Any, to: LogicalDevice | None) -> Components:
    """Return all that an optimizer holds, except what has to stay on the CPU: step counts, learning rates.

    As `Optimizer.load_state_dict` does (PyTorch 2.13): where neither capturable nor fused is set, Adam and
    the like refuse a step count that is not on the CPU.
    """
    torch: Any = sys.modules["torch"]

    def moves_whole(group: Mapping[str, Any]) -> bool:
        return to is None or to.kind == "cpu" or bool(group.get("capturable") or group.get("fused"))

    # Each slot is a dictionary and a key in it.
    slots: list[tuple[Any, Any]] = []
    group_of = {}
    for group in obj.param_groups:
        slots += [(group, name) for name in group if name == "params" or moves_whole(group)]
        group_of.update(dict.fromkeys(map(id, group["params"]), group))
    for tensor, state in obj.state.items():
        if isinstance(state, dict):
            is_whole = moves_whole(group_of.get(id(tensor), {}))
            slots += [(state, name) for name in state if name != "step" or is_whole]
        else:
            slots.append((obj.state, tensor))
    mine = vars(obj)
    others = [name for name in mine if name not in _OPTIMIZERS_OWN and not name.startswith("_optimizer")]
    slots += [(mine, name) for name in others]
    # A state's key is its tensor. Parameters stay the same objects; other tensors do not.
    keys = [key for key in obj.state if isinstance(key, torch.Tensor) and not _is_kept(torch, key)]
    return Components([*(items[key] for items, key in slots), *keys], partial(_put_slots, obj, slots))


def _is_kept(torch: Any, tensor: Any) -> bool:
    return bool(tensor.requires_grad) or isinstance(tensor, torch.nn.Parameter)


def _put_slots(obj: Any, slots: Sequence[tuple[Any, Any]], old: Sequence[Any], new: Sequence[Any]) -> Any:
    for (items, key), before, value in zip(slots, old, new, strict=False):
        if value is not before:
            items[key] = value
    for before, value in zip(old[len(slots) :], new[len(slots) :], strict=True):
        if value is not before:
            obj.state[value] = obj.state.pop(before)
    return obj


def _packed(obj: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    del old
    data, sorted_indices, unsorted_indices = new  # the batch sizes are read by the CPU
    return type(obj)(data, obj.batch_sizes, sorted_indices, unsorted_indices)


def _sparse(torch: Any, obj: Any) -> Components | None:
    if obj.layout == torch.sparse_coo:
        # The methods without an underscore raise where it is not coalesced.
        return Components([obj._indices(), obj._values()], partial(_coo, torch, obj), False)  # noqa: SLF001
    if obj.layout in (torch.sparse_csr, torch.sparse_bsr):
        inner = [obj.crow_indices(), obj.col_indices(), obj.values()]
    elif obj.layout in (torch.sparse_csc, torch.sparse_bsc):
        inner = [obj.ccol_indices(), obj.row_indices(), obj.values()]
    else:
        return None
    return Components(inner, partial(_compressed, torch, obj), False)


def _coo(torch: Any, obj: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    del old
    is_coalesced = obj.is_coalesced()
    return torch.sparse_coo_tensor(*new, obj.size(), is_coalesced=is_coalesced, check_invariants=False)


def _compressed(torch: Any, obj: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    del old
    return torch.sparse_compressed_tensor(*new, obj.size(), layout=obj.layout, check_invariants=False)
