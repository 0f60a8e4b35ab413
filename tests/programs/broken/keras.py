"""A framework whose import fails."""

raise ImportError("broken")
