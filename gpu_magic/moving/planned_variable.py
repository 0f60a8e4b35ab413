"""What a plan does with one variable: how much of it moves, and what stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from gpu_magic.frameworks.transfer import Load

__all__ = ["PlannedVariable", "type_of"]


class PlannedVariable(NamedTuple):
    """What a plan does with one variable. What it shares with one before it is counted there.

    Parameters
    ----------
    name
        As it was named.
    type_text
        Its type, and an array's shape: `Tensor (8,)`.
    load
        How much there is to move.
    numpy_arrays
        The number of NumPy arrays in it that stay.
    has_arrays
        Whether it has arrays of its own that can be moved, or are there already.
    shared_with
        A variable before it that has some of the same objects; empty for none.

    """

    name: str
    type_text: str
    load: Load
    numpy_arrays: int
    has_arrays: bool
    shared_with: str


def type_of(value: Any) -> str:
    """Return a value's type, and an array's shape: `Tensor (8,)`."""
    name = type(value).__name__
    try:
        shape = value.shape
        return f"{name} {tuple(shape)}" if isinstance(shape, tuple) else name
    except Exception:  # noqa: BLE001 - it has none, or it raises whatever it likes
        return name
