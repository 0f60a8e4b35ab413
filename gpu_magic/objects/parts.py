"""The parts of objects of Python, of the user and of PyTorch, and how to replace the parts."""

from __future__ import annotations

import contextlib
import copy
import gc
import sys
from collections import ChainMap, OrderedDict, UserDict, UserList, deque
from collections.abc import ItemsView, KeysView, ValuesView
from dataclasses import is_dataclass
from functools import cache, partial
from types import (
    AsyncGeneratorType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    SimpleNamespace,
)
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from gpu_magic.frameworks.base import Components
from gpu_magic.frameworks.private import MODULE_TABLES
from gpu_magic.objects.namespace import is_installed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import FrameType

    from gpu_magic.frameworks.target import LogicalDevice

__all__ = [
    "PLAIN",
    "attributes_of_tensor",
    "class_of",
    "has_own_tables",
    "is_holder",
    "is_of_workers",
    "keeps",
    "kept_by",
    "parts_of",
    "parts_of_error",
    "parts_of_module",
    "parts_of_tensor",
    "parts_of_torch",
    "stored_attributes",
]

# Types whose objects hold no other objects. Most objects are of these types.
PLAIN = (str, bytes, int, float, complex, bool, type(None), type)
_MOVES = {"to", "_apply", "cuda", "cpu", "xpu"}  # the methods that move a module
_MAIN = ("__main__", "__mp_main__")  # a notebook or script, and the same in a child process
# What waits for a value, or has one: results and errors of tasks and pools, queues, and caches of functions.
_HOLDERS = {
    *("_asyncio.Future", "asyncio.futures.Future", "concurrent.futures._base.Future"),
    *("multiprocessing.pool.ApplyResult", "queue.Queue", "_queue.SimpleQueue", "asyncio.queues.Queue"),
    *("functools._lru_cache_wrapper", "_thread._local"),
}
_FRAMES: Any = GeneratorType | CoroutineType | AsyncGeneratorType


class _Class(NamedTuple):
    """The properties of a class."""

    is_user_code: bool  # defined in the notebook, or in a module that is not installed
    is_frozen: bool  # its objects are immutable
    slots: dict[str, Any]


_classes: WeakKeyDictionary[type, _Class] = WeakKeyDictionary()  # a cell that runs again creates new classes


def class_of(cls: type) -> _Class:
    """Return the properties of a class."""
    if (known := _classes.get(cls)) is not None:
        return known
    members = [item for base in reversed(cls.__mro__) for item in vars(base).items()]
    slots = {name: value for name, value in members if type(value) is MemberDescriptorType}
    package = cls.__module__.partition(".")[0]
    path = getattr(sys.modules.get(cls.__module__), "__file__", None)
    # Without a path, the module is the notebook, or built into Python.
    is_user_code = not is_installed(path) and package != "gpu_magic" if path else package in _MAIN
    of_attrs = getattr(cls.__setattr__, "__name__", "") == "_frozen_setattrs"
    of_dataclass = getattr(getattr(cls, "__dataclass_params__", None), "frozen", False)
    is_frozen = of_attrs or bool(of_dataclass) or issubclass(cls, tuple)
    known = _classes[cls] = _Class(is_user_code, is_frozen, slots)
    return known


def _put(
    store: Callable[[Any, Any], object], keys: Iterable[Any], old: Sequence[Any], new: Sequence[Any]
) -> None:
    """Store each part that has changed at its key."""
    for key, before, value in zip(keys, old, new, strict=False):
        if value is not before:
            store(key, value)


