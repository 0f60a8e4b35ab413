"""The variables that tell frameworks which rank an engine is, and where the others are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_magic.launching.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["LOCAL", "RANK_VARIABLES", "Meeting", "rank_variables"]

LOCAL = "127.0.0.1"
# What makes a process a rank: our own (`rank_variables`), and those of MPI and srun.
RANK_VARIABLES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("JAX_COORDINATOR_ADDRESS", "TF_CONFIG"),
    *(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "NODE_RANK")),
    *(f"MV2_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")),
    *("PMI_RANK", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NPROCS"),
)


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the ranks meet.

    Parameters
    ----------
    address
        Of the host of rank 0, for the others.
    torch, jax
        The ports there of PyTorch's store and of JAX's coordinator.
    tensorflow
        An address with a port for each rank: that of its TensorFlow server.

    """

    address: str
    torch: int
    jax: int
    tensorflow: tuple[str, ...]

    @classmethod
    def on_one_host(cls, count: int) -> Meeting:
        """Return a meeting of this many ranks on this host, at ports that are free now."""
        return cls.of([LOCAL] * count, {LOCAL: free_ports(count + 2)})

    @classmethod
    def of(cls, addresses: Sequence[str], ports: Mapping[str, Sequence[int]]) -> Meeting:
        """Return the meeting of some ranks.

        Parameters
        ----------
        addresses
            Of each rank's host, in their order.
        ports
            Free ones of each host: as many as it has ranks, and two more where rank 0 is.

        """
        left = {address: iter(free) for address, free in ports.items()}
        torch, jax = (next(left[addresses[0]]) for _ in range(2))
        return cls(
            addresses[0], torch, jax, tuple(f"{address}:{next(left[address])}" for address in addresses)
        )


def rank_variables(rank: int, meeting: Meeting) -> dict[str, str]:
    """Return what an engine's environment says of its rank.

    PyTorch reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (torch.distributed, "Environment variable
    initialization"), TensorFlow TF_CONFIG ("Multi-worker training with Keras"), and JAX
    JAX_COORDINATOR_ADDRESS; the rest JAX is told by `jax_ranks`. LOCAL_RANK is 0: PyTorch's guides use it as
    the index of a rank's GPU (`torch.cuda.set_device(LOCAL_RANK)`), and an engine sees its own alone.
    """
    task = {"cluster": {"worker": list(meeting.tensorflow)}, "task": {"type": "worker", "index": rank}}
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(meeting.tensorflow)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": meeting.address,
        "MASTER_PORT": str(meeting.torch),
        "JAX_COORDINATOR_ADDRESS": f"{meeting.address}:{meeting.jax}",
        "TF_CONFIG": json.dumps(task),
    }
