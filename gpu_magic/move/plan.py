"""The plan of a move: the arrays that variables hold, and the replacements of objects."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks import get, imported
from gpu_magic.move.copies import Copies, Variable
from gpu_magic.objects.memory import holdings_of, is_same_device
from gpu_magic.objects.walk import Budget, Walker, collection_paused
from gpu_magic.process.physical import LazySnapshot, described, free_bytes
from gpu_magic.text import listed, printable, size_text, with_article

if TYPE_CHECKING:
    from collections.abc import Hashable

    from gpu_magic.frameworks.base import Components, Framework, Holding
    from gpu_magic.frameworks.target import LogicalDevice

__all__ = ["Plan", "UnusableDeviceError"]

_FROM_NUMPY = ("torch", "jax", "cupy")  # the frameworks that NumPy arrays can be converted to
_NUMERIC = "biufc"  # the NumPy dtypes that frameworks have, by `dtype.kind`


class UnusableDeviceError(PlacementError):
    """The requested device does not exist, or a framework cannot use it."""


class Plan:
    """A move of variables to a device, all or none. Before `put`, it only makes copies.

    `converts` is the module of the framework to convert NumPy arrays to. None: they stay. If `is_dry`, the
    plan does not start that framework. Without a `budget`, the plan searches all objects.
    """

    def __init__(
        self,
        device: LogicalDevice,
        converts: str | None = None,
        machine: LazySnapshot | None = None,
        *,
        is_dry: bool = False,
        budget: Budget | None = None,
    ) -> None:
        can_convert = (one for one in imported() if one.module in _FROM_NUMPY)
        self._converts = next((one for one in can_convert if one.module == converts), None)
        if converts is not None and self._converts is None:
            names = ", ".join(_FROM_NUMPY)
            raise PlacementError(f"--numpy {converts} is not possible. First import one of {names}.")
        self.device = self.requested = device  # `device` gets the type of the framework's GPUs later
        self._machine = machine or LazySnapshot()
        self._is_dry = is_dry
        self.variables: list[Variable] = []
        self.arrays: dict[int, Any] = {}  # all that can move, by id
        self.transfers: dict[Framework, Copies] = {}
        self.undo = ExitStack()  # undoes each step
        self._walker = Walker(device, budget)
        self._first: dict[int, str] = {}  # the variable in which an object was found, by the object's id
        self._components: dict[int, Components] = {}  # of an object, by its id
        self._data: set[int] = set()  # ids of another package's objects, which can remember their device
        self._new: dict[int, Any] = {}  # the known replacements, by the object's id
        self.unmoved_objects: list[tuple[str, Any, str]] = []  # the variable, the object, a reason or none

    def add(self, name: str, value: Any) -> Variable:
        """Add a variable. Raises PlacementError if it cannot be moved."""
        variable = Variable(name, value)
        self.variables.append(variable)
        try:
            with collection_paused():
                for framework, arrays in self._find(variable).items():
                    self._transfer(framework).add(arrays, variable)
        except PlacementError as error:
            raise type(error)(f"{name}: {error}" if name else str(error)) from None
        return variable

    def _find(self, variable: Variable) -> dict[Framework, list[Any]]:  # noqa: C901 - one branch for each kind
        """Return the arrays, and the objects that move themselves, that no earlier variable holds."""
        found: dict[Framework, list[Any]] = {}
        for obj, node, components in self._walker.walk([variable.value]):
            key = id(obj)
            if node.kind == "visited":
                first = self._first.get(key, variable.name)
                variable.shared_with = variable.shared_with or (first if first != variable.name else "")
                continue
            if components is not None:
                self._components[key], self._first[key] = components, variable.name
            framework = node.framework
            if node.kind == "numpy":
                framework = self._converts if _is_convertible(obj) else None
                if framework is None and obj.dtype != object:
                    variable.numpy.append(obj)
            if node.kind in ("array", "self-moving", "numpy") and framework is not None:
                self.arrays[key], self._first[key] = obj, variable.name
                found.setdefault(framework, []).append(obj)
                variable.has_arrays = True
            elif node.kind == "data":
                self._data.add(key)
            elif node.kind == "unmoved":
                self.unmoved_objects.append((variable.name, obj, node.reason))
            elif node.kind == "unmovable":
                held = holdings_of([obj])
                if not held or self._elsewhere(held):
                    raise PlacementError(node.reason)
                variable.has_arrays = True
        return found

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
    def free(self) -> int | None:
        """The free bytes on the device: the least that a framework can allocate. None: unknown."""
        asked = filter(self._can_ask, self.transfers)
        known = [free for one in asked if (free := one.free_bytes(self.requested)) is not None]
        return min(known) if known else free_bytes(self.device, self._machine)

    @property
    def device_text(self) -> str:
        """The device with its physical GPU."""
        return described(self.device, self._machine)

    def memory(self) -> set[Hashable]:
        """Return the keys of the memory to move, as in `holdings_of`."""
        return set(self._elsewhere(holdings_of(self.arrays.values())))

    def _elsewhere(self, held: dict[Hashable, Holding]) -> dict[Hashable, Holding]:
        return {key: one for key, one in held.items() if not is_same_device(one.device, self.requested)}

    def kept(self) -> set[Hashable]:
        """Return the keys of the memory of arrays that are still the same objects, as in `holdings_of`."""
        return set(holdings_of(array for key, array in self.arrays.items() if key not in self._new))

    # Replacements

    def put(self) -> None:
        """Put the copies in all objects that hold the arrays. Each step can be undone."""
        for transfer in self.transfers.values():
            transfer.put()
            self._new |= transfer.new
        if self._new:
            for key, components in reversed(self._components.items()):  # keeps `now` shallow
                self.now(self._walker.visited[key])
                if not components.in_place or components.put is None:
                    continue
                old, new = components.children, self._contents(key)
                if any(one is not other for one, other in zip(old, new, strict=True)):
                    self.undo.callback(components.put, new, old)
                    components.put(old, new)
        for transfer in self.transfers.values():
            transfer.tell(self._walker.visited[key] for key in self._components)

    def now(self, obj: Any) -> Any:
        """Return the replacement of an object, or the object itself. An immutable object is built again."""
        key = id(obj)
        components = self._components.get(key)
        if key not in self._new and components is not None and not components.in_place and components.put:
            old, new = components.children, self._contents(key)
            is_same = all(one is other for one, other in zip(old, new, strict=True))
            self._new[key] = obj if is_same else components.put(old, new)
        return self._new.get(key, obj)

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
        for name, obj, reason in objects:
            elsewhere = self._elsewhere(holdings_of([obj]))
            if rest := [one for key, one in elsewhere.items() if key not in moved]:
                devices = listed(sorted({str(one.device) for one in rest}))
                where = f"({size_text(sum(one.nbytes for one in rest))} on {devices})"
                package = type(obj).__module__.partition(".")[0]
                of_package = "" if package == "builtins" else f" of {package}"
                kind = with_article(f"{type(obj).__name__}{of_package}")
                whole = f"{name or 'it'}: {kind} cannot be moved as a whole {where}. "
                text = f"{reason.removesuffix('.')} {where}." if reason else ""
                found.append(printable(text or f"{whole}Create it again in a cell with %%on_gpu."))
        return found


def _is_convertible(array: Any) -> bool:
    """Return whether an array is numeric and of no subclass, whose mask or units would be lost."""
    numpy: Any = sys.modules["numpy"]
    return type(array) in (numpy.ndarray, numpy.memmap) and array.dtype.kind in _NUMERIC
