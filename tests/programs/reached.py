"""What values lead to, for programs that compare it before and after a move. Nothing of gpu_magic is asked."""

import functools
from collections import deque
from types import FunctionType, ModuleType

import torch


def held(one):
    """Return what an object holds: items, attributes, a gradient."""
    parts, slots = [], getattr(type(one), "__slots__", ())
    if isinstance(one, type | ModuleType | FunctionType):
        return []
    if isinstance(one, dict):
        parts = [*one.keys(), *one.values()]
    elif isinstance(one, list | tuple | set | frozenset | deque):
        parts = list(one)
    elif isinstance(one, functools.partial):
        parts = [*one.args, *one.keywords.values()]
    elif isinstance(one, torch.Tensor) and one.is_leaf:
        parts = [one.grad]
    parts += [getattr(one, name) for name in slots if hasattr(one, name)]
    return [*parts, *getattr(one, "__dict__", {}).values()]


def reach(root):
    """Return all objects that a value leads to, and itself."""
    seen, pending = {}, [root]
    while pending:
        one = pending.pop()
        if id(one) not in seen:
            seen[id(one)] = one
            pending += held(one)
    return list(seen.values())


def tensors_of(root):
    return [one for one in reach(root) if isinstance(one, torch.Tensor)]


def devices_of(root):
    return sorted({str(one.device) for one in tensors_of(root)})


def storage(tensor):
    return tensor.untyped_storage()._cdata


def look(root):
    """Return all of a value that a move can change: which objects hold which, and where tensors are."""
    parts = [(id(one), [id(part) for part in held(one)]) for one in reach(root)]
    return parts, [(str(t.device), storage(t), t.stride(), t.tolist()) for t in tensors_of(root)]


def form(root):
    """Return what a move must not change: what ties objects together, by their numbers, and what tensors are."""
    objects = [one for one in reach(root) if not is_plain(one)]
    numbers = {id(one): number for number, one in enumerate(objects)}
    storages, found = {}, []
    for one in objects:
        facts = []
        if isinstance(one, torch.Tensor):
            number = storages.setdefault(storage(one), len(storages))
            facts = [one.dtype, one.stride(), one.requires_grad, one.is_leaf, one.tolist(), number]
        found.append([type(one), [numbers.get(id(part), part) for part in held(one)], *facts])
    return found


def is_plain(one):
    return isinstance(one, int | str | type(None)) or one == ()  # these Python shares as it likes
