"""`python -m tests.native`: print the PYTHONPATH with which PyTorch has the pretend accelerator, built if need be."""

from __future__ import annotations

from importlib.metadata import version

from tests.native import SOURCES, pretend_path

# Where pytest keeps it, too.
folder = SOURCES.parent.parent / ".pytest_cache" / "d" / f"pretend-{version('torch')}"
folder.mkdir(parents=True, exist_ok=True)
print(pretend_path(folder))
