"""Counts the storages that live during a step of fake tensors. It imports PyTorch."""

from __future__ import annotations

import contextlib
import weakref
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_magic.frameworks.prediction import NotFollowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["PARTS", "StepCounter"]

# PyTorch's caching allocator hands out multiples of this many bytes (kMinBlockSize, c10/cuda).
_BLOCK = 512
_DEVICE = torch.ops.prim.device.default
_mutable: dict[Any, bool] = {}
_RNN = torch.ops.aten.mkldnn_rnn_layer.default
_RNN_TRAIN = 15  # the position of `train` in its arguments
# Losses that are reduced after they were computed for each element, and whether their result keeps that size.
_LOSSES = {
    torch.ops.aten.mse_loss.default: True,
    torch.ops.aten.smooth_l1_loss.default: True,
    torch.ops.aten.huber_loss.default: False,
    torch.ops.aten.binary_cross_entropy.default: False,
}
PARTS = ("parameters", "gradients", "optimizer state", "activations", "temporary")


class _Storage:
    """A storage: its size in bytes, when it was made and when it ended, and what it is."""

    __slots__ = ("born", "died", "nbytes", "part", "reference")

    def __init__(self, nbytes: int, born: int, part: str) -> None:
        self.nbytes, self.born, self.part = nbytes, born, part
        self.died: int | None = None
        self.reference: Any = None


