"""A claim, and the result of its program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Claim", "Need", "NotTriedError", "Outcome", "Program", "Seen", "claim", "measurement"]

# The needs that a claim can have of a machine. `needs.py` finds out whether they are met.
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
    """The result of a program.

    Parameters
    ----------
    is_so
        Whether the claim holds. It means nothing for a measurement.
    what
        The observation, as a phrase.
    figures
        Numbers by their names, which include the unit.

    """

    is_so: bool
    what: str
    figures: dict[str, float] = {}  # noqa: RUF012 - never changed


class NotTriedError(Exception):
    """A program found that its claim cannot be tried here. The text is the reason."""


Program: TypeAlias = "Callable[..., Seen]"


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim.

    Parameters
    ----------
    name
        The claim's program: ``driver.before_and_after``, the module below `programs` and the function. If one function
        tries several claims, a colon and a name follow.
    sentence
        The claim, as a sentence for administrators. For a measurement, the thing that is measured.
    where
        The file below `gpu_magic` that relies on the claim.
    needs
        The needs of the claim.
    is_judged
        False for a measurement.
    arguments
        The arguments of the function, as JSON.

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
    """Make the function the program of a claim; see `Claim`."""
    return _maker(sentence, where, needs, is_judged=True)


def measurement(sentence: str, where: str, *needs: Need) -> Callable[[Program], Program]:
    """Make the function the program of a measurement, which is reported and not judged."""
    return _maker(sentence, where, needs, is_judged=False)


def _maker(
    sentence: str, where: str, needs: tuple[Need, ...], *, is_judged: bool
) -> Callable[[Program], Program]:
    def make(program: Program) -> Program:
        name = f"{program.__module__.rpartition('.')[2]}.{program.__name__}"
        program.claim = Claim(name, sentence, where, needs, is_judged)  # type: ignore[attr-defined]
        return program

    return make
