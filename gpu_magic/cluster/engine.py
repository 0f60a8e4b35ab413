"""The program of an engine, and what makes it a rank.

`python -m gpu_magic.cluster.engine` runs ipyparallel's engine, with its options.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from gpu_magic.frameworks.post_import import PostImportHook
from gpu_magic.frameworks.private import private_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["LOCAL", "main", "rank_variables", "tell_jax"]

LOCAL = "127.0.0.1"


def main() -> None:
    """Run ipyparallel's engine. Write the Python frames of a crash to its log, which is its error output."""
    tell_jax()
    log = os.dup(2)
    faulthandler.enable(log, all_threads=False)
    from ipyparallel.engine.app import IPEngine

    class Engine(IPEngine):  # type: ignore[misc] # ipyparallel has no types
        """ipyparallel's engine, which goes on if its log is full."""

        def redirect_output(self, iopub_socket: Any) -> None:
            # From here on, a thread of ipykernel shows what is written to descriptors 1 and 2, and copies it
            # to their files. If that fails, the thread ends, and all that write wait forever.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for descriptor in 1, 2:
                os.dup2(nowhere, descriptor)
            os.close(nowhere)
            super().redirect_output(iopub_socket)

    Engine.launch_instance()


def rank_variables(hosts: Sequence[str], ports: Mapping[str, Sequence[int]]) -> list[dict[str, str]]:
    """Return the variables of each rank.

    PyTorch reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (torch.distributed, "Environment variable
    initialization"). TensorFlow reads TF_CONFIG ("Multi-worker training with Keras"). JAX reads
    JAX_COORDINATOR_ADDRESS, and gets the rest from `tell_jax`. LOCAL_RANK is 0, because PyTorch's guides use
    it as the index of a rank's GPU (`torch.cuda.set_device(LOCAL_RANK)`), and an engine sees only its GPU.
    `hosts` has the address of each rank's host. `ports` has a port for each rank of a host, and two more.
    """
    free = {host: iter(some) for host, some in ports.items()}
    torch, jax = next(free[hosts[0]]), next(free[hosts[0]])
    workers = [f"{host}:{next(free[host])}" for host in hosts]
    return [
        {
            "GPU_MAGIC_INDEX": str(rank),
            "GPU_MAGIC_COUNT": str(len(hosts)),
            "RANK": str(rank),
            "WORLD_SIZE": str(len(hosts)),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": hosts[0],
            "MASTER_PORT": str(torch),
            "JAX_COORDINATOR_ADDRESS": f"{hosts[0]}:{jax}",
            "TF_CONFIG": json.dumps(
                {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
            ),
        }
        for rank in range(len(hosts))
    ]


def tell_jax() -> None:
    """Let `jax.distributed.initialize()` find this process's rank without arguments.

    JAX asks its cluster environments, which are the subclasses of `ClusterEnv`
    (jax/_src/clusters/cluster.py).
    """
    if "jax" in sys.modules:
        _add_environment("jax")
    else:
        PostImportHook(["jax"], _add_environment).attach()


def _add_environment(jax: str) -> None:
    clusters: Any = getattr(getattr(sys.modules[jax], "_src", None), "clusters", None)
    base: Any = getattr(clusters, "ClusterEnv", None)
    known: Any = private_of(base, "jax._src.clusters:ClusterEnv._cluster_types")
    if not isinstance(known, list) or any(one.name == "gpu_magic" for one in known):
        return  # in a JAX with another structure, `initialize` needs its arguments

    class Engines(base):  # type: ignore[misc]
        """The engines that gpu_magic has set up."""

        name = "gpu_magic"

        @classmethod
        def is_env_present(cls) -> bool:
            return {"RANK", "WORLD_SIZE", "JAX_COORDINATOR_ADDRESS"} <= os.environ.keys()

        @classmethod
        def get_coordinator_address(cls, *_: object, **__: object) -> str:
            return os.environ["JAX_COORDINATOR_ADDRESS"]

        @classmethod
        def get_process_count(cls) -> int:
            return int(os.environ["WORLD_SIZE"])

        @classmethod
        def get_process_id(cls) -> int:
            return int(os.environ["RANK"])

    # First, because a scheduler's job can have more processes than engines, and in another order.
    known.insert(0, known.pop(known.index(Engines)))


if __name__ == "__main__":
    main()
