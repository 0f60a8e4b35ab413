"""What this process has parked: in the host's memory, with the GPU that it goes back to."""

from __future__ import annotations

import contextlib
import sys
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.devices.model import UNKNOWN, Unknown
from gpu_magic.frameworks import imported
from gpu_magic.frameworks.target import CPU
from gpu_magic.process.show import show
from gpu_magic.text import listed, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gpu_magic.frameworks.base import Framework
    from gpu_magic.frameworks.target import LogicalDevice

    # An item with weak references: `Item` says what they are.
    _Refs = tuple[Callable[[], Any], ...]
    _Entry = tuple[_Refs, _Refs, Framework, LogicalDevice, int]

__all__ = ["Item", "known_by", "parked", "parked_line", "parked_text", "stop_telling", "tell_next_cell"]


class Item(NamedTuple):
    """A parked array, or an object that moves itself, or one that remembers its device.

    Parameters
    ----------
    known_by
        The object. Of a tensor that wraps other tensors, these: `torch.utils.swap_tensors`, with which it
        moves, refuses a tensor that has a weak reference.
    arrays
        What its arrays are known by.
    framework
        The framework that it came from.
    device
        The GPU that it was on.
    nbytes
        The bytes that it had there.

    """

    known_by: Sequence[Any]
    arrays: Sequence[Any]
    framework: Framework
    device: LogicalDevice
    nbytes: int


class _Lot:
    """All that is parked now. It keeps nothing alive. What has left the CPU is parked no more."""

    def __init__(self) -> None:
        self._entries: tuple[_Entry, ...] = ()
        # The bytes that frameworks had on GPUs when all was parked that could be. UNKNOWN: more may be there.
        self._stayed: int | Unknown = UNKNOWN
        self.is_told = False  # the cell that runs has printed what is parked, or parks

    def note_everything(self, *, is_everything: bool) -> None:
        """Note that all that could leave the GPUs is parked now, or that this is so no more."""
        self._stayed = _bytes_in_use() if is_everything else UNKNOWN

    def is_everything(self) -> bool:
        """Return whether all is parked that could leave the GPUs, and nothing new is there.

        This runs around each cell while something is parked. Frameworks that do not count their memory are
        taken at their word.
        """
        if self._stayed is not UNKNOWN:
            now = UNKNOWN if next(iter(self), None) is None else _bytes_in_use()
            # What has gone since may not come back unseen.
            self._stayed = UNKNOWN if now is UNKNOWN or now > self._stayed else now
        return self._stayed is not UNKNOWN

    def replace(self, items: Iterable[Item]) -> None:
        """Forget all that is parked, and remember these items."""
        self._entries = tuple(
            (
                tuple(map(_weak, one.known_by)),
                tuple(map(_weak, one.arrays)),
                one.framework,
                one.device,
                one.nbytes,
            )
            for one in items
        )

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Have no weak references in a block, in which tensors can be swapped. Then forget what has left."""
        items = list(self)
        self.replace(())
        try:
            yield
        finally:
            self.replace(items)
            self.replace(list(self))

    def __iter__(self) -> Iterator[Item]:
        """Yield what is still there."""
        for refs, array_refs, framework, device, nbytes in self._entries:
            known_by = [ref() for ref in refs]
            arrays = [array for ref in array_refs if (array := ref()) is not None]
            is_there = not any(one is None for one in known_by)
            if is_there and all(_is_on_cpu(array, framework) for array in arrays):
                yield Item(known_by, arrays, framework, device, nbytes)

    def gpus(self) -> dict[int, LogicalDevice]:
        """Return the GPU that each array was on, by the array's id."""
        return {id(array): item.device for item in self for array in item.arrays}

    def nbytes(self) -> Mapping[LogicalDevice, int]:
        """Return the bytes by the GPU that they were on."""
        found: dict[LogicalDevice, int] = {}
        for item in self:
            found[item.device] = found.get(item.device, 0) + item.nbytes
        return found

    def __str__(self) -> str:
        return parked_text(self.nbytes())


def parked_text(sizes: Mapping[LogicalDevice, int]) -> str:
    """Return `6.2 GiB from cuda:0 and 1.0 GiB from cuda:1`. Empty if there is nothing."""
    names = sorted(sizes, key=str)
    return listed([f"{size_text(sizes[device])} from {device}" for device in names if sizes[device]])


def parked_line() -> str:
    """Return what is parked, and how it comes back, for the output of a cell. Empty if nothing is."""
    parked.is_told = True
    there = str(parked)
    return f"Variables are parked on the CPU: {there}. To bring them back: %gpu_unpark" if there else ""


def known_by(obj: Any) -> Sequence[Any]:
    """Return what an object is known by: see `Item`."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and issubclass(type(obj), torch.Tensor):
        from gpu_magic.frameworks.torch_objects import inner_tensors, is_wrapper  # only for PyTorch

        return (is_wrapper(type(obj)) and inner_tensors(obj)) or [obj]
    return [obj]


def _is_on_cpu(array: Any, framework: Framework) -> bool:
    is_copy = not framework.is_array(type(array))  # CuPy's arrays are NumPy's meanwhile
    return is_copy or all(one.device == CPU for one in framework.holdings(array))


def _bytes_in_use() -> int | Unknown:
    with contextlib.suppress(Exception):  # after a CUDA error, each call can raise it again
        return sum(pool.used for framework in imported() for pool in framework.pools().values())
    return UNKNOWN


def _weak(obj: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(obj)
    except TypeError:  # a type without weak references
        return lambda: obj


parked = _Lot()


def tell_next_cell(shell: Any) -> None:
    """Show a line at the end of the next cell if something is still parked then.

    Hidden cells do not count, nor do cells whose own output has the line.
    """
    if shell is not None:
        parked.is_told = True  # by the output of what parks
        for event, call in _HOOKS:
            shell.events.register(event, call)


def stop_telling(shell: Any) -> None:
    """Show nothing in the next cell."""
    for event, call in _HOOKS:
        if call in shell.events.callbacks[event]:
            shell.events.unregister(event, call)


def _cell_begins(info: Any = None) -> None:
    if getattr(info, "store_history", True):
        parked.is_told = False


def _cell_ends(result: Any = None) -> None:
    # ipykernel has no result of an interrupted cell that awaits.
    if getattr(getattr(result, "info", None), "store_history", True) and not parked.is_told:
        stop_telling(sys.modules["IPython"].get_ipython())
        if line := parked_line():
            show(line)


_HOOKS = (("pre_run_cell", _cell_begins), ("post_run_cell", _cell_ends))
