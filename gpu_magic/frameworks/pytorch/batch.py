"""The tensors of a batch, replaced; a batch of another size, or a loader's first. It imports PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from gpu_magic.errors import FitError
from gpu_magic.frameworks.shadow.place import described, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["first_batch", "mapped", "resized", "size_of", "tensors_in"]


def tensors_in(batch: Any) -> Iterator[Any]:
    """Return the tensors in a batch: in tuples, lists and mappings, to any depth."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors_in(value)
    elif isinstance(batch, tuple | list):
        for value in batch:
            yield from tensors_in(value)


def size_of(batch: Any) -> int | None:
    """Return the size of a batch along dimension 0; None where its tensors have no common one."""
    sizes = {tensor.shape[0] if tensor.dim() else 0 for tensor in tensors_in(batch)} - {0}
    return int(sizes.pop()) if len(sizes) == 1 else None


def resized(batch: Any, size: int | None) -> Any:
    """Return a batch of fake tensors with another size along dimension 0; None: as it is."""
    if size is None:
        return batch

    def of_size(tensor: Any) -> Any:
        if not tensor.dim():
            return tensor
        new = tensor.new_empty((size, *tensor.shape[1:]))
        return new.requires_grad_(tensor.requires_grad)

    return mapped(batch, of_size)


def mapped(batch: Any, function: Callable[[Any], Any]) -> Any:
    """Return a batch with each tensor replaced by what a function returns for it."""
    if isinstance(batch, torch.Tensor):
        return function(batch)
    if isinstance(batch, Mapping):
        return {name: mapped(value, function) for name, value in batch.items()}
    if isinstance(batch, tuple | list):
        values = [mapped(value, function) for value in batch]
        return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
    return batch


def first_batch(loader: Any) -> Any:
    """Return the first batch of a DataLoader, without its workers and without its sampler.

    Raises
    ------
    FitError
        Its dataset has no items to be asked for, or raises.

    """
    dataset, size = loader.dataset, loader.batch_size
    if isinstance(dataset, torch.utils.data.IterableDataset) or not size:
        raise FitError("Give a batch in place of this DataLoader: batch = next(iter(loader)).")
    try:
        if items := [dataset[index] for index in range(min(size, len(dataset)))]:
            return loader.collate_fn(items)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever the user's dataset raises
        where = place_of(error.__traceback__)
        raise FitError(f"The DataLoader has no first batch: it raises {described(error)}{where}") from None
    raise FitError("The DataLoader is empty, as its dataset has no items: give one with a batch, or a batch.")
