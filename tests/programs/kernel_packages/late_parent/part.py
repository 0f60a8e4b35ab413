"""A part that imports something."""

import sndhdr  # noqa: F401
