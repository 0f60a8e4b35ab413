"""Another package, which uses a framework without having it in hand."""

from makes_with_jax import make

__all__ = ["make"]
