"""The plan of a move: the arrays that variables hold, and the replacements of objects."""

from __future__ import annotations

import sys
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks import get, imported
from gpu_magic.frameworks.base import Components
from gpu_magic.move.copies import Copies, Variable
from gpu_magic.objects.parts import is_of_workers
from gpu_magic.objects.physical import LazySnapshot, described, free_bytes
from gpu_magic.objects.walk import Walker, collection_paused
from gpu_magic.objects.where import arrays_in, holdings_in, holdings_of, is_same_device
from gpu_magic.text import listed, printable, size_text, with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from gpu_magic.frameworks.base import Framework, Holding
    from gpu_magic.frameworks.target import LogicalDevice
    from gpu_magic.objects.walk import Budget

    # By framework, arrays, and objects that move themselves, each with its arrays.
    _Found = dict[Framework, tuple[list[Any], list[tuple[Any, Sequence[Any]]]]]

__all__ = ["Moving", "Plan", "UnusableDeviceError"]

_FROM_NUMPY = ("torch", "jax", "cupy")  # the frameworks that NumPy arrays can be converted to
_NUMERIC = "biufc"  # the NumPy dtypes that frameworks have, by `dtype.kind`


class UnusableDeviceError(PlacementError):
    """The requested device does not exist, or a framework cannot use it."""


class Moving(NamedTuple):
    """An object that a plan may move."""

    value: Any  # an array, an object that moves itself, or one that remembers its device
    framework: Framework | None  # None: NumPy
    arrays: Sequence[Any]  # those that move with it: only itself if it is an array


