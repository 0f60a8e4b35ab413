"""Another package, which uses a framework without having it in hand."""

from makes_with_tensorflow import make

__all__ = ["make"]
