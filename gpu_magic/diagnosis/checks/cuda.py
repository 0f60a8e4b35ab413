"""Whether CUDA can be used in this process: started without GPUs, before a fork, or not able to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.diagnosis.checks.visible_devices import choose_meant
from gpu_magic.diagnosis.commands import choose, restart
from gpu_magic.diagnosis.finding import Finding
from gpu_magic.diagnosis.known import on_host, system
from gpu_magic.process.state import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.diagnosis.facts import Facts, Kernel, System

__all__ = ["check_cuda"]

_SPAWN = 'multiprocessing.set_start_method("spawn", force=True)'
# By the error that CUDA answers with: see `process.guard`.
_MENDS = {
    34: "export LD_LIBRARY_PATH=",
    802: "sudo systemctl restart nvidia-fabricmanager",
    803: "sudo reboot",
    804: "sudo sh -c 'mv /usr/local/cuda/compat /usr/local/cuda/compat.unused && ldconfig'",
    999: "sudo sh -c 'modprobe -r nvidia_uvm && modprobe nvidia_uvm'",
}
# What is mended for all containers of a machine at once; a folder for compatibility is the container's own.
_OF_HOST = {802, 803, 999}


def check_cuda(facts: Facts) -> Iterator[Finding]:
    kernel = facts.kernel
    if kernel is UNKNOWN:
        return
    guard = kernel.guard
    about = guard.runtime
    if guard.state is State.FROZEN and guard.is_known and not guard.devices:
        yield _started_without(kernel, None if facts.machine is UNKNOWN else facts.machine)
    elif guard.state is State.FORKED:
        what = f"{about} was started before this process was forked off, so it can't be used here at all."
        meaning = (
            "Workers of a DataLoader or of multiprocessing do that; in the process that starts them, before:"
        )
        yield Finding("wrong", about, what, meaning, _SPAWN)
    elif guard.state is State.UNCLEAR:
        what = f"This process was forked off with {about}'s library loaded."
        meaning = (
            f"If {about} was started before that, it can't be used here. In the process that forks, before:"
        )
        yield Finding("worth knowing", about, what, meaning, _SPAWN)
    elif guard.state is State.BROKEN:
        yield _unusable(kernel, about, system(facts))


def _unusable(kernel: Kernel, about: str, where: System | None) -> Finding:
    """Say why CUDA can't be started, and what an administrator can do about it."""
    error, what = kernel.guard.error, f"{about} {kernel.guard.sentence}."
    if error not in _MENDS:
        return Finding("wrong", about, what)
    place = "It is for the host of this container. " if error in _OF_HOST and on_host(where) else ""
    return Finding("wrong", about, what, f"{place}After that: {restart(kernel.program)}", _MENDS[error])


def _started_without(kernel: Kernel, machine: Inventory | None) -> Finding:
    guard = kernel.guard
    what = f"{guard.runtime} was {guard.seen} while no GPU was visible to it, and keeps that."
    if machine is None:
        mend = choose(kernel.program, "auto", is_too_late=True)
    else:
        mend = choose_meant(kernel, machine, is_too_late=True)
    meaning = "What is set or chosen later has no effect on this process."
    if kernel.program != "kernel":
        meaning += f" {restart(kernel.program)} Then, before anything uses {guard.runtime}:"
    return Finding(
        "worth knowing" if kernel.chosen == "none" else "wrong", guard.runtime, what, meaning, mend
    )
