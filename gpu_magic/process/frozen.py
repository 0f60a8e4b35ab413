"""What is known of a process in which CUDA was initialised: since when, by what, and what it has."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from gpu_magic.process.driver import State, loaded

__all__ = ["Probe", "Sighting", "look"]


class Sighting(NamedTuple):
    """When CUDA was first seen to be initialised, and through what.

    Parameters
    ----------
    when
        `in cell [4]`, or `before gpu_magic was loaded`; empty outside IPython.
    by
        `import kornia`, `PyTorch`; empty where it can't be told.

    """

    when: str
    by: str = ""


class Probe(NamedTuple):
    """The driver's answer.

    Parameters
    ----------
    state
        Live or frozen.
    devices
        What the process is frozen to: for `cuda:0`, `cuda:1`, … the 16 bytes of the UUID as text,
        without "GPU-" or "MIG-", which the driver does not give.

    """

    state: State
    devices: tuple[str, ...] = ()


def look(state: State) -> Probe:
    """Tell what the process is frozen to, where `probe` says that it is."""
    library = loaded()
    if state is not State.FROZEN or library is None:
        return Probe(state)
    count = ctypes.c_int()
    if library.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return Probe(state)  # initialised without any device: an empty mask
    devices = []
    for ordinal in range(count.value):
        device = ctypes.c_int()
        if library.cuDeviceGet(ctypes.byref(device), ordinal) != 0:
            break
        devices.append(_uuid(library, device))
    return Probe(state, tuple(devices))


def _uuid(library: Any, device: ctypes.c_int) -> str:
    import uuid

    raw = (ctypes.c_ubyte * 16)()
    # Version 2 (CUDA 11.4) gives a MIG instance's own UUID, version 1 its GPU's.
    ask = getattr(library, "cuDeviceGetUuid_v2", None) or library.cuDeviceGetUuid
    return str(uuid.UUID(bytes=bytes(raw))) if ask(ctypes.byref(raw), device) == 0 else ""