class Plan:
    """A move of variables to a device, all or none. Before `put`, it only makes copies.

    `converts` is the module of the framework to convert NumPy arrays to. None: they stay. If `is_dry`, the
    plan does not start that framework. With `only`, the plan moves just the objects for which that is true:
    `moving`. An object that cannot move is then no error.
    """

    def __init__(
        self,
        device: LogicalDevice,
        converts: str | None = None,
        machine: LazySnapshot | None = None,
        *,
        is_dry: bool = False,
        only: Callable[[Moving], bool] | None = None,
    ) -> None:
        can_convert = (one for one in imported() if one.module in _FROM_NUMPY)
        self._converts = next((one for one in can_convert if one.module == converts), None)
        if converts is not None and self._converts is None:
            names = ", ".join(_FROM_NUMPY)
            raise PlacementError(f"--numpy {converts} is not possible. First import one of {names}.")
        self.device = self.requested = device  # `device` gets the type of the framework's GPUs later
        self.machine = machine or LazySnapshot()
        self._is_dry, self._only = is_dry, only
        self.moving: list[Moving] = []  # with `only`
        self._inner: dict[int, bool] = {}  # whether the arrays of sparse tensors move, by their ids
        self.variables: list[Variable] = []
        self.transfers: dict[Framework, Copies] = {}
        self.undo = ExitStack()  # undoes each step
        self._arrays: dict[int, tuple[Any, Framework | None]] = {}  # all that can move, by id
        # `only` names exactly what moves, so no optimizer keeps anything.
        self._walker = Walker(device if only is None else None, moves=True)
        self._found: list[_Found] = []  # in each variable
        self._first: dict[int, str] = {}  # the variable in which an object was found, by the object's id
        self._components: dict[int, Components] = {}  # of an object, by its id
        self._data: set[int] = set()  # ids of another package's objects, which can remember their device
        self._without_arrays: set[int] = set()  # ids of objects that lead to none
        self._new: dict[int, Any] = {}  # the known replacements, by the object's id
        self.empty: set[str] = set()  # variables in which the search for arrays found nothing at all
        # The variable, the object, whether it is the variable's value, and a reason or none.
        self.unmoved_objects: list[tuple[str, Any, bool, str]] = []
        self.unmovable_objects: list[tuple[str, Any, str]] = []  # with `only`: those that would be an error

    def add(self, name: str, value: Any, search: Budget | None = None) -> Variable | None:
        """Add a variable. If that raises PlacementError, the plan is as before.

        `search` is a budget to find a first array. If there is none, return None, and leave the variable out.
        """
        variable = Variable(name, value)
        visited = len(self._walker.visited)
        lists: list[list[Any]] = [self.unmoved_objects, self.unmovable_objects, self.moving]
        *_, moving = lengths = list(map(len, lists))
        try:
            with collection_paused():
                found = self._find(variable, search)
                if search is not None and not (variable.has_arrays or variable.shared_with):
                    self._forget(visited)
                    del self.moving[moving:]
                    return None
                self._share_out(found, variable)
        except PlacementError:
            self._forget(visited)
            for noted, length in zip(lists, lengths, strict=True):
                del noted[length:]
            raise
        self.variables.append(variable)
        self._found.append(found)
        return variable

    def _find(self, variable: Variable, search: Budget | None) -> _Found:  # noqa: C901, PLR0912 - a branch for each kind
        """Return the arrays, and the objects that move themselves, that no earlier variable holds."""
        walker, name = self._walker, variable.name
        objects: list[tuple[Framework, Any, Sequence[Any]]] = []
        shared, known, is_empty = list[int](), len(walker.arrays), True
        walker.budget = search
        converts = self._converts is not None  # without `self` below, so that no cycle keeps arrays
        walker.searched_for = lambda framework: framework is not None or converts
        with nullcontext() if search is None else search.variable(name):
            for obj, node, components in walker.walk([variable.value]):
                key = id(obj)
                if node.kind == "visited":
                    if self._first.get(key, name) != name:
                        shared.append(key)
                    continue
                self._first[key] = name
                if components is not None:
                    self._components[key] = components
                    is_empty = is_empty and not issubclass(type(obj), BaseException)
                if node.kind == "data":
                    if self._only is None or self._moves_device_of(obj, components):
                        self._data.add(key)
                elif node.kind == "composite":
                    if self._only is not None and components is not None and _is_sparse(obj):
                        moves = self._takes(obj, get("torch"), components.children)
                        self._inner |= dict.fromkeys(map(id, components.children), moves)
                elif node.kind == "unmoved":
                    self.unmoved_objects.append((name, obj, obj is variable.value, node.reason))
                    is_empty = False
                elif node.kind == "self-moving" and node.framework is not None:
                    if not self._takes(obj, node.framework, node.arrays):
                        continue
                    self._components[key] = Components(node.arrays)
                    self._arrays.update((id(one), (one, node.framework)) for one in node.arrays)
                    objects.append((node.framework, obj, node.arrays))
                elif node.kind == "unmovable":
                    if self._only is not None:
                        self.unmovable_objects.append((name, obj, node.reason))
                        continue
                    held = holdings_of([obj])
                    if not held or self._elsewhere(held):
                        bound = node.framework and node.framework.bound(obj, name, variable.value)
                        raise PlacementError(bound or node.reason)
                    variable.has_arrays = True
        found = self._by_framework(variable, [*filter(self._is_wanted, walker.arrays[known:])])
        for framework, obj, arrays in objects:
            found.setdefault(framework, ([], []))[1].append((obj, arrays))
        variable.has_arrays = variable.has_arrays or bool(found)
        variable.shared_with = "" if variable.has_arrays else self._sharing(shared)
        if search is not None and is_empty and not (variable.has_arrays or variable.numpy):
            self.empty.add(name)
        return found

    def _takes(self, obj: Any, framework: Framework | None, arrays: Sequence[Any]) -> bool:
        """Return whether an object moves. With `only`, note it if so."""
        if self._only is None:
            return True
        if is_wanted := self._only(one := Moving(obj, framework, arrays)):
            self.moving.append(one)
        return is_wanted

    def _is_wanted(self, pair: tuple[Any, Framework | None]) -> bool:
        array, framework = pair
        decided = self._inner.get(id(array))
        return self._takes(array, framework, [array]) if decided is None else decided

    def _moves_device_of(self, obj: Any, components: Components | None) -> bool:
        """Return whether the device moves that an object of another package remembers."""
        children = () if components is None or "torch" not in sys.modules else components.children
        devices = [one for one in children if type(one) is sys.modules["torch"].device]
        return bool(devices) and self._takes(obj, get("torch"), devices)

    def _by_framework(self, variable: Variable, pairs: Sequence[tuple[Any, Framework | None]]) -> _Found:
        """Return the arrays to move by the framework that moves them. NumPy arrays come without one."""
        keys = [id(obj) for obj, _ in pairs]
        self._first |= dict.fromkeys(keys, variable.name)
        self._arrays.update(zip(keys, pairs, strict=True))
        owners = dict.fromkeys(framework for _, framework in pairs if framework is not None)
        found: _Found = {
            owner: ([obj for obj, framework in pairs if framework is owner], []) for owner in owners
        }
        for array in [obj for obj, framework in pairs if framework is None]:
            if self._converts is not None and _is_convertible(array):
                found.setdefault(self._converts, ([], []))[0].append(array)
                continue
            del self._arrays[id(array)]
            if array.dtype != object:
                variable.numpy.append(array)
        return found

    def _sharing(self, keys: Iterable[int]) -> str:
        """Return the variable with the arrays that objects of earlier variables lead to. Empty: no arrays."""
        for first in keys:
            pending = [first]
            while pending:
                key = pending.pop()
                if key in self._arrays:
                    return self._first[first]
                if key not in self._without_arrays and key in self._components:
                    self._without_arrays.add(key)
                    pending += map(id, self._components[key].children)
        return ""

    def _forget(self, count: int) -> None:
        """Forget all objects but the first ones that were visited."""
        visited = self._walker.visited
        while len(visited) > count:
            key, _ = visited.popitem()
            for known in (self._components, self._first, self._arrays):
                known.pop(key, None)
            self._data.discard(key)
            self._without_arrays.discard(key)

    def _share_out(self, found: _Found, variable: Variable) -> None:
        """Add what was found to the `Copies` of each framework."""
        transfers = {framework: self._transfer(framework) for framework in found}
        try:
            for framework, (arrays, objects) in found.items():
                transfers[framework].add(arrays, variable)
                for obj, inner in objects:
                    transfers[framework].add_object(obj, inner, variable)
        except PlacementError:
            self.transfers.clear()  # and begin again, without this variable
            for earlier in self._found:
                self._share_out(earlier, Variable("", None))
            raise

    def _transfer(self, framework: Framework) -> Copies:
        """Return the `Copies` of a framework, after checking that the framework can use the device."""
        if framework not in self.transfers:
            if self._can_ask(framework) and (why := framework.problem(self.requested)):
                raise UnusableDeviceError(f"{self.requested} cannot be used: {why}.")
            if framework.module == "torch":
                from gpu_magic.move.pytorch import Tensors  # only for PyTorch

                transfer: Copies = Tensors(framework, self.requested, self.undo)
            else:
                transfer = Copies(framework, self.requested)
            if not self.transfers:
                self.device = framework.resolved(self.device)
            self.transfers[framework] = transfer
        return self.transfers[framework]

    def _can_ask(self, framework: Framework) -> bool:
        """Return whether the plan may ask a framework for its devices. A dry run must not start one."""
        return not self._is_dry or framework is not self._converts or framework.is_started() is True

    def check(self) -> None:
        """Raise PlacementError if a variable has only NumPy arrays, or if no variable has arrays to move."""
        for one in self.variables if self.device.kind == "gpu" else ():
            if one.numpy and not one.has_arrays and not one.shared_with:
                what, dtypes = one.name or "it", listed(sorted({str(array.dtype) for array in one.numpy}))
                if self._converts is not None:
                    raise PlacementError(f"{what} is NumPy's, but no framework has arrays of {dtypes}.")
                raise PlacementError(
                    f"{what} is a NumPy array, which has no device. To convert it to a tensor on the GPU: "
                    "--numpy torch (in Python: numpy='torch'), or jax or cupy."
                )
        if any(variable.has_arrays for variable in self.variables):
            return
        if unmoved := self.unmoved(with_reason=True):
            raise PlacementError(unmoved[0])
        names = (f"{variable.name or 'it'} ({variable.type_text})" for variable in self.variables)
        what = listed(names, "the variables here")
        raise PlacementError(f"Nothing to move in {what}: no framework's arrays.")

    @property
    def nbytes(self) -> int:
        """The bytes that the move allocates on the device."""
        return sum(variable.nbytes for variable in self.variables)

    @property
    def least(self) -> int:
        """The bytes that the move needs at least: a weight that is quantized on its way needs fewer."""
        return self.nbytes - sum(transfer.shrinkable for transfer in self.transfers.values())

    @property
    def free(self) -> int | None:
        """The free bytes on the device: the least that a framework can allocate. None: unknown."""
        asked = filter(self._can_ask, self.transfers)
        known = [free for one in asked if (free := one.free_bytes(self.requested)) is not None]
        return min(known) if known else free_bytes(self.device, self.machine)

    @property
    def device_text(self) -> str:
        """The device with its physical GPU."""
        return described(self.device, self.machine)

    def memory(self) -> set[Hashable]:
        """Return the keys of the memory to move, as in `holdings_of`."""
        return set(self._elsewhere(holdings_in(self._arrays.values())))

    def moved(self) -> set[Hashable]:
        """Return the keys of the memory of arrays that are on the device and still the same objects."""
        held = holdings_in(pair for key, pair in self._arrays.items() if key not in self._new)
        return held.keys() - self._elsewhere(held).keys()

    def _elsewhere(self, held: dict[Hashable, Holding]) -> dict[Hashable, Holding]:
        return {key: one for key, one in held.items() if not is_same_device(one.device, self.requested)}

    # Replacements

    def put(self) -> None:
        """Put the copies in all objects that hold the arrays. Each step can be undone."""
        for transfer in self.transfers.values():
            transfer.put()
            self._new |= transfer.new
        for key, components in self._components.items() if self._new else ():
            if components.in_place and components.put is not None:
                old, new = components.children, self._contents(key)
                if any(one is not other for one, other in zip(old, new, strict=True)):
                    self.undo.callback(components.put, new, old)
                    components.put(old, new)
        for transfer in self.transfers.values():
            objects = (self._walker.visited[key] for key in self._components)
            transfer.update_modules(objects, self._has_moved_whole if self._only else lambda _: True)

    def _has_moved_whole(self, obj: Any) -> bool:
        """Return whether arrays of an object have moved, and all are there. Then its `to` moves nothing."""
        arrays, moved = arrays_in([obj]), self._arrays.keys() | set(map(id, self._new.values()))
        return any(id(array) in moved for array, _ in arrays) and not self._elsewhere(holdings_in(arrays))

    def now(self, obj: Any) -> Any:
        """Return the replacement of an object, or the object itself. An immutable object is built again."""
        pending = [obj] if self._must_build(obj) else []
        begun = set[int]()
        while pending:  # without recursion, because tuples can be nested deeply
            key = id(pending[-1])
            components = self._components[key]
            if inner := [one for one in components.children if self._must_build(one)]:
                if key in begun:
                    name = with_article(type(pending[-1]).__name__, "A")
                    raise PlacementError(
                        f"{name} that cannot change holds itself, so it cannot be built again."
                    )
                begun.add(key)
                pending += inner
                continue
            one = pending.pop()
            if self._must_build(one) and components.put is not None:
                old, new = components.children, self._contents(key)
                is_same = all(one is other for one, other in zip(old, new, strict=True))
                self._new[key] = one if is_same else components.put(old, new)
        return self._new.get(id(obj), obj)

    def _must_build(self, obj: Any) -> bool:
        """Return whether an object is immutable and has not been built again."""
        key = id(obj)
        components = self._components.get(key)
        is_fixed = components is not None and not components.in_place and components.put is not None
        return is_fixed and key not in self._new

    def _contents(self, key: int) -> list[Any]:
        """Return the new children of an object. In another package's data, also replace a torch.device."""
        stays = self._walker.stays
        new = [one if id(one) in stays else self.now(one) for one in self._components[key].children]
        torch = get("torch") if key in self._data and "torch" in sys.modules else None
        kind = None if torch is None else sys.modules["torch"].device
        return [torch.own_device(self.requested) if torch and type(one) is kind else one for one in new]

    # Unmoved objects

    def unmoved(self, *, with_reason: bool = False) -> list[str]:
        """Return a sentence for each object that cannot move. `with_reason`: also for those meant to stay."""
        objects = [one for one in self.unmoved_objects if with_reason or not one[-1]]
        moved, found = self.memory() if objects else set(), []
        for name, obj, is_value, reason in objects:
            walker = Walker()
            for _ in walker.walk([obj]):
                pass
            elsewhere = self._elsewhere(holdings_in(walker.arrays))
            data = {} if reason else holdings_of(o for o in walker.visited.values() if is_of_workers(type(o)))
            rest = [one for key, one in elsewhere.items() if key not in moved and key not in data]
            if not rest and with_reason and data.keys() & elsewhere.keys():
                found.append(f"{name or 'it'}: data of a DataLoader stays on the CPU. Move each batch.")
            if rest:
                devices = listed(sorted({str(one.device) for one in rest}))
                where = f"({size_text(sum(one.nbytes for one in rest))} on {devices})"
                package = type(obj).__module__.partition(".")[0]
                of_package = "" if package == "builtins" else f" of {package}"
                kind = with_article(f"{type(obj).__name__}{of_package}")
                whole = f"{name or 'it'}: {kind} cannot be moved as a whole {where}. "
                text = f"{reason.removesuffix('.')} {where}." if reason else ""
                found.append(printable(text or f"{whole}{self._instead(name if is_value else '', obj)}"))
        return found

    def _instead(self, name: str, obj: Any) -> str:
        """Return what to do with an object that cannot be moved as a whole: move the models of a variable."""
        module = sys.modules["torch"].nn.Module if "torch" in sys.modules else ()
        held = getattr(obj, "__dict__", {}) if name else {}
        paths: dict[int, str] = {}
        for key, one in held.items():
            if isinstance(one, module):
                paths.setdefault(id(one), f"{name}.{key}")
        if not paths:
            return "Create it again in a cell with %%on_gpu."
        models, device = " ".join(paths.values()), self.requested
        return f"Move its models: %to_{device.kind} {models}" + f" --device {device.index}" * (
            device.kind == "gpu"
        )


def _is_sparse(obj: Any) -> bool:
    """Return whether an object is a sparse tensor, which the walker takes apart."""
    torch = sys.modules.get("torch")
    return torch is not None and issubclass(type(obj), torch.Tensor)


def _is_convertible(array: Any) -> bool:
    """Return whether an array is numeric and of no subclass, whose mask or units would be lost."""
    numpy: Any = sys.modules["numpy"]
    return type(array) in (numpy.ndarray, numpy.memmap) and array.dtype.kind in _NUMERIC
