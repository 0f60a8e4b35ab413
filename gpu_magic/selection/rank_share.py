"""Answers `auto:2` in one of several ranks: each takes the next two of those that all of them were given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.errors import ChoiceError
from gpu_magic.text import counted, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.devices.model import Gpu
    from gpu_magic.selection.options import Options

__all__ = ["take_share"]


def take_share(
    count: int, gpus: Sequence[Gpu], rank: tuple[int, int], options: Options
) -> tuple[tuple[Gpu, ...], str]:
    """Return the GPUs of a rank, and why these, as a sentence.

    What a GPU does at the moment does not count: ranks do not look in the same moment, and each has to come
    to the same division.

    Parameters
    ----------
    count
        How many each rank asks for.
    gpus
        Those that all ranks were given, in their order.
    rank
        Which rank of this machine it is, and how many there are.
    options
        Those of the choice.

    Raises
    ------
    ChoiceError
        There are not enough for all ranks, or a bound is given.

    """
    number, size = rank
    if options.filters:
        raise ChoiceError(f"In a rank auto takes its share, whatever the GPUs do: omit{options.filters}.")
    if len(gpus) < size * count:
        raise ChoiceError(
            f"auto:{count} in each of {size} ranks on this machine asks for {counted(size * count, 'GPU')}, "
            f"and they were given {len(gpus)}."
        )
    share = tuple(gpus[number * count : (number + 1) * count])
    names = listed(gpu.label for gpu in share)
    return share, f"{names}: the share of rank {number}, one of {size} on this machine."
