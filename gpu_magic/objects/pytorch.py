"""What PyTorch's objects hold: modules, optimizers, packed and sparse tensors. Asked only where torch is."""

from __future__ import annotations

import sys
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from gpu_magic.frameworks.answers import Components
from gpu_magic.frameworks.pytorch.tensors import sparse_parts
from gpu_magic.objects.parts import put
from gpu_magic.text import with_article

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_magic.selection.target import LogicalDevice

__all__ = ["parts_of", "why_it_stays"]

_DICTS = ("_parameters", "_buffers", "_modules")  # often empty
# Attributes of an optimizer that are treated one by one, or hold no tensors.
_OPTIMIZERS_OWN = ("defaults", "param_groups", "state")


def parts_of(obj: Any, to: LogicalDevice | None) -> Components | None:
    """Return what an object of PyTorch holds, or for a move what moves; None for any other object."""
    torch: Any = sys.modules["torch"]
    kind = type(obj)
    if issubclass(kind, torch.Tensor):
        is_sparse = obj.layout != torch.strided and not obj.requires_grad
        return _sparse(torch, obj) if is_sparse else None
    if issubclass(kind, torch.nn.Module):
        mine, hooks = vars(obj), _hooks(torch)
        names = [name for name in mine if name not in hooks]
        dicts = [held for name in _DICTS if (held := mine.get(name))]
        values = [value for held in dicts for value in held.values()] + [mine[name] for name in names]
        places = [*((held.__setitem__, list(held)) for held in dicts), (mine.__setitem__, names)]
        return Components(values, partial(put, places))
    if issubclass(kind, torch.optim.Optimizer):
        return _optimizer(torch, obj, to)
    if issubclass(kind, torch.nn.utils.rnn.PackedSequence):
        inner = [obj.data, obj.sorted_indices, obj.unsorted_indices]  # the batch sizes are read by the CPU
        return Components(inner, lambda _, new: kind(new[0], obj.batch_sizes, *new[1:]), in_place=False)
    if issubclass(kind, torch.distributions.Distribution | torch.distributions.Transform):
        mine = vars(obj)
        put_new = partial(put, [(mine.__setitem__, list(mine))])
        return Components(list(mine.values()), put_new)
    data = torch.utils.data
    if issubclass(kind, data.Dataset | data.DataLoader | data.Sampler):
        return Components(list(vars(obj).values()))
    if issubclass(kind, torch.optim.lr_scheduler.LRScheduler | torch.amp.GradScaler):
        return Components([])  # they refer to the optimizer, and that stays the same object
    return None


@cache
def _hooks(torch: Any) -> frozenset[str]:
    """Return the attributes that every module has. Those that hold tensors are treated by themselves."""
    return frozenset(vars(torch.nn.Module()))


def _optimizer(torch: Any, obj: Any, to: LogicalDevice | None) -> Components:
    """Return all that an optimizer holds, except what has to stay on the CPU: step counts, learning rates.

    As `Optimizer.load_state_dict` does (PyTorch 2.13): where neither capturable nor fused is set, Adam and
    the like refuse a step count that is not on the CPU.
    """

    def moves_whole(group: Mapping[str, Any]) -> bool:
        return to is None or to.kind == "cpu" or bool(group.get("capturable") or group.get("fused"))

    places: list[tuple[dict[Any, Any], list[Any]]] = []
    group_of = {}
    for group in obj.param_groups:
        places.append((group, [name for name in group if name == "params" or moves_whole(group)]))
        group_of.update(dict.fromkeys(map(id, group["params"]), group))
    for tensor, state in obj.state.items():
        if isinstance(state, dict):
            is_whole = moves_whole(group_of.get(id(tensor), {}))
            places.append((state, [name for name in state if name != "step" or is_whole]))
        else:
            places.append((obj.state, [tensor]))
    mine = vars(obj)
    others = [name for name in mine if name not in _OPTIMIZERS_OWN and not name.startswith("_optimizer")]
    places.append((mine, others))
    values = [items[key] for items, keys in places for key in keys]
    # A state's key is its tensor. Parameters stay the same objects; other tensors do not.
    keys = [
        key
        for key in obj.state
        if isinstance(key, torch.Tensor) and not (key.requires_grad or isinstance(key, torch.nn.Parameter))
    ]

    def put_new(old: Sequence[Any], new: Sequence[Any]) -> None:
        count = len(values)
        put(((items.__setitem__, names) for items, names in places), old[:count], new[:count])
        for before, value in zip(old[count:], new[count:], strict=True):
            if value is not before:
                obj.state[value] = obj.state.pop(before)

    return Components([*values, *keys], put_new)


def _sparse(torch: Any, obj: Any) -> Components | None:
    inner = sparse_parts(obj)
    if obj.layout == torch.sparse_coo:
        make = partial(torch.sparse_coo_tensor, is_coalesced=obj.is_coalesced())
    else:
        make = partial(torch.sparse_compressed_tensor, layout=obj.layout)

    def made(_: Sequence[Any], new: Sequence[Any]) -> Any:
        return make(*new, obj.size(), check_invariants=False)

    return Components(inner, made, in_place=False) if inner else None


def why_it_stays(kind: type) -> str:
    """Return a sentence if objects of a type stay: a loader's workers can't use a GPU's memory."""
    torch: Any = sys.modules["torch"]
    data = torch.utils.data
    stays = issubclass(kind, data.Dataset | data.DataLoader | data.Sampler)
    if not stays or issubclass(kind, torch.nn.Module):
        return ""
    what = with_article(kind.__name__, "A")
    return f"{what} stays on the CPU, where a DataLoader's workers read it: move each batch."
