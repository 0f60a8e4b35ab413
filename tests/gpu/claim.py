"""What a claim is, and what a program says of one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Claim", "Need", "NotTriedError", "Outcome", "Program", "Seen", "claim", "measurement"]

# What a claim can need of a machine: `needs.py` says whether it is there.
Need: TypeAlias = Literal[
    "a driver",
    "whole GPUs",
    "two GPUs",
    "GPUs that are alike",
    "GPUs that differ",
    "MIG",
    "MPS",
    "nvidia-smi",
    "ipykernel",
    "an accelerator of PyTorch's",
    "PyTorch for CUDA",
    "TensorFlow for CUDA",
    "JAX for CUDA",
    "CuPy",
]
Outcome: TypeAlias = Literal["confirmed", "contradicted", "not tried", "measured"]


class Seen(NamedTuple):
    """What a program has seen.

    Parameters
    ----------
    is_so
        Whether it is what is claimed; of a measurement it says nothing.
    what
        What was seen, as a phrase.
    figures
        Numbers by their names, which say the unit.

    """

    is_so: bool
    what: str
    figures: dict[str, float] = {}  # noqa: RUF012 - never changed


class NotTriedError(Exception):
    """A program has found that it can't be tried here; the text says why."""


Program: TypeAlias = "Callable[..., Seen]"


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim.

    Parameters
    ----------
    name
        Its program: ``driver.before_and_after``, the module below `programs` and the function; and what follows a
        colon where one function is for several.
    sentence
        What is claimed, as a sentence for administrators. Of a measurement, what is measured.
    where
        The file that relies on it, below `gpu_magic`.
    needs
        What has to be there to try it.
    is_judged
        False for a measurement.
    arguments
        What the function is called with, as JSON.

    """

    name: str
    sentence: str
    where: str
    needs: tuple[Need, ...]
    is_judged: bool = True
    arguments: tuple[Any, ...] = field(default=())

    @property
    def program(self) -> str:
        return self.name.partition(":")[0]


def claim(sentence: str, where: str, *needs: Need) -> Callable[[Program], Program]:
    """Make a claim of the function that finds out; see `Claim`."""
    return _maker(sentence, where, needs, is_judged=True)


def measurement(sentence: str, where: str, *needs: Need) -> Callable[[Program], Program]:
    """Make a measurement of the function that measures: it is reported, and not judged."""
    return _maker(sentence, where, needs, is_judged=False)


def _maker(
    sentence: str, where: str, needs: tuple[Need, ...], *, is_judged: bool
) -> Callable[[Program], Program]:
    def make(program: Program) -> Program:
        name = f"{program.__module__.rpartition('.')[2]}.{program.__name__}"
        program.claim = Claim(name, sentence, where, needs, is_judged)  # type: ignore[attr-defined]
        return program

    return make
