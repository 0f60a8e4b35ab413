"""A package that imports something when one of its functions is called."""


def helper() -> None:
    """Import it."""
    import sndhdr  # noqa: F401
