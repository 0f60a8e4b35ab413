"""What PyTorch's objects are made of: modules, optimizers, packed and sparse tensors."""

from __future__ import annotations

import sys
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from gpu_magic.frameworks.base import Components

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.selection.target import LogicalDevice

__all__ = ["components_of"]

_DICTS = ("_parameters", "_buffers", "_modules")  # often empty
# What an optimizer has besides, and is no tensor of its.
_OPTIMIZERS_OWN = ("defaults", "param_groups", "state")


def components_of(thing: Any, to: LogicalDevice | None) -> Components | None:
    """See `base.Framework.parts`."""
    torch: Any = sys.modules["torch"]
    kind = type(thing)
    if issubclass(kind, torch.Tensor):
        is_sparse = thing.layout != torch.strided and not thing.requires_grad
        return _sparse(torch, thing) if is_sparse else None
    if issubclass(kind, torch.nn.Module):
        mine, hooks = vars(thing), _hooks(torch)
        names = [name for name in mine if name not in hooks and not (name in _DICTS and not mine[name])]
        return Components([mine[name] for name in names], partial(_put_items, thing, names))
    if issubclass(kind, torch.optim.Optimizer):
        return _optimizer(thing, to)
    if issubclass(kind, torch.nn.utils.rnn.PackedSequence):
        return Components(
            [thing.data, thing.sorted_indices, thing.unsorted_indices], partial(_packed, thing), False
        )
    data, optim = torch.utils.data, torch.optim
    if issubclass(kind, data.Dataset | data.DataLoader | data.Sampler):
        # A loader's workers could not use what is on a GPU; the batches are what is moved.
        return Components([] if to else list(vars(thing).values()))
    if issubclass(kind, optim.lr_scheduler.LRScheduler | torch.amp.GradScaler):
        return Components([])  # they hold on to the optimizer, and that stays the same object
    return None


@cache
def _hooks(torch: Any) -> frozenset[str]:
    """Return the attributes that every module has, but for those that have tensors in them."""
    return frozenset(vars(torch.nn.Module())) - set(_DICTS)


def _put_items(thing: Any, keys: Sequence[Any], old: Sequence[Any], new: Sequence[Any]) -> Any:
    mine = vars(thing)
    for key, before, value in zip(keys, old, new, strict=True):
        if value is not before:
            mine[key] = value
    return thing


def _optimizer(thing: Any, to: LogicalDevice | None) -> Components:
    """Leave the step count and a learning rate on the CPU, unless the optimizer wants them beside the rest.

    As `Optimizer.load_state_dict` does (PyTorch 2.13): where neither capturable nor fused is set, Adam and
    the like refuse a step count that is not on the CPU.
    """
    torch: Any = sys.modules["torch"]
    groups = {id(tensor): group for group in thing.param_groups for tensor in group["params"]}

    def has_to_move(group: Any) -> bool:
        return to is None or to.kind == "cpu" or bool(group.get("capturable") or group.get("fused"))

    slots: list[tuple[Any, Any]] = []
    for group in thing.param_groups:
        slots += [(group, name) for name in group if name == "params" or has_to_move(group)]
    for tensor, state in thing.state.items():
        if not isinstance(state, dict):
            slots.append((thing.state, tensor))
            continue
        stays = {"step"} if not has_to_move(groups.get(id(tensor), {})) else ()
        slots += [(state, name) for name in state if name not in stays]
    mine = vars(thing)
    others = [name for name in mine if name not in _OPTIMIZERS_OWN and not name.startswith("_optimizer")]
    slots += [(mine, name) for name in others]
    # Parameters stay the same objects, and so the keys of their states; other tensors do not.
    plain = [one for one in thing.state if isinstance(one, torch.Tensor) and not _is_kept(torch, one)]
    return Components([*(items[key] for items, key in slots), *plain], partial(_put_slots, thing, slots))


def _is_kept(torch: Any, tensor: Any) -> bool:
    return bool(tensor.requires_grad) or isinstance(tensor, torch.nn.Parameter)


def _put_slots(thing: Any, slots: Sequence[tuple[Any, Any]], old: Sequence[Any], new: Sequence[Any]) -> Any:
    for (items, key), before, value in zip(slots, old, new, strict=False):
        if value is not before:
            items[key] = value
    for before, value in zip(old[len(slots) :], new[len(slots) :], strict=True):
        if value is not before:
            thing.state[value] = thing.state.pop(before)
    return thing


def _packed(thing: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    del old
    data, sorted_indices, unsorted_indices = new  # the batch sizes are read by the CPU
    return type(thing)(data, thing.batch_sizes, sorted_indices, unsorted_indices)


def _sparse(torch: Any, thing: Any) -> Components | None:
    if thing.layout == torch.sparse_coo:
        # The methods without an underscore raise where it is not coalesced.
        return Components([thing._indices(), thing._values()], partial(_coo, torch, thing), False)  # noqa: SLF001
    if thing.layout in (torch.sparse_csr, torch.sparse_bsr):
        inner = [thing.crow_indices(), thing.col_indices(), thing.values()]
    elif thing.layout in (torch.sparse_csc, torch.sparse_bsc):
        inner = [thing.ccol_indices(), thing.row_indices(), thing.values()]
    else:
        return None
    return Components(inner, partial(_compressed, torch, thing), False)


def _coo(torch: Any, thing: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    del old
    is_coalesced = thing.is_coalesced()
    return torch.sparse_coo_tensor(*new, thing.size(), is_coalesced=is_coalesced, check_invariants=False)


def _compressed(torch: Any, thing: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    del old
    return torch.sparse_compressed_tensor(*new, thing.size(), layout=thing.layout, check_invariants=False)