class StepCounter(TorchDispatchMode):  # type: ignore[misc] # the type checker does not see PyTorch
    """Counts all storages that operations make while it is entered, above a `FakeTensorMode`.

    The clock counts births and ends. What each storage was is only known later: a gradient when it has been
    accumulated, the optimizer's state after its step.

    Parameters
    ----------
    between
        Called before each operation; it may raise.

    Attributes
    ----------
    has_computed
        Whether tensors were used since the step has begun.

    """

    def __init__(self, between: Callable[[], object]) -> None:
        super().__init__()
        self._between = between
        self._living: dict[int, _Storage] = {}
        self._all: list[_Storage] = []
        self._clock = 0
        self._forward_ends: list[int] = []
        self._is_on_host = False
        self.has_computed = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # it would cost a third of the time, and there is nothing to compile

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        if func is _DEVICE:  # two thirds of all calls
            return func(*args)
        self._between()
        self.has_computed = True
        is_mutable = _mutable.get(func)
        if is_mutable is None:
            is_mutable = _mutable[func] = func._schema.is_mutable  # noqa: SLF001
        if is_mutable:
            _check_mutated(func, args)
        result = func(*args, **(kwargs or {}))
        self._see_result(func, args, result)
        return result

    def _see_result(self, func: Any, args: tuple[Any, ...], result: Any) -> None:
        if isinstance(result, torch.Tensor):
            found = self._see(result)
            if func in _LOSSES and found is not None and result.dim() == 0:
                self._see_loss(func, args[0], found)
        elif isinstance(result, tuple | list):
            if func is _RNN:
                self._see_workspace(args, result)
            for one in result:
                self._see_result(None, (), one)

    def label(self, tensors: Iterable[Any], part: str, *, is_present: bool = False) -> None:
        """Say what the storages of some tensors are.

        Parameters
        ----------
        tensors
            The tensors; anything else among them is left out.
        part
            One of `PARTS`.
        is_present
            They have been there since the beginning of the step.

        """
        for tensor in tensors:
            found = self._see(tensor) if isinstance(tensor, torch.Tensor) else None
            if found is not None:
                found.part = part
                found.born = 0 if is_present else found.born

    def leave_out(self, tensor: Any) -> None:
        """Do not count a tensor: it stays on the CPU."""
        found = self._see(tensor)
        if found is not None:
            found.nbytes = 0

    def forward_ends(self) -> None:
        """Note that what lives now is there for the backward."""
        self._forward_ends.append(self._clock)

    @contextlib.contextmanager
    def on_host(self) -> Iterator[None]:
        """Do not count what is made meanwhile: it is on the CPU."""
        before, self._is_on_host = self._is_on_host, True
        try:
            yield
        finally:
            self._is_on_host = before

    @property
    def has_new_state(self) -> bool:
        """Whether the step has made a part of the optimizer's state: the next step begins with it."""
        return any(one.part == "optimizer state" and one.born for one in self._all)

    def at_peak(self) -> dict[str, int]:
        """Return the bytes of each part at the moment when most is in use, in a step that is not the first.

        The state that an optimizer makes in its first step is there in all later ones from their beginning.
        """
        in_use = self._in_use()
        return self._at(in_use.index(max(in_use)))

    @property
    def now(self) -> int:
        """The time."""
        return self._clock

    @property
    def state(self) -> int:
        """The bytes of the optimizer's state."""
        return sum(one.nbytes for one in self._all if _is_state(one))

    def most(self, since: int = 0) -> int:
        """Return the most bytes in use from a time on, counted as by `at_peak`."""
        return max(self._in_use()[since:])

    def in_use(self, time: int) -> int:
        """Return the bytes in use at a time, counted as by `at_peak`."""
        return self._in_use()[time]

    def _in_use(self) -> list[int]:
        changes = [0] * (self._clock + 1)
        for one in self._all:
            changes[0 if _is_state(one) else one.born] += one.nbytes
            if one.died is not None:
                changes[one.died] -= one.nbytes
        return list(accumulate(changes))

    def _at(self, moment: int) -> dict[str, int]:
        parts = dict.fromkeys(PARTS, 0)
        for one in self._all:
            if (one.born <= moment or _is_state(one)) and (one.died is None or one.died > moment):
                parts[self._part(one)] += one.nbytes
        return parts

    def _part(self, one: _Storage) -> str:
        if one.part != "temporary":
            return one.part
        died = self._clock + 1 if one.died is None else one.died
        is_kept = any(one.born <= end < died for end in self._forward_ends)
        return "activations" if is_kept else "temporary"

    def _see(self, tensor: Any) -> _Storage | None:
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):  # a sparse one: its values are seen as they are made
            return None
        key: int = storage._cdata  # noqa: SLF001
        found = self._living.get(key)
        if found is None and not self._is_on_host:
            nbytes = -(-storage.nbytes() // _BLOCK) * _BLOCK
            self._clock += 1
            found = self._living[key] = _Storage(nbytes, self._clock, "temporary")
            self._all.append(found)
            found.reference = weakref.ref(storage, lambda _: self._end(key))
        return found

    def _see_loss(self, func: Any, outputs: Any, found: _Storage) -> None:
        """Count what a loss takes before it is reduced to one number: as much as what it is a loss of.

        Some make their result of that size, and make it smaller when they have reduced into it
        (aten/src/ATen/native/BinaryOps.cpp and Loss.cpp of PyTorch 2.13).
        """
        nbytes = -(-outputs.numel() * outputs.element_size() // _BLOCK) * _BLOCK
        if _LOSSES[func]:
            found.nbytes = nbytes
        self._clock += 2
        scratch = _Storage(nbytes, self._clock - 1, "temporary")
        scratch.died = self._clock
        self._all.append(scratch)

    def _see_workspace(self, args: tuple[Any, ...], result: Any) -> None:
        """Count what a layer of an LSTM keeps for its backward: the fake one has a workspace of no bytes.

        cuDNN does not document it. By the 736 MB of four layers of 320 units in PyTorch's issue 2895 it keeps
        the four gates and the cell's state of each step.
        """
        output, workspace = result[0], result[3]
        if args[_RNN_TRAIN] and (found := self._see(workspace)) is not None:
            found.nbytes = 5 * output.numel() * output.element_size()

    def _end(self, key: int) -> None:
        found = self._living.pop(key, None)
        if found is not None:
            self._clock += 1
            found.died = self._clock

    def begin(self) -> None:
        """Let all that was counted so far be there from the beginning."""
        self._all = [one for one in self._all if one.died is None]
        for one in self._all:
            one.born = 0
        self._clock = 0
        self.has_computed = False
        self._forward_ends.clear()

    def close(self) -> None:
        """Let go of what still lives."""
        for one in self._all:
            one.reference = None
        self._living.clear()


def _is_state(storage: _Storage) -> bool:
    return storage.part == "optimizer state" and storage.died is None


def _check_mutated(func: Any, args: tuple[Any, ...]) -> None:
    """Raise NotFollowed where an operation would change a real tensor: the notebook's stay as they are."""
    first = args[0] if args else None
    tensors = first if isinstance(first, tuple | list) else (first,)
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and type(tensor) in (torch.Tensor, torch.nn.Parameter):
            raise NotFollowed(
                f"it changes a tensor that could not be copied ({func.overloadpacket.__name__})"
            )
