"""What objects of Python, of the user and of PyTorch hold, and how new parts are put into them."""

from __future__ import annotations

import contextlib
import copy
import sys
from collections import OrderedDict, UserDict, UserList, deque
from dataclasses import is_dataclass
from functools import partial
from types import MemberDescriptorType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from gpu_magic.frameworks.base import Components
from gpu_magic.process.namespace import is_installed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpu_magic.frameworks.target import LogicalDevice

__all__ = ["PLAIN", "class_of", "parts_of", "parts_of_error", "parts_of_torch", "stored_attributes"]

# Types whose objects hold nothing, and which most objects are of.
PLAIN = (str, bytes, int, float, complex, bool, type(None), type)
_MAIN = ("__main__", "__mp_main__")  # modules of notebooks, and of scripts' processes


class _Class(NamedTuple):
    """What is known about a class."""

    is_users: bool  # defined in the notebook, or in a module that is not installed
    is_frozen: bool  # its objects refuse to be changed
    slots: dict[str, Any]


_classes: WeakKeyDictionary[type, _Class] = WeakKeyDictionary()  # a cell that is run again makes new classes


def class_of(cls: type) -> _Class:
    """Return what is known about a class."""
    if (known := _classes.get(cls)) is not None:
        return known
    members = [item for base in reversed(cls.__mro__) for item in vars(base).items()]
    slots = {name: value for name, value in members if type(value) is MemberDescriptorType}
    package = cls.__module__.partition(".")[0]
    path = getattr(sys.modules.get(cls.__module__), "__file__", None)
    # Without a path it is the notebook, or something that is compiled into Python.
    is_users = not is_installed(path) and package != "gpu_magic" if path else package in _MAIN
    of_attrs = getattr(cls.__setattr__, "__name__", "") == "_frozen_setattrs"
    of_dataclass = getattr(getattr(cls, "__dataclass_params__", None), "frozen", False)
    is_frozen = of_attrs or bool(of_dataclass) or issubclass(cls, tuple)
    known = _classes[cls] = _Class(is_users, is_frozen, slots)
    return known


def _put(
    store: Callable[[Any, Any], object], keys: Iterable[Any], old: Sequence[Any], new: Sequence[Any]
) -> None:
    """Store the parts that are new, each at its key."""
    for key, before, value in zip(keys, old, new, strict=False):
        if value is not before:
            store(key, value)


def parts_of(obj: Any) -> Components | None:
    """Return what a container, a dataclass or an object of the user's class holds; None for any other.

    Only types are looked at, and only methods of Python's own classes are called: an object can claim to be
    of another class, and can raise whatever it is asked.
    """
    cls: Any = type(obj)
    for base in (OrderedDict, dict, list, deque):
        if issubclass(cls, base):
            return _container(obj, base)
    if issubclass(cls, tuple):
        items = [*tuple.__iter__(obj), *getattr(obj, "__dict__", {}).values()]
        return Components(items, partial(_new_tuple, obj), in_place=False)
    if issubclass(cls, set):
        return Components([*set.__iter__(obj)], lambda _, new: set.__init__(obj, new))
    if issubclass(cls, frozenset):
        return Components([*frozenset.__iter__(obj)], lambda _, new: cls(new), in_place=False)
    if issubclass(cls, partial):
        inner = [obj.func, obj.args, obj.keywords]
        return Components(inner, lambda _, new: obj.__setstate__((*new, vars(obj))))
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and issubclass(cls, numpy.ndarray) and obj.dtype == object:
        return Components(list(obj.flat), partial(_put, obj.flat.__setitem__, range(obj.size)))
    is_known = is_dataclass(cls) or hasattr(cls, "__attrs_attrs__")
    if is_known or issubclass(cls, SimpleNamespace | UserDict | UserList) or class_of(cls).is_users:
        return stored_attributes(obj)
    return None


def stored_attributes(obj: Any) -> Components:
    """Return the attributes that an object stores. What a property computes is left out."""
    known, held = class_of(type(obj)), dict(getattr(obj, "__dict__", {}))
    for name, slot in known.slots.items():
        with contextlib.suppress(AttributeError):  # it is empty
            held[name] = slot.__get__(obj)
    names = list(held)

    def put(old: Sequence[Any], new: Sequence[Any]) -> Any:
        made = copy.copy(obj) if known.is_frozen else obj

        def store(name: str, value: Any) -> None:  # directly: a __setattr__ of the class could do more
            if name in known.slots:
                known.slots[name].__set__(made, value)
            else:
                made.__dict__[name] = value

        _put(store, names, old, new)
        return made

    return Components(list(held.values()), put, in_place=not known.is_frozen)


