"""A fault: what fails, how it is made, and which faces it is not tried with, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.machine import CARDS, Driver

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HEALTHY", "Fault", "Variant"]

HEALTHY = Driver(CARDS)


@dataclass(frozen=True)
class Variant:
    """One way in which a fault shows itself.

    Parameters
    ----------
    driver
        The machine with the fault.
    code
        What is run in the kernel to have the fault: a fault of the system is told to the stand-in for it by
        variables.
    name
        What tells it from the fault's others; empty for one that is alone.
    unfit
        The GPUs that `auto` must not pick, by their indices.

    """

    driver: Driver = HEALTHY
    code: str = ""
    name: str = ""
    unfit: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Fault:
    """Something that fails.

    Parameters
    ----------
    name
        A word for tests and links.
    title
        The fault in a few words, as the first cell of its row.
    made
        How the tests make it, as a sentence.
    variants
        The ways in which it shows itself; each is tried.
    has_driver
        Whether the driver's libraries are there.
    chosen_before
        Whether GPUs are chosen before it happens.
    omitted
        Faces that it is not tried with, by name, and why.

    """

    name: str
    title: str
    made: str
    variants: tuple[Variant, ...] = (Variant(),)
    has_driver: bool = True
    chosen_before: bool = False
    omitted: Mapping[str, str] = field(default_factory=dict)
