"""A plan to move variables to a device: what there is to move, how much it is, and whether it is possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks import get
from gpu_magic.frameworks.transfer import Load
from gpu_magic.moving.destination import UnusableDeviceError, check_numpy
from gpu_magic.moving.graph import Graph
from gpu_magic.moving.planned_variable import PlannedVariable, type_of
from gpu_magic.moving.unmoved import UnmovedObject, unmoved_text
from gpu_magic.placement.collection import collection_paused
from gpu_magic.placement.holdings import holdings_of
from gpu_magic.process.physical import LazySnapshot, described, free_bytes
from gpu_magic.text import listed, size_text

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Sequence

    from gpu_magic.frameworks.base import Framework
    from gpu_magic.frameworks.transfer import Transfer
    from gpu_magic.moving.graph import Found
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["Plan", "framework_of"]


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
        The device, with the type of the framework's GPUs once that is known.
    requested
        The device as it was asked for.
    values
        The variables by their names.
    variables
        What is planned for each.
    transfers
        The frameworks' part of the work, by their modules.
    graph
        All that the variables are made of.

    """

    def __init__(
        self, device: LogicalDevice, converts: str | None = None, machine: LazySnapshot | None = None
    ) -> None:
        if converts is not None:
            check_numpy(converts)
        self.device = device
        self.values: dict[str, Any] = {}
        self.variables: list[PlannedVariable] = []
        self.transfers: dict[str, Transfer] = {}
        self.graph = Graph(device, converts)
        self.requested = device
        self._converts = converts
        self._machine = machine or LazySnapshot()
        self._nbytes: dict[str, int] = {}  # by the framework's module
        self._unmoved: list[UnmovedObject] = []
        self._unusable: UnusableDeviceError | None = None  # why a variable is not among them

    def add(self, name: str, value: Any) -> None:
        """Add a variable.

        Raises
        ------
        PlacementError
            It can't be moved: why, and what to do.

        """
        found = self._find(value)
        self._record(name, value, found, self._load_of(name, found))

    def add_if_possible(self, name: str, value: Any) -> str:
        """Add a variable if it has arrays that can be moved; return why not, if it has some that can't."""
        has_arrays, why = False, ""
        try:
            found = self._find(value)
            if found.arrays or found.unmovable or found.unmoved:
                # Other transfers are tried first: once one of this plan has an array, it keeps it.
                Plan(self.requested, self._converts, self._machine)._load_of(name, found)  # noqa: SLF001
                has_arrays = bool(found.arrays or found.there)
            has_arrays = has_arrays or (bool(found.shared) and self._leads_to_arrays(value))
        except PlacementError as error:
            why = str(error)
            if isinstance(error, UnusableDeviceError):
                self._unusable = self._unusable or error
        if has_arrays:
            self._record(name, value, found, self._load_of(name, found))
            return ""
        self.graph.drop_last()
        if not why:
            self._add_unmoved(name, value, [one for one in found.unmoved if not one[1]])
        return why

    def _find(self, value: Any) -> Found:
        with collection_paused():
            return self.graph.add(value)

    def _leads_to_arrays(self, value: Any) -> bool:
        """Return whether a variable has arrays, be they another one's as well."""
        with collection_paused():
            return bool(Graph(self.requested, self._converts).add(value).arrays)

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
            raise PlacementError(self._why_numpy_stays(name or "it", found))
        try:
            with collection_paused():
                return self._add_arrays(found)
        except PlacementError as error:
            raise type(error)(f"{prefix}{error}") from None

    def _record(self, name: str, value: Any, found: Found, load: Load) -> None:
        """Plan to move a variable."""
        has_shape = found.arrays or found.numpy or found.shared
        type_text = type_of(value) if has_shape else type(value).__name__
        shared_with = self.variables[min(found.shared) - 1].name if found.shared else ""
        has_arrays = bool(found.arrays or found.there)
        self._add_unmoved(name, value, found.unmoved)
        self.values[name] = value
        self.variables.append(
            PlannedVariable(name, type_text, load, len(found.numpy), has_arrays, shared_with)
        )

    def _add_unmoved(self, name: str, value: Any, unmoved: Sequence[tuple[Any, str]]) -> None:
        self._unmoved += [UnmovedObject(name, obj is value, obj, reason) for obj, reason in unmoved]

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
        if not any(variable.has_arrays for variable in self.variables):
            if self._unusable is not None:
                raise self._unusable
            if unmoved := self._unmoved_texts(self._unmoved):
                raise PlacementError(unmoved[0])
            names = listed(
                (f"{variable.name or 'it'} ({variable.type_text})" for variable in self.variables),
                "the variables here",
            )
            raise PlacementError(f"There is nothing to move in {names}: no framework's arrays.")

    @property
    def unmoved(self) -> list[str]:
        """A sentence for each object with arrays that stays where it is, and is not meant to."""
        return self._unmoved_texts([one for one in self._unmoved if not one.reason])

    def _unmoved_texts(self, objects: Sequence[UnmovedObject]) -> list[str]:
        moved = holdings_of(self.graph.arrays()).keys() if objects else ()
        return list(filter(None, (unmoved_text(one, self.requested, moved) for one in objects)))

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
        """Check the device for the framework that NumPy's arrays are converted for.

        One that has not started is not asked in `add`: that would start it for a dry run.

        Raises
        ------
        UnusableDeviceError
            The framework can't use the device.

        """
        if self._converts in self.transfers:
            self._check_device(framework_of(self._converts))

    def memory_before(self) -> Collection[Hashable]:
        """Return the keys of the memory that is moved, as `holdings_of` has them."""
        if not self.nbytes:
            return ()
        return {key for transfer in self.transfers.values() for key in holdings_of(transfer.before())}

    def discard(self) -> None:
        """Let go of all objects, also of those that were built anew."""
        self.transfers.clear()
        self.graph = Graph(self.requested, self._converts)

    def _why_numpy_stays(self, name: str, found: Found) -> str:
        if self._converts is not None:
            dtypes = listed(sorted({str(array.dtype) for array in found.numpy}))
            return f"{name} is NumPy's, and no framework has arrays of {dtypes}."
        return (
            f"{name} is a NumPy array, which has no device: --numpy torch (or numpy='torch') makes it a "
            "PyTorch tensor there; jax and cupy work, too."
        )

    def _add_arrays(self, found: Found) -> Load:
        """Add arrays to the transfers of their frameworks, and return how much that adds."""
        arrays, nbytes, origins = 0, 0, set[str]()
        for module, framework_arrays in found.arrays.items():
            load = self._transfer(module).add(framework_arrays)
            self._nbytes[module] = self._nbytes.get(module, 0) + load.nbytes
            arrays, nbytes = arrays + load.arrays, nbytes + load.nbytes
            origins.update(load.origins)
        return Load(arrays, nbytes, sorted(origins))

    def _transfer(self, module: str) -> Transfer:
        transfer = self.transfers.get(module)
        if transfer is None:
            framework = framework_of(module)
            if module != self._converts or framework.is_started():
                self._check_device(framework)
            transfer = self.transfers[module] = framework.transfer(self.requested)
            if len(self.transfers) == 1:
                self.device = framework.resolved(self.device)
        return transfer

    def _check_device(self, framework: Framework) -> None:
        if why := framework.problem(self.requested):
            raise UnusableDeviceError(f"{self.requested} can't be used: {why}.")


def framework_of(module: str) -> Framework:
    """Return the framework of arrays that were found, which is there since they are."""
    return cast("Framework", get(module))
