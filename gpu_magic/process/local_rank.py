"""Which of several ranks on this machine a process is, as its launcher says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["local_rank"]

# A rank among those of this machine, and how many these are: torchrun, Accelerate and DeepSpeed; Open MPI;
# MPICH and Intel MPI.
_PAIRS = (
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)


def local_rank(environment: Mapping[str, str]) -> tuple[int, int] | None:
    """Return which rank of its machine a process is, and how many there are; None where it is alone.

    Parameters
    ----------
    environment
        Its variables.

    """
    pairs = [(environment.get(rank, ""), environment.get(size, "")) for rank, size in _PAIRS]
    pairs.append((environment.get("SLURM_LOCALID", ""), _tasks_of_node(environment)))
    for rank, size in pairs:
        if _is_number(rank) and _is_number(size) and int(rank) < int(size) and int(size) > 1:
            return int(rank), int(size)
    return None


def _tasks_of_node(environment: Mapping[str, str]) -> str:
    """Return how many tasks srun has started on this node: `2(x3),1` is 2 on each of three, and 1."""
    tasks = re.findall(r"(\d{1,6})(?:\(x(\d{1,6})\))?", environment.get("SLURM_STEP_TASKS_PER_NODE", ""))
    node = environment.get("SLURM_NODEID", "0")
    left = int(node) if _is_number(node) else 0
    for count, nodes in tasks:
        left -= int(nodes or 1)
        if left < 0:
            return str(count)
    return ""


def _is_number(text: str) -> bool:
    """Return whether a text is a number of ranks or nodes; `int` raises for thousands of digits."""
    return bool(re.fullmatch(r"[0-9]{1,9}", text))
