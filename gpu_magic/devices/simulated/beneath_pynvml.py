"""Puts a simulated machine beneath pynvml, in place of the library that it calls."""

from __future__ import annotations

import contextlib
import os
import re
from itertools import takewhile
from typing import TYPE_CHECKING

from gpu_magic.devices.binding import pynvml
from gpu_magic.devices.processes import owner_name
from gpu_magic.devices.simulated.library import SimulatedLibrary
from gpu_magic.devices.simulated.machine import Machine
from gpu_magic.errors import SimulationError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["beneath", "ensure", "leave", "machine_of"]


@contextlib.contextmanager
def beneath(machine: Machine) -> Iterator[Machine]:
    """Let pynvml read a simulated machine within a `with` block."""
    before = _put_beneath(SimulatedLibrary(machine), users=0)
    try:
        yield machine
    finally:
        _put_beneath(*before)


# What pynvml called before GPU_MAGIC_SIMULATE put a machine there.
_left: list[tuple[object, int]] = []


def ensure(described: str) -> None:
    """Let pynvml read the machine that GPU_MAGIC_SIMULATE describes, with processes on it, until `leave`.

    Parameters
    ----------
    described
        A profile, and options after it: `8xA100-80GB seed=3 clock=0` (a constant clock); `own=2:12GiB:60`:
        this process has 12 GiB on GPU 2, and keeps it busy for 60 % of the time.

    Raises
    ------
    SimulationError
        The text describes no machine.

    """
    all_words = described.split()
    of_profile = list(takewhile(lambda word: "=" not in word, all_words))  # `2x h100`, which is refused whole
    profile, words = " ".join(of_profile), all_words[len(of_profile) :]
    options: dict[str, int] = {}
    own: re.Match[str] | None = None
    for word in words:
        match = re.fullmatch(r"(seed|clock)=([0-9]{1,9})", word)
        own = re.fullmatch(r"own=([0-9]{1,3}):([0-9]{1,3})GiB:([0-9]{1,2}|100)", word) or own
        if match:
            options[match[1]] = int(match[2])
        elif not word.startswith("own=") or own is None:
            known = "seed=N, clock=SECONDS or own=GPU:SIZEGiB:PERCENT"
            raise SimulationError(f"GPU_MAGIC_SIMULATE={described}: {word!r} is not {known}.")
    there = machine_of(pynvml.nvmlLib)
    if there and there.described_by in (described, ""):  # "": a `with beneath` block is in force
        return
    machine = Machine(profile, seed=options.get("seed", 0))
    machine.described_by = described
    if "clock" in options:
        machine.clock = lambda: float(options["clock"])
    machine.populate()
    if own is not None:
        _work(machine, *map(int, own.groups()))
    leave()
    _left.append(_put_beneath(SimulatedLibrary(machine), users=0))


def _work(machine: Machine, index: int, size: int, percent: int) -> None:
    """Have this process work on a GPU, alone.

    Raises
    ------
    SimulationError
        The machine has no such GPU.

    """
    if index >= len(machine.gpus):
        raise SimulationError(f"GPU_MAGIC_SIMULATE: {machine.profile} has no GPU {index} for own={index}:….")
    gpu = machine.gpus[index]
    gpu.processes.clear()
    owner = owner_name(os.getuid()) if hasattr(os, "getuid") else "me"
    gpu.run("ipykernel", owner, size << 30, pid=os.getpid(), work=percent)


def leave() -> None:
    """Take the machine of `ensure` away, where pynvml still reads it."""
    there = machine_of(pynvml.nvmlLib)
    if _left and there and there.described_by:
        _put_beneath(*_left.pop())


def machine_of(library: object) -> Machine | None:
    """Return the machine of a simulated library; None for another library."""
    return library.machine if isinstance(library, SimulatedLibrary) else None


def _put_beneath(library: object, users: int) -> tuple[object, int]:
    """Replace the library that pynvml calls; return what it called before."""
    before = pynvml.nvmlLib, pynvml._nvmlLib_refcount  # noqa: SLF001
    pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001
    pynvml.nvmlLib, pynvml._nvmlLib_refcount = library, users  # noqa: SLF001
    return before
