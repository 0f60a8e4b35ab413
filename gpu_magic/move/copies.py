"""Variables to move, and copies of arrays that are replaced, not changed: JAX's, TensorFlow's, CuPy's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from gpu_magic.frameworks.base import Framework
    from gpu_magic.frameworks.target import LogicalDevice

__all__ = ["Copies", "Variable"]


@dataclass(slots=True)
class Variable:
    """One variable of a plan. Arrays that it shares with an earlier variable count for that variable."""

    name: str
    value: Any
    arrays: int = 0  # on other devices
    nbytes: int = 0  # of their copies
    origins: set[str] = field(default_factory=set)  # their devices now
    numpy: list[Any] = field(default_factory=list)  # its NumPy arrays that stay
    has_arrays: bool = False  # of its own that can move, or are on the device
    shared_with: str = ""  # an earlier variable that has some of its objects

    @property
    def type_text(self) -> str:
        """The type of the value, and the shape of an array: `Tensor (8,)`."""
        name = type(self.value).__name__
        try:
            shape = self.value.shape
            return f"{name} {tuple(shape)}" if isinstance(shape, tuple) else name
        except Exception:  # noqa: BLE001 - no shape, or a property that raises any error
            return name


class Copies:
    """Copies arrays of one framework to one device. Call `add`, `copy` and `put` in this order."""

    def __init__(self, framework: Framework, device: LogicalDevice) -> None:
        self._framework, self._target = framework, device
        self._arrays: list[tuple[Any, int]] = []  # each with its size in bytes
        self._memory: set[Hashable] = set()  # keys of the counted memory
        self.shrinkable = 0  # bytes that an object's own `to` can make fewer, so that they may fit after all
        self.new: dict[int, Any] = {}  # the replacement of an array, by its id

    def add(self, arrays: Sequence[Any], variable: Variable) -> None:
        """Add arrays, and count them for their variable. Nothing is allocated."""
        for array in arrays:
            if origin := self._framework.origin(array, self._target):
                framework = self._framework
                is_known = framework.is_array(type(array)) or framework.is_copy(array)
                held = framework.holdings(array) if is_known else ()
                if len(held) == 1:
                    nbytes = held[0].nbytes if held[0].key not in self._memory else 0
                    self._memory.add(held[0].key)
                else:  # an array with several blocks of memory is copied as one
                    nbytes = int(array.nbytes)
                self._arrays.append((array, nbytes))
                variable.arrays += 1
                variable.nbytes += nbytes
                variable.origins.add(origin)

    def add_object(self, obj: Any, arrays: Sequence[Any], variable: Variable) -> None:
        """Add an object that moves itself, with its arrays. Only PyTorch has some."""

    def copy(self) -> Iterator[int]:
        """Copy the arrays. Yield the bytes of each copy when it is complete."""
        memo: dict[Any, Any] = {}
        for array, nbytes in self._arrays:
            self.new[id(array)] = self._framework.copied(array, self._target, memo)
            yield nbytes

    def put(self) -> None:
        """Give arrays that stay the same objects the memory of their copies. Here none stays."""

    def update_modules(self, objects: Iterable[Any], is_told: Callable[[Any], bool]) -> None:
        """Update modules that remember their device, if `is_told` is true for them. Only PyTorch has some."""
