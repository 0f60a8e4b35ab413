"""What an engine that others have started says of itself, and what it is told: called there by name."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_magic.engines.in_engine import host, this_process
from gpu_magic.engines.jax_ranks import tell_jax
from gpu_magic.errors import ChoiceError
from gpu_magic.gpus.apply import apply
from gpu_magic.process.drivers import State
from gpu_magic.process.find import mig_instances, whole_gpus
from gpu_magic.process.given import Given
from gpu_magic.process.session import current
from gpu_magic.process.view import ask_guard, read_machine
from gpu_magic.process.visible import seen_vendor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_magic.devices.model import Device, Inventory
    from gpu_magic.launching.guardian import Process
    from gpu_magic.process.guard import Guard

__all__ = ["Introduction", "introduce", "read_gpus", "settle", "too_late", "version"]


@dataclass(frozen=True, slots=True)
class Introduction:
    """What an engine says of itself that somebody else has started.

    Parameters
    ----------
    version
        That of gpu_magic there.
    host
        Its machine.
    process
        Its number there, and its start in clock ticks.
    devices
        What it was given there and could be used: whole GPUs, else MIG instances. They are of one vendor, as
        a process can't use those of both.
    guard
        Whether CUDA, or ROCm, has been initialized there.
    is_simulated
        Whether these GPUs do not exist.
    problem
        Why it is not known what it was given, as a sentence; empty where it is.

    """

    version: str
    host: str
    process: Process
    devices: tuple[Device, ...]
    guard: Guard
    is_simulated: bool
    problem: str


def introduce() -> Introduction:
    """Say what this engine is, and what it was given. Nothing is changed."""
    session = current()
    inventory = read_machine(session)
    devices: tuple[Device, ...] = ()
    problem = inventory.problem
    try:
        seen = inventory.of_vendor(seen_vendor(session.inherited, inventory))
        pool = Given(seen, session.inherited, session.grant).pool
        devices = whole_gpus(pool) or mig_instances(pool)
    except ChoiceError as error:
        problem = problem or str(error)
    return Introduction(
        version(), host(), this_process(), devices, ask_guard(session), bool(inventory.simulated), problem
    )


def version() -> str:
    """Return that of gpu_magic in this process."""
    found: str = sys.modules["gpu_magic"].__version__
    return found


def too_late(guard: Guard) -> str:
    """Return why an engine can't be given GPUs any more, as a clause."""
    if guard.state is State.FROZEN:
        return f"{guard.runtime} was {guard.seen} there, with {guard.frozen_to}"
    return str(guard)


def settle(uuids: Sequence[str], variables: Mapping[str, str]) -> str:
    """Have frameworks see these GPUs in this engine, and tell it its rank.

    Parameters
    ----------
    uuids
        Of the GPUs, in the order of `cuda:0`, `cuda:1`, …
    variables
        Those that say which rank it is.

    Returns
    -------
    str
        Why that can't be, as a clause, and nothing was changed; empty where it is done.

    """
    session = current()
    try:
        outcome = apply(session, ",".join(uuids))
    except ChoiceError as error:
        return str(error).rstrip(".")
    if outcome.too_late:
        return too_late(outcome.too_late.guard)
    for name, value in variables.items():
        session.environment.set(name, value)
    tell_jax()
    return ""


def read_gpus() -> Inventory:
    """Return the GPUs of this engine's machine, with figures of now."""
    return read_machine(current())