def parts_of(obj: Any) -> Components | None:
    """Return the parts of a container, a dataclass or an object of a user's class. None for another object.

    This reads only types, and calls only methods of Python's own classes, because an object can fake its
    class, and its methods can raise any error.
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
    if issubclass(cls, partial | MappingProxyType | MethodType):
        return _wrapped(obj)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and issubclass(cls, numpy.ndarray) and obj.dtype == object:
        return Components(list(obj.flat), partial(_put, obj.flat.__setitem__, range(obj.size)))
    is_known = is_dataclass(cls) or hasattr(cls, "__attrs_attrs__")
    if (
        is_known
        or issubclass(cls, SimpleNamespace | UserDict | UserList | ChainMap)
        or class_of(cls).is_user_code
    ):
        return stored_attributes(obj)
    return None


def _wrapped(obj: Any) -> Components:
    """Return the parts of an object that stands for a call of another object, or for a dictionary."""
    cls: Any = type(obj)
    if issubclass(cls, partial):
        inner = [obj.func, obj.args, obj.keywords]
        return Components(inner, lambda _, new: obj.__setstate__((*new, vars(obj))))
    if cls is MethodType:
        return Components([obj.__self__], lambda _, new: cls(obj.__func__, new[0]), in_place=False)
    return Components(gc.get_referents(obj), lambda _, new: cls(new[0]), in_place=False)


def is_holder(cls: type) -> bool:
    """Return whether objects of a type hold values for other code: tasks, queues, caches of functions."""
    return any(f"{base.__module__}.{base.__name__}" in _HOLDERS for base in cls.__mro__)


def keeps(cls: type) -> bool:
    """Return whether objects of a type keep others for good: functions, iterators, and holders."""
    if issubclass(cls, FunctionType | _FRAMES) or is_holder(cls):
        return True
    is_view = issubclass(cls, KeysView | ValuesView | ItemsView) or hasattr(cls, "__next__")
    return is_view and cls.__module__ in ("builtins", "itertools")


def kept_by(obj: Any) -> Components:
    """Return what a user's function, a generator, a coroutine or a holder such as an iterator keeps."""
    if isinstance(obj, _FRAMES):
        kind = {GeneratorType: "gi", CoroutineType: "cr"}.get(type(obj), "ag")
        inner = getattr(obj, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")  # which it waits for
        return Components([*_locals(getattr(obj, f"{kind}_frame")), inner])
    if not isinstance(obj, FunctionType):
        return Components(gc.get_referents(obj))  # without going on
    found = [*(obj.__defaults__ or ()), *(obj.__kwdefaults__ or {}).values()]
    for cell in obj.__closure__ or ():
        with contextlib.suppress(ValueError):  # not set yet
            found.append(cell.cell_contents)
    is_ours = (obj.__module__ or "").partition(".")[0] == "gpu_magic"
    return Components([] if found and (is_ours or is_installed(obj.__code__.co_filename)) else found)


def stored_attributes(obj: Any) -> Components:
    """Return the attributes that an object stores, without properties."""
    known, held = class_of(type(obj)), dict(getattr(obj, "__dict__", {}))
    for name, slot in known.slots.items():
        with contextlib.suppress(AttributeError):  # an empty slot
            held[name] = slot.__get__(obj)
    names = list(held)

    def put(old: Sequence[Any], new: Sequence[Any]) -> Any:
        made = copy.copy(obj) if known.is_frozen else obj

        def store(name: str, value: Any) -> None:  # directly, because a __setattr__ can have side effects
            if name in known.slots:
                known.slots[name].__set__(made, value)
            else:
                made.__dict__[name] = value

        _put(store, names, old, new)
        return made

    return Components(list(held.values()), put, in_place=not known.is_frozen)


def parts_of_error(error: BaseException) -> Components:
    """Return the parts of an error: the errors that led to it, and the local variables of functions.

    The variables of a cell are left out, because they are the user's variables.
    """
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    found = [*error.args, *vars(error).values(), *inner, error.__cause__, error.__context__]
    step = error.__traceback__
    while step is not None:
        found += _locals(step.tb_frame)
        step = step.tb_next
    return Components(found)


def _locals(frame: FrameType | None) -> Iterable[Any]:
    """Return the local variables of a function that runs or waits. Empty for a cell, or after the end."""
    # Not by the code's name: from 7.34 to 8.8, IPython calls a cell `<cell line: 0>`.
    if frame is None or frame.f_locals is vars(sys.modules["__main__"]):
        return ()
    return dict(frame.f_locals).values()


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
            base.clear(obj)  # write all items again to keep the order
            for key, value in pairs:
                store(key, value)

    attributes = getattr(obj, "__dict__", None)
    return Components([*items, *(keys[at] for at in objects), *([attributes] if attributes else [])], put)


def _new_tuple(obj: Any, _: Sequence[Any], new: Sequence[Any]) -> Any:
    cls, size = type(obj), tuple.__len__(obj)  # a subclass's attributes come after its items
    # The results of torch.max and os.stat have `n_sequence_fields`.
    made = cls(new) if hasattr(cls, "n_sequence_fields") else tuple.__new__(cls, new[:size])
    if attributes := getattr(obj, "__dict__", None):
        vars(made).update(zip(attributes, new[size:], strict=True))
    return made


# PyTorch, if it is imported


def parts_of_torch(obj: Any, to: LogicalDevice | None, stays: set[int]) -> Components | None:
    """Return the parts of an object of PyTorch. None for another object.

    For a move, this adds the ids of objects that have to stay on the CPU to `stays`.
    """
    torch: Any = sys.modules["torch"]
    kind = type(obj)
    if issubclass(kind, torch.nn.utils.rnn.PackedSequence):
        inner = [obj.data, obj.sorted_indices, obj.unsorted_indices]  # the CPU reads the batch sizes
        return Components(inner, lambda _, new: kind(new[0], obj.batch_sizes, *new[1:]), in_place=False)
    if issubclass(kind, torch.optim.Optimizer) and to is not None and to.kind != "cpu":
        # As in `Optimizer.load_state_dict` (PyTorch 2.13). If neither capturable nor fused is set, optimizers
        # such as Adam refuse a step count that is not on the CPU. Learning rates and the other options also
        # stay. What an optimizer computes in its groups moves.
        options = getattr(obj, "defaults", {}).keys()
        for group in obj.param_groups:
            if not (group.get("capturable") or group.get("fused")):
                states = [obj.state[one] for one in group["params"] if one in obj.state]
                stays.update(id(state.get("step")) for state in states if isinstance(state, dict))
                stays.update(id(group[name]) for name in group.keys() & options)
        # The driver moves the paged states of bitsandbytes, whose own `Optimizer8bit.to_gpu` leaves them.
        found = [one for state in obj.state.values() if isinstance(state, dict) for one in state.values()]
        stays.update(id(one) for one in found if getattr(one, "is_paged", False))
    modules, of_distributions = torch.nn.Module | torch.optim.Optimizer, torch.distributions
    if issubclass(kind, modules | of_distributions.Distribution | of_distributions.Transform):
        return stored_attributes(obj)
    if is_of_workers(kind):
        return Components([*vars(obj).values()])  # stays, because its workers cannot use GPU memory
    return None


def is_of_workers(kind: type) -> bool:
    """Return whether objects of a type are read by a DataLoader's workers."""
    data: Any = sys.modules.get("torch.utils.data")
    return data is not None and issubclass(kind, data.Dataset | data.DataLoader | data.Sampler)


def has_own_tables(cls: type) -> bool:
    """Return whether a class is a module of PyTorch's own, which moves as any other module does.

    Its tensors are in the tables of `nn.Module`. If a class overrides how it moves, or is of another package,
    the walker looks at all its attributes.
    """
    module: Any = sys.modules["torch"].nn.Module
    if not issubclass(cls, module) or class_of(cls).slots:
        return False
    bases = cls.__mro__[: cls.__mro__.index(module)]
    return all(
        base.__module__.partition(".")[0] == "torch" and vars(base).keys().isdisjoint(_MOVES)
        for base in bases
    )


@cache
def _attributes_of_all_modules() -> tuple[frozenset[str], list[str]]:
    """Return the attributes that every module has, and those of them that are empty without hooks."""
    bare = vars(sys.modules["torch"].nn.Module())
    empty = [name for name, one in bare.items() if isinstance(one, OrderedDict | set)]
    return frozenset(bare), empty


def parts_of_module(module: Any) -> Components:
    """Return the parameters, buffers and children of a module, and attributes that can hold more."""
    held = vars(module)
    parameters, buffers, modules = map(held.get, MODULE_TABLES)
    if not type(parameters) is type(buffers) is type(modules) is dict:
        return stored_attributes(module)
    known, hooks = _attributes_of_all_modules()
    children = [
        *parameters.values(),
        *buffers.values(),
        *modules.values(),
        *map(held.get, held.keys() - known),
    ]
    if any(map(held.get, hooks)):
        children += map(held.get, hooks)
    return Components(children, partial(_put_in_module, module))


def _put_in_module(module: Any, old: Sequence[Any], new: Sequence[Any]) -> None:
    held = vars(module)
    for before, value in zip(old, new, strict=True):
        if value is not before:
            for mapping in (*map(held.get, MODULE_TABLES), held):
                for name in [name for name, one in mapping.items() if one is before]:
                    mapping[name] = value


def attributes_of_tensor(obj: Any) -> Components:
    """Return what a tensor of a subclass keeps as attributes: the state of a quantized weight, for example.

    Modules are left out, because a weight can refer to the layer that has it.
    """
    held = stored_attributes(obj).children
    return Components([one for one in held if not isinstance(one, sys.modules["torch"].nn.Module)])


def parts_of_tensor(obj: Any) -> Components | None:
    """Return the dense tensors that make up a sparse tensor. None for another tensor."""
    torch: Any = sys.modules["torch"]
    if obj.layout is torch.strided or obj.requires_grad:
        return None
    from gpu_magic.frameworks.torch_objects import sparse_parts  # only for PyTorch

    if obj.layout == torch.sparse_coo:
        make = partial(torch.sparse_coo_tensor, is_coalesced=obj.is_coalesced())
    else:
        make = partial(torch.sparse_compressed_tensor, layout=obj.layout)
    inner, size = sparse_parts(obj), obj.size()
    made = lambda _, new: make(*new, size, check_invariants=False)  # noqa: E731
    return Components(inner, made, in_place=False) if inner else None