def parts_of_error(error: BaseException) -> Components:
    """Return what an error holds: errors that led to it, and the local variables of functions.

    Those of a cell are the user's variables, and not the error's.
    """
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    found = [*error.args, *vars(error).values(), *inner, error.__cause__, error.__context__]
    namespace = vars(sys.modules["__main__"])
    step = error.__traceback__
    while step is not None:
        frame, step = step.tb_frame, step.tb_next
        if frame.f_globals is not namespace or frame.f_code.co_name != "<module>":
            found += dict(frame.f_locals).values()
    return Components(found)


def _container(obj: Any, base: Any) -> Components:
    """Return a container's items, keys that can hold arrays, and the attributes of a subclass."""
    is_dict = issubclass(base, dict)
    keys = [*dict.keys(obj)] if is_dict else [*range(base.__len__(obj))]
    items = [*dict.values(obj)] if is_dict else [*base.__iter__(obj)]
    objects = [at for at, key in enumerate(keys) if not issubclass(type(key), PLAIN)] if is_dict else []
    store = partial(base.__setitem__, obj)

    def put(old: Sequence[Any], new: Sequence[Any]) -> None:
        _put(store, keys, old, new)
        _put(keys.__setitem__, objects, old[len(keys) :], new[len(keys) :])
        if objects and any(key is not before for key, before in zip(keys, dict.keys(obj), strict=True)):
            pairs = [*zip(keys, dict.values(obj), strict=True)]
            base.clear(obj)  # all is written again, so that the order stays
            for key, value in pairs:
                store(key, value)

    attributes = getattr(obj, "__dict__", None)
    return Components([*items, *(keys[at] for at in objects), *([attributes] if attributes else [])], put)


def _new_tuple(obj: Any, _: Sequence[Any], new: Sequence[Any]) -> Any:
    cls, size = type(obj), tuple.__len__(obj)  # the attributes of a subclass stand behind its items
    # The first is what torch.max and os.stat return.
    made = cls(new) if hasattr(cls, "n_sequence_fields") else tuple.__new__(cls, new[:size])
    if attributes := getattr(obj, "__dict__", None):
        vars(made).update(zip(attributes, new[size:], strict=True))
    return made


# PyTorch, if it is imported


def parts_of_torch(obj: Any, to: LogicalDevice | None, stays: set[int]) -> Components | None:
    """Return what an object of PyTorch holds; None for any other object.

    For a move, the ids of what has to stay on the CPU are added to `stays`.
    """
    torch: Any = sys.modules["torch"]
    kind, data = type(obj), torch.utils.data
    if issubclass(kind, torch.Tensor):
        return None if obj.layout == torch.strided or obj.requires_grad else _sparse(torch, obj)
    if issubclass(kind, torch.nn.utils.rnn.PackedSequence):
        inner = [obj.data, obj.sorted_indices, obj.unsorted_indices]  # the batch sizes are read by the CPU
        return Components(inner, lambda _, new: kind(new[0], obj.batch_sizes, *new[1:]), in_place=False)
    if issubclass(kind, torch.optim.Optimizer) and to is not None and to.kind != "cpu":
        # As `Optimizer.load_state_dict` does (PyTorch 2.13): where neither capturable nor fused is set, Adam
        # and the like refuse a step count that is not on the CPU; nor do learning rates move.
        for group in obj.param_groups:
            if not (group.get("capturable") or group.get("fused")):
                states = [obj.state[one] for one in group["params"] if one in obj.state]
                stays.update(id(state.get("step")) for state in states if isinstance(state, dict))
                stays.update(id(value) for name, value in group.items() if name != "params")
    modules, of_distributions = torch.nn.Module | torch.optim.Optimizer, torch.distributions
    if issubclass(kind, modules | of_distributions.Distribution | of_distributions.Transform):
        return stored_attributes(obj)
    if issubclass(kind, data.Dataset | data.DataLoader | data.Sampler):
        return Components([*vars(obj).values()])  # it stays: its workers can't use a GPU's memory
    return None


def _sparse(torch: Any, obj: Any) -> Components | None:
    from gpu_magic.frameworks.pytorch import sparse_parts  # PyTorch is there

    if obj.layout == torch.sparse_coo:
        make = partial(torch.sparse_coo_tensor, is_coalesced=obj.is_coalesced())
    else:
        make = partial(torch.sparse_compressed_tensor, layout=obj.layout)
    inner, size = sparse_parts(obj), obj.size()
    made = lambda _, new: make(*new, size, check_invariants=False)  # noqa: E731
    return Components(inner, made, in_place=False) if inner else None
