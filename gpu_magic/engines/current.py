"""The cluster that this process uses: one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.errors import ClusterError

if TYPE_CHECKING:
    from gpu_magic.engines.cluster import Cluster

__all__ = ["current_cluster", "running_cluster", "use"]

_cluster: Cluster | None = None


def running_cluster() -> Cluster | None:
    """Return the cluster; None where there is none."""
    return _cluster


def current_cluster() -> Cluster:
    """Return the cluster.

    Raises
    ------
    ClusterError
        There is none.

    """
    if _cluster is None:
        raise ClusterError("No engines run here: %gpu_cluster starts one for each GPU.")
    return _cluster


def use(cluster: Cluster | None) -> None:
    """Use another cluster, or none."""
    global _cluster  # noqa: PLW0603 - a notebook has one
    _cluster = cluster
