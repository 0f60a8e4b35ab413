"""The machine's GPUs, as `gpu_magic.gpus` returns them and `%gpus` shows them."""

from __future__ import annotations

from dataclasses import fields
from typing import Self

from gpu_magic.process.view import Snapshot

__all__ = ["Gpus"]


class Gpus(Snapshot):
    """An `Inventory`, and what this process can see of it, which shows itself as a table."""

    __slots__ = ()

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        """Return a snapshot as an object that shows itself."""
        return cls(**{field.name: getattr(snapshot, field.name) for field in fields(snapshot)})

    def __repr__(self) -> str:
        from gpu_magic.display.table import as_text  # many snapshots are never shown

        return as_text(self)

    def _repr_html_(self) -> str:
        from gpu_magic.display.table import as_html

        return as_html(self)
