"""Variables to move, and copies of arrays that are never changed in place: JAX's, TensorFlow's, CuPy's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from gpu_magic.frameworks.base import Framework
    from gpu_magic.frameworks.target import LogicalDevice

__all__ = ["Copies", "Variable"]


@dataclass(slots=True)
class Variable:
    """What a plan does with one variable. What it shares with one before it is counted there."""

    name: str
    value: Any
    arrays: int = 0  # those on other devices
    nbytes: int = 0  # what their copies take
    origins: set[str] = field(default_factory=set)  # where they are now
    numpy: list[Any] = field(default_factory=list)  # NumPy's arrays in it that stay
    has_arrays: bool = False  # of its own that can be moved, or are there already
    shared_with: str = ""  # a variable before it that has some of the same objects

    @property
    def type_text(self) -> str:
        """Its type, and an array's shape: `Tensor (8,)`."""
        name = type(self.value).__name__
        try:
            shape = self.value.shape
            return f"{name} {tuple(shape)}" if isinstance(shape, tuple) else name
        except Exception:  # noqa: BLE001 - it has none, or it raises whatever it likes
            return name


class Copies:
    """Copies arrays of one framework to one device. It is called in this order: `add`, `copy`, `put`."""

    def __init__(self, framework: Framework, device: LogicalDevice) -> None:
        self._framework, self._target = framework, device
        self._arrays: list[tuple[Any, int]] = []  # each with its size in bytes
        self._memory: set[Hashable] = set()  # what was counted
        self.new: dict[int, Any] = {}  # what takes the place of an array, by its id

    def add(self, arrays: Sequence[Any], variable: Variable) -> None:
        """Add arrays, and count them for their variable. Nothing is allocated."""
        for array in arrays:
            if origin := self._framework.origin(array, self._target):
                held = self._framework.holdings(array) if self._framework.is_array(type(array)) else ()
                if len(held) == 1:
                    nbytes = held[0].nbytes if held[0].key not in self._memory else 0
                    self._memory.add(held[0].key)
                else:  # one that has several pieces of memory is copied as one
                    nbytes = int(array.nbytes)
                self._arrays.append((array, nbytes))
                variable.arrays += 1
                variable.nbytes += nbytes
                variable.origins.add(origin)

    def copy(self) -> Iterator[int]:
        """Make the copies; yield the size of each in bytes once it is there."""
        memo: dict[Any, Any] = {}
        for array, nbytes in self._arrays:
            self.new[id(array)] = self._framework.copied(array, self._target, memo)
            yield nbytes

    def put(self) -> None:
        """Give arrays that stay the same objects the memory of their copies."""

    def tell(self, objects: Iterable[Any]) -> None:
        """Tell objects that remember their device where they are now."""
