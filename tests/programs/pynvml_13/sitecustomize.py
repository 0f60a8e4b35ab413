"""Stands in for the package pynvml 13.0.1 on PyPI: nvidia-ml-py, and a warning to whoever imports it."""

import sys
import warnings


class Finder:
    """Warns when pynvml is first looked for, and finds nothing."""

    def __init__(self):
        self.has_warned = False

    def find_spec(self, name, path, target=None):
        if name.startswith("pynvml") and not self.has_warned:
            self.has_warned = True
            warnings.warn(
                "The pynvml package is deprecated. Please install nvidia-ml-py instead.",
                FutureWarning,
                stacklevel=2,
            )


sys.meta_path.insert(0, Finder())
