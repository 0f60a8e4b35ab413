"""The live panel: choose GPUs by clicking. Its messages are in `page_messages.py` and `kernel_messages.py`.

The pages' part is in the scripts and the style here, written by hand and sent as they are.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["joined"]

_HERE = Path(__file__).parent


def joined(*names: str) -> str:
    """Return files of this folder as one text. A page fetches nothing, so scripts can't import each other."""
    return "\n".join((_HERE / name).read_text(encoding="utf-8") for name in names)
