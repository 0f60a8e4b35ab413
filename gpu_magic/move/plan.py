"""What a move is going to do: what there is to move, what holds it, and whether it is possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks import imported
from gpu_magic.move.copies import Copies, Load
from gpu_magic.move.graph import Found, Graph, device_like, framework_of
from gpu_magic.objects.memory import holdings_of, is_same_device
from gpu_magic.objects.walk import collection_paused
from gpu_magic.process.physical import LazySnapshot, described, free_bytes, innermost, locate
from gpu_magic.selection.target import LogicalDevice, parse_targets
from gpu_magic.text import listed, printable, size_text, with_article

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from gpu_magic.frameworks.base import Framework

__all__ = ["Plan", "Planned", "UnusableDeviceError", "read_destination", "transfer_of"]

_FROM_NUMPY = ("torch", "jax", "cupy")  # the frameworks that NumPy's arrays can be converted for
_MOST_PARTS = 3  # that are named of an object that can't be moved as a whole


class UnusableDeviceError(PlacementError):
    """The device that was asked for is not there, or a framework can't use it."""


def read_destination(text: str | None, machine: LazySnapshot) -> LogicalDevice:
    """Return the device that a text names; without one the GPU of the `on_gpu` block around, or `cuda:0`.

    Raises
    ------
    PlacementError
        The text names no device, or several.
    UnusableDeviceError
        It names a GPU that this process can't see.

    """
    if text is None:
        around = innermost()
        return around if around is not None and around.kind == "gpu" else LogicalDevice("gpu", 0)
    first, *others = parse_targets(text)
    if others:
        raise PlacementError(f"Variables go to one device, and {text} names {len(others) + 1}.")
    try:
        return locate(first, machine)
    except PlacementError as error:
        raise UnusableDeviceError(str(error)) from None


class Planned(NamedTuple):
    """What a plan does with one variable. What it shares with one before it is counted there."""

    name: str
    type_text: str  # its type, and an array's shape: `Tensor (8,)`
    load: Load
    numpy_arrays: int  # NumPy's arrays in it that stay
    has_arrays: bool  # of its own that can be moved, or are there already
    shared_with: str  # a variable before it that has some of the same objects; empty for none


