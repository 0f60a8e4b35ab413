"""What has to be known of a PyTorch tensor: the tensors in a sparse one, and how an error names it."""

from __future__ import annotations

import sys
from typing import Any

from gpu_magic.text import with_article

__all__ = ["sparse_parts", "type_and_shape"]


def sparse_parts(tensor: Any) -> list[Any]:
    """Return the dense tensors that a sparse one is made of; of any other tensor none."""
    torch: Any = sys.modules["torch"]
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]  # noqa: SLF001 - the others raise if it is not coalesced
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return []


def type_and_shape(tensor: Any) -> str:
    """Return a tensor's type and shape, as the beginning of a sentence."""
    return f"{with_article(type(tensor).__name__, 'A')} of shape {tuple(tensor.shape)}"
