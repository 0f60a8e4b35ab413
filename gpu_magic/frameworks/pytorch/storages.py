"""Copies storages to a device, each once, with all the tensors that lie in it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks.pytorch.tensors import is_dense, tensor_over, type_and_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["Storages"]

# Bytes that are copied between two progress reports, and between two chances to interrupt.
_PIECE = 64 << 20
# A span begins at a multiple of this many bytes, so that every dtype's elements keep their alignment.
_ALIGNMENT = 16


class Storages:
    """The storages that some tensors lie in. Tensors that share one share its copy in the same way."""

    def __init__(self) -> None:
        self._spans: dict[int, _Span] = {}

    def add(self, tensor: Any) -> int:
        """Add a tensor; return by how many bytes there is more to copy.

        Raises
        ------
        PlacementError
            The tensor has no memory.

        """
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001 - which storage it is, even where it is empty
        span = self._spans.get(key)
        if span is None:
            span = self._spans[key] = _Span(storage)
        before = span.nbytes
        span.include(tensor)
        if span.end > storage.nbytes():
            raise PlacementError(
                f"{type_and_shape(tensor)} has no memory at present (its storage was resized)."
            )
        return span.nbytes - before

    def copy(self, device: Any, on_copy: Callable[[Any, Any], None]) -> Iterator[int]:
        """Copy all storages; yield the size of each piece in bytes once it is copied.

        Parameters
        ----------
        device
            Where to.
        on_copy
            Called with each tensor and the new one that lies in the copy.

        """
        small = []
        for span in self._spans.values():
            if span.nbytes <= _PIECE and span.is_one_tensor:
                small.append(span)
            else:
                yield from _copy_bytes(span, device, on_copy)
        for batch in _batches(small):
            _copy_tensors(batch, device, on_copy)
            yield sum(span.nbytes for span in batch)

    def before(self) -> Iterable[Any]:
        """Return an empty tensor over each storage."""
        torch: Any = sys.modules["torch"]
        return (tensor_over(span.storage, torch.uint8, 0, (0,), (1,)) for span in self._spans.values())


class _Span:
    """The part of a storage that is copied: from the first byte of the tensors in it to the last.

    Attributes
    ----------
    begin, end
        Offsets in the storage, in bytes.

    """

    __slots__ = ("begin", "end", "storage", "tensors")

    def __init__(self, storage: Any) -> None:
        self.storage, self.begin, self.end = storage, storage.nbytes(), 0
        self.tensors: list[Any] = []

    @property
    def nbytes(self) -> int:
        return max(0, int(self.end - self.begin))

    def include(self, tensor: Any) -> None:
        self.tensors.append(tensor)
        count = tensor.numel()
        if not count:
            return
        size, first = tensor.element_size(), tensor.storage_offset()
        last = first + count
        if not tensor.is_contiguous():
            strides = zip(tensor.size(), tensor.stride(), strict=True)
            last = first + 1 + sum((length - 1) * stride for length, stride in strides)
        self.begin = min(self.begin, first * size // _ALIGNMENT * _ALIGNMENT)
        self.end = max(self.end, last * size)

    @property
    def is_one_tensor(self) -> bool:
        """Whether one tensor fills the storage, so that a plain copy of the tensor will do."""
        tensor = self.tensors[0]
        return (
            len(self.tensors) == 1
            and self.storage.nbytes() == tensor.nbytes
            and not tensor.is_conj()
            and not tensor.is_neg()
            and (tensor.is_contiguous() or is_dense(tensor))
        )

    def offset_in_copy(self, tensor: Any) -> int:
        """Return where a tensor begins in the copy of the span, in elements."""
        return int(tensor.storage_offset()) - self.begin // tensor.element_size() if tensor.numel() else 0


def _batches(spans: Iterable[_Span]) -> Iterator[list[_Span]]:
    """Divide spans into groups of about one piece."""
    batch: list[_Span] = []
    nbytes = 0
    for span in spans:
        batch.append(span)
        nbytes += span.nbytes
        if nbytes >= _PIECE:
            yield batch
            batch, nbytes = [], 0
    if batch:
        yield batch


def _copy_tensors(spans: Sequence[_Span], device: Any, on_copy: Callable[[Any, Any], None]) -> None:
    """Copy tensors that have their storage to themselves, many in one call."""
    torch: Any = sys.modules["torch"]
    old = [span.tensors[0].data for span in spans]
    new = [torch.empty_like(tensor, device=device) for tensor in old]
    torch._foreach_copy_(new, old)
    for span, tensor in zip(spans, new, strict=True):
        on_copy(span.tensors[0], tensor)


def _copy_bytes(span: _Span, device: Any, on_copy: Callable[[Any, Any], None]) -> Iterator[int]:
    """Copy a span piece by piece, and lay tensors into the copy as they lie in the storage."""
    torch: Any = sys.modules["torch"]
    old = tensor_over(span.storage, torch.uint8, span.begin, (span.nbytes,), (1,))
    new = torch.empty(span.nbytes, dtype=torch.uint8, device=device)
    for begin in range(0, span.nbytes, _PIECE):
        new[begin : begin + _PIECE].copy_(old[begin : begin + _PIECE])
        yield min(_PIECE, span.nbytes - begin)
    for tensor in span.tensors:
        offset = span.offset_in_copy(tensor)
        copied = tensor_over(new.untyped_storage(), tensor.dtype, offset, tensor.size(), tensor.stride())
        copied = copied.conj() if tensor.is_conj() else copied
        copied = torch._neg_view(copied) if tensor.is_neg() else copied  # noqa: SLF001
        on_copy(tensor, copied)
