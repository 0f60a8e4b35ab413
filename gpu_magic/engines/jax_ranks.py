"""Tells JAX, in an engine, which rank it is: `jax.distributed.initialize()` needs no arguments then.

JAX asks its cluster environments, and a class that is derived from `ClusterEnv` is one of them
(jax/_src/clusters/cluster.py).
"""

from __future__ import annotations

import os
import sys
from typing import Any

from gpu_magic.frameworks.post_import import PostImportHook

__all__ = ["tell_jax"]


def tell_jax() -> None:
    """Tell JAX as soon as it is imported; again for a process that knows already, nothing happens."""
    if "jax" in sys.modules:
        _add_environment("jax")
    else:
        PostImportHook(["jax"], _add_environment).attach()


def _add_environment(jax: str) -> None:
    clusters: Any = getattr(getattr(sys.modules[jax], "_src", None), "clusters", None)
    base: Any = getattr(clusters, "ClusterEnv", None)
    known: Any = getattr(base, "_cluster_types", None)
    if not isinstance(known, list) or any(one.name == "gpu_magic" for one in known):
        return  # a JAX of another structure asks for the arguments

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

    # Before a scheduler's: engines can be fewer than its job has processes, and in another order.
    known.insert(0, known.pop(known.index(Engines)))
