"""What gpu_magic knows how to ask of a framework."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Framework"]


class Framework(Protocol):
    """A library that computes on GPUs. None of these verbs imports it, or starts its GPU side.

    Parameters
    ----------
    name
        As its users write it.

    """

    name: str

    def has_gpu(self) -> bool:
        """Whether it says that a GPU is among the devices it has started; False where it does not say."""
        ...

    def line_for(self, ordinal: int) -> str:
        """Return the line to type for working on `cuda:ordinal` from here on."""
        ...
