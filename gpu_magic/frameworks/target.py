"""Parses the names of devices, `0`  `cuda:1`  `/GPU:0`  `smi:3`  `GPU-8f3a`  `cpu:2`, into targets."""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType

from gpu_magic.devices.model import Gpu, MigInstance
from gpu_magic.errors import PlacementError
from gpu_magic.text import with_article

__all__ = [
    "CPU",
    "Block",
    "LogicalDevice",
    "PhysicalDevice",
    "Target",
    "blocks_here",
    "can_name_device",
    "is_target",
    "normalize_device",
    "parse_targets",
    "read_uuid",
    "without_brackets",
]


class Block:
    """A block that runs, for contexts: they can outlive it, and must not keep its variables."""

    def __init__(self) -> None:
        self.used_by_others: set[int] = set()  # GPUs that other asyncio tasks have used meanwhile


# The blocks around the code that runs: each asyncio task has its own, also if tasks take turns in a thread.
blocks_here: ContextVar[tuple[Block, ...]] = ContextVar("blocks_here", default=())
_EXPECTED = "0, cuda:0, /GPU:0, smi:3 (nvidia-smi's number), a UUID prefix (GPU-8f3a), cpu, cpu:2 or xpu:0"
# TensorFlow's names can start with the job of this process, and contain "device:".
_SPELLING = r"(?:/job:localhost/replica:0/task:0)?/?(?:(?:physical_)?device:)?([a-z]\w*?):([0-9]{1,4})"
# The text of `{device}` for device objects of TensorFlow and CuPy, and the device that they name.
_OBJECTS = (
    (r"(?:Physical|Logical)Device\(name='([^']*)', device_type='\w*'\)", r"\1"),
    (r"<CUDA Device ([0-9]+)>", r"cuda:\1"),
)
_UUID = r"(GPU-|MIG-|MIG-GPU-)([0-9a-f-]*(?:/[0-9]{1,4}/[0-9]{1,4})?)"
_WITHOUT_INDEX = ("cpu", "mps")  # may be named without a number
_NO_DEVICES = (type(None), bool, bytes, set, frozenset, dict, ModuleType)


@dataclass(frozen=True, slots=True)
class LogicalDevice:
    """A device as the frameworks of this process number it: `cuda:1`, `cpu`.

    Parameters
    ----------
    kind
        "cpu", or "gpu" for any accelerator.
    index
        The i of `cuda:i`. For the CPU, the i of TensorFlow's and JAX's logical CPUs.
    type
        PyTorch's name of the accelerator: "cuda", "xpu", "mps". Empty if the user named none (`0`, `gpu:0`),
        which means the accelerator of the framework. Always empty for the CPU.

    """

    kind: str
    index: int
    type: str = ""

    def __str__(self) -> str:
        if self.kind == "cpu":
            return f"cpu:{self.index}" if self.index else "cpu"
        return f"{self.type or 'cuda'}:{self.index}"


CPU = LogicalDevice("cpu", 0)


@dataclass(frozen=True, slots=True)
class PhysicalDevice:
    """A device of the machine: `smi:3`, `GPU-8f3a`.

    Parameters
    ----------
    identifier
        An int is nvidia-smi's or rocm-smi's number of a GPU. A str is the beginning of a UUID, or a MIG
        instance (`2:1`).

    """

    identifier: int | str

    def __str__(self) -> str:
        name = str(self.identifier)
        return f"smi:{name}" if name[0].isdecimal() else name


Target = LogicalDevice | PhysicalDevice


@lru_cache(maxsize=64)
def parse_targets(text: str) -> tuple[Target, ...]:
    """Return the targets that a text names, separated by commas.

    Raises
    ------
    PlacementError
        The text names no device, or a device twice. The message shows valid devices.

    """
    named = text
    for pattern, name in _OBJECTS:
        named = re.sub(pattern, name, named)
    asked = without_brackets(named)
    if not asked:
        raise PlacementError(f"No device is named. Expected {_EXPECTED}.")
    if "{" in asked:
        raise PlacementError(f"{text.strip()!r} is not a variable or an expression that has a value here.")
    entries = [entry.strip("'\" ") for entry in asked.split(",")]
    if "" in entries:
        raise PlacementError("A comma has no device beside it. Name devices like this: 0,1")
    targets = tuple(map(_target, entries))
    if len(set(map(str, targets))) < len(targets):  # `0` and `cuda:0` are one device
        raise PlacementError(f"{asked!r} names a device twice. Try {asked.partition(',')[0]}")
    return targets