class Plan:
    """A move of variables to a device. Nothing is allocated and nothing is changed.

    Parameters
    ----------
    device
        The device to move to.
    converts
        The module of the framework that NumPy's arrays are converted for; None: they stay.
    machine
        The machine, where it was read for the same request.

    Attributes
    ----------
    device
        The device, with the type of the framework's GPUs once that is known; `requested` as it was asked for.
    values, variables
        The variables by their names, and what is planned for each.
    transfers
        The frameworks' part of the work, by their modules.
    graph
        All that the variables are made of.

    """

    def __init__(
        self, device: LogicalDevice, converts: str | None = None, machine: LazySnapshot | None = None
    ) -> None:
        if converts is not None and converts not in _FROM_NUMPY:
            raise PlacementError(
                f"NumPy's arrays can become those of {' or '.join(_FROM_NUMPY)}, and not of {converts}."
            )
        if converts is not None and (framework := framework_of(converts)) not in imported():
            raise PlacementError(
                f"NumPy's arrays can't become {framework.name}'s before it is imported: import {converts}."
            )
        self.device = self.requested = device
        self.values: dict[str, Any] = {}
        self.variables: list[Planned] = []
        self.transfers: dict[str, Copies] = {}
        self.graph = Graph(device, converts)
        self._converts = converts
        self._machine = machine or LazySnapshot()
        self._nbytes: dict[str, int] = {}  # by the framework's module
        self._unmoved: list[tuple[str, bool, Any, str]] = []  # see `_unmoved_text`
        self._unusable: UnusableDeviceError | None = None  # why a variable is not among them

    def add(self, name: str, value: Any) -> None:
        """Add a variable.

        Raises
        ------
        PlacementError
            It can't be moved: why, and what to do.

        """
        found = self.graph.add(value)
        self._record(name, value, found, self._load_of(name, found))

    def add_if_possible(self, name: str, value: Any) -> str:
        """Add a variable if it has arrays that can be moved; return why not, if it has some that can't."""
        has_arrays, why = False, ""
        try:
            found = self.graph.add(value)
            if found.arrays or found.unmovable or found.unmoved:
                # Other transfers are tried first: once one of this plan has an array, it keeps it.
                Plan(self.requested, self._converts, self._machine)._load_of(name, found)  # noqa: SLF001
                has_arrays = bool(found.arrays or found.there)
            if found.shared and not has_arrays:
                has_arrays = bool(Graph(self.requested, self._converts).add(value).arrays)
        except PlacementError as error:
            why = str(error)
            if isinstance(error, UnusableDeviceError):
                self._unusable = self._unusable or error
        if has_arrays:
            self._record(name, value, found, self._load_of(name, found))
            return ""
        self.graph.drop_last()
        if not why:
            self._unmoved += [(name, obj is value, obj, "") for obj, reason in found.unmoved if not reason]
        return why

    def _load_of(self, name: str, found: Found) -> Load:
        """Add what was found in a variable to the transfers, and return how much that is.

        Raises
        ------
        PlacementError
            It can't be moved: why, and what to do.

        """
        prefix = f"{name}: " if name else ""
        if found.unmovable:
            raise PlacementError(f"{prefix}{found.unmovable[0]}")
        if found.numpy and not found.arrays and not found.shared and self.device.kind == "gpu":
            what, dtypes = name or "it", listed(sorted({str(array.dtype) for array in found.numpy}))
            if self._converts is not None:
                raise PlacementError(f"{what} is NumPy's, and no framework has arrays of {dtypes}.")
            raise PlacementError(
                f"{what} is a NumPy array, which has no device: --numpy torch (or numpy='torch') makes it a "
                "PyTorch tensor there; jax and cupy work, too."
            )
        arrays, nbytes, origins = 0, 0, set[str]()
        try:
            with collection_paused():
                for module, framework_arrays in found.arrays.items():
                    load = self._transfer(module).add(framework_arrays)
                    self._nbytes[module] = self._nbytes.get(module, 0) + load.nbytes
                    arrays, nbytes = arrays + load.arrays, nbytes + load.nbytes
                    origins.update(load.origins)
        except PlacementError as error:
            raise type(error)(f"{prefix}{error}") from None
        return Load(arrays, nbytes, sorted(origins))

    def _record(self, name: str, value: Any, found: Found, load: Load) -> None:
        """Plan to move a variable."""
        has_shape = found.arrays or found.numpy or found.shared
        shared_with = self.variables[min(found.shared) - 1].name if found.shared else ""
        self._unmoved += [(name, obj is value, obj, reason) for obj, reason in found.unmoved]
        self.values[name] = value
        self.variables.append(
            Planned(
                name,
                _type_text(value) if has_shape else type(value).__name__,
                load,
                len(found.numpy),
                bool(found.arrays or found.there),
                shared_with,
            )
        )

    def _transfer(self, module: str) -> Copies:
        """Return a framework's part of the work, after asking whether it can use the device."""
        transfer = self.transfers.get(module)
        if transfer is None:
            framework = framework_of(module)
            if module != self._converts or framework.is_started():
                self._check_device(framework)
            transfer = self.transfers[module] = transfer_of(framework, self.requested)
            if len(self.transfers) == 1:
                self.device = framework.resolved(self.device)
        return transfer

    def _check_device(self, framework: Framework) -> None:
        if why := framework.problem(self.requested):
            raise UnusableDeviceError(f"{self.requested} can't be used: {why}.")

    @property
    def has_load(self) -> bool:
        """Whether there is an array on another device."""
        return any(variable.load.arrays for variable in self.variables)

    @property
    def converted_in_place(self) -> str:
        """The framework whose arrays NumPy's become, where that copies nothing; empty for none."""
        is_in_place = self._converts in self.transfers and self.device.kind == "cpu" and not self.nbytes
        return framework_of(self._converts).name if is_in_place and self._converts else ""

    @property
    def nbytes(self) -> int:
        """How many bytes are to be allocated on the device."""
        return sum(self._nbytes.values())

    @property
    def free(self) -> int | None:
        """How many bytes are free there; None for unknown. The least of what the frameworks can allocate."""
        asked = [framework_of(module) for module, nbytes in self._nbytes.items() if nbytes]
        answers = (
            framework.free_bytes(self.requested)
            for framework in asked
            if framework.module != self._converts or framework.is_started()  # else it would be started
        )
        known = [answer for answer in answers if answer is not None]
        return min(known) if known else free_bytes(self.device, self._machine)

    @property
    def device_text(self) -> str:
        """The device with its physical GPU."""
        return described(self.device, self._machine)

    def check(self) -> None:
        """Check that there is something to move.

        Raises
        ------
        PlacementError
            None of the variables has an array of a framework.

        """
        if any(variable.has_arrays for variable in self.variables):
            return
        if self._unusable is not None:
            raise self._unusable
        if unmoved := self.unmoved(with_reason=True):
            raise PlacementError(unmoved[0])
        names = listed(
            (f"{variable.name or 'it'} ({variable.type_text})" for variable in self.variables),
            "the variables here",
        )
        raise PlacementError(f"There is nothing to move in {names}: no framework's arrays.")

    def check_resources(self) -> None:
        """Check what is left to check when the move begins: it can start a framework, or read the machine.

        Raises
        ------
        PlacementError
            The framework that NumPy's arrays are converted for can't use the device, or memory is lacking.

        """
        self.check_converted()
        free = self.free
        if free is not None and self.nbytes > free:
            raise PlacementError(
                f"{size_text(self.nbytes)} do not fit on {self.device_text}, where {size_text(free)} are "
                "free. Move fewer, or see what %gpu_free gives back."
            )

    def check_converted(self) -> None:
        """Check the device for the framework that NumPy's arrays become: a dry run would start it."""
        if self._converts in self.transfers:
            self._check_device(framework_of(self._converts))

    def memory_before(self) -> Collection[Hashable]:
        """Return the keys of the memory that is moved, as `holdings_of` has them."""
        if not self.nbytes:
            return ()
        return {key for transfer in self.transfers.values() for key in holdings_of(transfer.before())}

    def discard(self) -> None:
        """Let go of all objects, also of those that were built again."""
        self.transfers.clear()
        self.graph = Graph(self.requested, self._converts)

    def unmoved(self, *, with_reason: bool = False) -> list[str]:
        """Return a sentence for each object with arrays that stays where it is, and is not meant to."""
        objects = [one for one in self._unmoved if with_reason or not one[-1]]
        moved = holdings_of(self.graph.arrays.values()).keys() if objects else ()
        return list(filter(None, (self._unmoved_text(*one, moved) for one in objects)))

    def _unmoved_text(
        self, name: str, is_variable: bool, obj: Any, reason: str, moved: Collection[Hashable]
    ) -> str:
        """Return a sentence: what stays, and what would move it; empty if it has nothing elsewhere."""
        held = holdings_of([obj])
        rest = [
            one
            for key, one in held.items()
            if key not in moved and not is_same_device(one.device, self.requested)
        ]
        if not rest:
            return ""
        devices = listed(sorted({str(one.device) for one in rest}))
        where = f"{size_text(sum(one.nbytes for one in rest))} on {devices}"
        parts, remembers = self._parts(obj)
        way = ""
        if parts:
            prefix = f"{name}." if is_variable and name else "its ."
            called = [f"{prefix}{part}" for part in parts]
            way = (
                f": %to_gpu {' '.join(called)} moves its parts"
                if is_variable and name
                else f": move {listed(called)}"
            )
            way += f"; then set {listed(f'{prefix}{one}' for one in remembers)}" if remembers else ""
        elif not reason:
            way = ": create it again in a cell with %%on_gpu"
        kind = with_article(f"{type(obj).__name__} of {type(obj).__module__.partition('.')[0]}")
        whole = f"{name or 'it'} {'is' if is_variable else 'holds'} {kind}, which can't be moved as a whole"
        return printable(f"{reason.removesuffix('.') or whole} ({where}){way}.")

    def _parts(self, obj: Any) -> tuple[list[str], list[str]]:
        """Return the names of an object's attributes that can be moved, and of those that are a device."""
        parts: list[str] = []
        remembers: list[str] = []
        for name, value in dict(getattr(obj, "__dict__", {})).items():
            if device_like(value, self.requested) is not None:
                remembers.append(name)
            elif not name.startswith("_") and len(parts) < _MOST_PARTS:
                try:
                    found = Graph(self.requested).add(value)
                except Exception:  # noqa: BLE001, S112 - whatever an object raises, or why a framework refuses it
                    continue
                if found.arrays and not found.unmovable:
                    parts.append(name)
        return parts, remembers


def transfer_of(framework: Framework, device: LogicalDevice) -> Copies:
    """Return what moves a framework's arrays to a device."""
    if framework.module != "torch":
        return Copies(framework, device)
    from gpu_magic.move.pytorch import Tensors  # torch is there

    return Tensors(framework.own_device(device))


def _type_text(value: Any) -> str:
    name = type(value).__name__
    try:
        shape = value.shape
        return f"{name} {tuple(shape)}" if isinstance(shape, tuple) else name
    except Exception:  # noqa: BLE001 - it has none, or it raises whatever it likes
        return name
