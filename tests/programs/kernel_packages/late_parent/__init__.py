"""A package with a part that is imported later."""