def is_target(text: str) -> bool:
    """Return whether `parse_targets` accepts a text."""
    try:
        return bool(parse_targets(text))
    except PlacementError:
        return False


def _target(entry: str) -> Target:
    low = entry.lower()
    if re.fullmatch(r"[0-9]{1,4}", entry):
        return LogicalDevice("gpu", int(entry))
    if low.lstrip("/") in _WITHOUT_INDEX:
        return _logical(low.lstrip("/"), 0)
    if match := re.fullmatch(_SPELLING, entry, re.IGNORECASE):
        name, index = match[1].lower(), int(match[2])
        return PhysicalDevice(index) if name == "smi" else _logical(name, index)
    if match := re.fullmatch(r"smi:([0-9]{1,4}):([0-9]{1,4})", entry, re.IGNORECASE):
        return PhysicalDevice(f"{int(match[1])}:{int(match[2])}")
    if uuid := read_uuid(entry):
        return PhysicalDevice(uuid)
    if re.fullmatch(r"-[0-9]+", entry):
        raise PlacementError(f"{entry!r}: devices are numbered from 0. For the CPU: cpu")
    if number := re.fullmatch(r"(?:gpu|cuda|device)[ _]?([0-9]{1,4})", low):
        raise PlacementError(f"{entry!r} is not a device. Try cuda:{number[1]}")
    if re.fullmatch(r"[0-9]{1,4}:[0-9]{1,4}", entry):
        raise PlacementError(f"{entry!r} is nvidia-smi's name of a MIG instance. Try smi:{entry}")
    if re.fullmatch(r"all|auto(?::[0-9]+)?", low):
        raise PlacementError(f"{entry!r} does not name a device. First run %gpus {entry}, then name 0 here.")
    raise PlacementError(f"{entry!r:.60} is not a device. Expected {_EXPECTED}.")


def _logical(name: str, index: int) -> LogicalDevice:
    if name == "cpu":
        return LogicalDevice("cpu", index)
    return LogicalDevice("gpu", index, "" if name == "gpu" else name)


def without_brackets(text: str) -> str:
    """Remove the brackets and quotes of a list or tuple from a text, for example from the text of `{ids}`."""
    return re.sub(r"^[\[(](.*)[\])]$", r"\1", " ".join(text.split())).strip("'\" ")


def read_uuid(entry: str) -> str:
    """Return a UUID, or its beginning, in the driver's spelling. Empty for another text.

    The driver writes `GPU-` and `MIG-` in upper case and the rest in lower case. Users type either case.
    Before R470, the driver wrote `MIG-GPU-8f3a…/1/0` for a MIG instance.
    """
    match = re.fullmatch(_UUID, entry, re.IGNORECASE)
    return f"{match[1].upper()}{match[2].lower()}" if match else ""


def normalize_device(device: object, device_of: Callable[[object], object] = lambda _: None) -> str:
    """Format a device, or several, as an argument of `%%on_gpu`.

    Parameters
    ----------
    device
        A number, a text, a GPU, a framework's own object, or several of these.
    device_of
        Returns the device that a framework's own object names. None for another object.

    Raises
    ------
    PlacementError
        The object does not name a device.

    """
    if isinstance(device, Gpu):
        return f"smi:{device.index}"
    if (named := device_of(device)) is not None:
        return str(named)
    if isinstance(device, _NO_DEVICES) or callable(device):
        what = f"The module {device.__name__}" if isinstance(device, ModuleType) else f"{device!r:.40}"
        raise PlacementError(f"{what} does not name a device. Try on_gpu(0) or on_gpu('cpu')")
    if isinstance(device, str):
        return device
    if isinstance(device, MigInstance):
        return device.uuid
    if _is_array(device):
        what = with_article(type(device).__name__, "A")
        raise PlacementError(f"{what} does not name a device. Try on_gpu(0) or on_gpu('cpu')")
    with contextlib.suppress(TypeError):
        return str(operator.index(device))  # type: ignore[arg-type] # also an integer of NumPy
    if isinstance(device, Iterable):
        return ",".join(normalize_device(one, device_of) for one in device)
    return str(device)


def can_name_device(device: object) -> bool:
    """Return whether an object's type can name one device. None names the default device."""
    is_pytorch_device = type(device).__name__ == "device"
    if device is None or isinstance(device, str | Gpu | MigInstance) or is_pytorch_device:
        return True
    return hasattr(device, "__index__") and not isinstance(device, bool) and not _is_array(device)


def _is_array(value: object) -> bool:
    """Return whether a value is an array or a tensor. Those of one integer also work as an index."""
    return hasattr(value, "__index__") and hasattr(value, "__iter__")
