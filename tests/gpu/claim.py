"""A claim, and the result of its program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Claim", "Need", "NotTriedError", "Program", "Seen", "claim", "measurement"]

# The needs that a claim can have of a machine: `machine.py` finds out whether they are met.
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


class Seen(NamedTuple):
    """The result of a program."""

    is_so: bool  # whether the claim holds; it means nothing for a measurement
    what: str  # the observation, as a phrase
    figures: dict[str, float] = {}  # noqa: RUF012 - never changed; numbers by their names, with the unit


class NotTriedError(Exception):
    """A program found that its claim cannot be tried here. The text is the reason."""


Program: TypeAlias = "Callable[..., Seen]"


class Claim(NamedTuple):
    """A claim."""

    # Its program: `driver.before_and_after`, the module below `programs` and the function. If one function tries
    # several claims, a colon and a name follow.
    name: str
    sentence: str  # for administrators; for a measurement, the thing that is measured
    where: str  # the file below `gpu_magic` that relies on it
    needs: tuple[Need, ...]
    is_judged: bool = True  # False for a measurement
    arguments: tuple[Any, ...] = ()  # of the function, as JSON


def claim(sentence: str, where: str, *needs: Need) -> Callable[[Program], Program]:
    """Make the function the program of a claim."""
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
