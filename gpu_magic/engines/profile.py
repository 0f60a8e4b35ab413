"""Starts engines as an IPython profile says, with ipyparallel's launchers: ssh, Slurm, PBS and others."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from IPython.core.profiledir import ProfileDir, ProfileDirError
from IPython.paths import get_ipython_dir

from gpu_magic.engines.join import join
from gpu_magic.engines.start import import_ipyparallel
from gpu_magic.engines.starter import Starter
from gpu_magic.errors import ClusterError
from gpu_magic.text import counted, shortened

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from gpu_magic.engines.cluster import Cluster

__all__ = ["start_profile"]

_AGAIN = 0.05  # seconds between two looks
_LONGEST = 300  # characters of an error


def start_profile(profile: str, count: int | None) -> Cluster:
    """Start a controller and engines as a profile says; return when all engines have their GPUs.

    Parameters
    ----------
    profile
        Its name.
    count
        How many engines; None: as the profile says.

    Raises
    ------
    ClusterError
        One line that says why there are none; nothing of them is left.

    """
    starter = _ProfileStarter(profile, count)
    client = None
    try:
        client = starter.connect()
        return join(client, starter)
    except BaseException:  # an interrupt, too
        if client is not None:
            client.close()
        starter.end()
        raise


class _ProfileStarter(Starter):
    """ipyparallel's `Cluster`, in an event loop of its own: what it has begun can be ended at any time."""

    def __init__(self, profile: str, count: int | None) -> None:
        self._profile, self._count = profile, count
        try:
            ProfileDir.find_profile_dir_by_name(get_ipython_dir(), profile)  # type: ignore[no-untyped-call]
        except ProfileDirError:
            make = f"ipython profile create --parallel {profile}"
            raise ClusterError(f"There is no IPython profile {profile}; {make} makes one.") from None
        # What it logs on the way it would print in the cell.
        self._cluster = import_ipyparallel().Cluster(profile=profile, n=count, log_level=logging.ERROR)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="gpu_magic profile", daemon=True).start()

    def connect(self) -> Any:
        """Start the controller and the engines, and return a client when all engines are there."""
        cluster = self._cluster
        try:
            self._wait_for(cluster.start_cluster(n=self._count))
            client = self._wait_for(cluster.connect_client())
        except Exception as error:  # each launcher has its own
            raise self._failed(error) from error
        wanted = self._count or cluster.n or sum(engines.n for engines in cluster.engines.values())
        deadline = time.monotonic() + cluster.engine_timeout
        while len(client.ids) < wanted:
            if not all(engines.running for engines in cluster.engines.values()):
                client.close()
                raise self._failed(f"they have ended{self._last_line()}")
            if time.monotonic() > deadline:
                there = counted(len(client.ids), "engine")
                client.close()
                raise self._failed(
                    f"{there} of {wanted} came within {cluster.engine_timeout} s "
                    "(c.Cluster.engine_timeout in ipcluster_config.py)"
                )
            time.sleep(_AGAIN)
        return client

    def end(self) -> None:
        self._wait_for(self._cluster.stop_cluster())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def how_to_restart(self, numbers: Sequence[int]) -> str:
        them = "it" if len(numbers) == 1 else "them"
        return f"%gpu_cluster stop, and --profile {self._profile} again, starts {them} anew with all others"

    def _wait_for(self, what: Coroutine[Any, Any, Any]) -> Any:
        """Run this in the event loop; an interrupt ends it there, too."""
        future = asyncio.run_coroutine_threadsafe(what, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _last_line(self) -> str:
        """Return the last line that the engines have written, behind a colon."""
        output = "\n".join(engines.get_output() for engines in self._cluster.engines.values())
        return "".join(f": {line.strip()}" for line in output.strip().splitlines()[-1:])

    def _failed(self, why: object) -> ClusterError:
        text = shortened(str(why).strip().partition("\n")[0] or type(why).__name__, _LONGEST).rstrip(".")
        return ClusterError(f"The profile {self._profile} has started no engines: {text}.")
