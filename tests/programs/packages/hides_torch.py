"""Another package, which uses a framework without having it in hand."""

from makes_with_torch import make

__all__ = ["make"]
