"""Another package, which uses a framework without having it in hand."""

from makes_with_torch import make, make_with_a_generator, make_with_normal

__all__ = ["make", "make_with_a_generator", "make_with_normal"]
