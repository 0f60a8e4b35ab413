"""A plugin of JAX's that finds no device: what CUDA's does where no GPU is visible."""


def initialize() -> None:
    """Register nothing."""
