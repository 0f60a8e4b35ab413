"""Starts `ipyparallel.Cluster`: with gpu_magic's launchers on this machine, or with an IPython profile."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from typing import Any

import ipyparallel
from IPython.core.profiledir import ProfileDir, ProfileDirError
from IPython.paths import get_ipython_dir
from traitlets.config import Config

from gpu_magic.cluster.cluster import LONGEST_ERROR, Cluster, Engine, as_line, end_engines
from gpu_magic.cluster.join import join
from gpu_magic.cluster.launchers import GpuControllerLauncher, GpuEngineSetLauncher, claim_gpus
from gpu_magic.errors import ClusterError
from gpu_magic.launch.process import RunFolder
from gpu_magic.process.session import current
from gpu_magic.text import shortened

__all__ = ["start_here", "start_profile"]

# Seconds that ipyparallel's client waits for the controller between two checks that the controller runs.
_ANSWER_SECONDS = 5


def start_here(gpus: str | None, count: int | None, *, force: bool) -> Cluster:
    """Start an engine for each GPU. After an error, no process is left."""
    parts, claims = claim_gpus(gpus, count, force=force)
    with ExitStack() as undo:
        undo.callback(claims.release)
        files = RunFolder()
        launched = ipyparallel.Cluster(
            controller=GpuControllerLauncher,
            engines=GpuEngineSetLauncher,
            profile_dir=str(files.path),
            cluster_file="",
            load_profile=False,
            shutdown_atexit=False,  # the guardians do it
            config=Config(GuardedLauncher={"folder": str(files.path)}),
            log_level=logging.CRITICAL,
        )
        undo.callback(end_engines, launched, files)
        client = _start(launched, len(parts), undo, parts=parts, claims=claims)
        is_simulated = bool(current().reader.simulated)
        engines = [Engine(number, part.known, is_simulated=is_simulated) for number, part in enumerate(parts)]
        undo.pop_all()
        return Cluster(client, engines, launched, files)


def start_profile(profile: str, count: int | None) -> Cluster:
    """Start a controller and engines with an IPython profile. After an error, no process is left."""
    try:
        ProfileDir.find_profile_dir_by_name(get_ipython_dir(), profile)
    except ProfileDirError:
        make = f"ipython profile create --parallel {profile}"
        raise ClusterError(f"There is no IPython profile {profile}. To make one: {make}") from None
    # At lower levels, ipyparallel logs to the cell's output.
    launched = ipyparallel.Cluster(profile=profile, n=count, log_level=logging.ERROR)

    with ExitStack() as undo:
        undo.callback(end_engines, launched)
        try:
            client = _start(launched, count, undo)
            engines = join(client)
        except ClusterError:
            raise
        except Exception as error:
            output = "\n".join(engines.get_output() for engines in launched.engines.values()).strip()
            why = shortened(output.rpartition("\n")[2].strip() or as_line(error), LONGEST_ERROR)
            raise ClusterError(f"The profile {profile} started no engines: {why}.") from error
        undo.pop_all()
        return Cluster(client, engines, launched)


def _start(launched: Any, count: int | None, undo: ExitStack, **options: Any) -> Any:
    """Start the controller and the engines. Return ipyparallel's client, which knows all engines.

    Not `start_cluster`, whose later steps ipyparallel would still take after an interrupt. `undo` closes the
    client.
    """
    launched.start_controller_sync()
    if not launched.send_engines_connection_env:  # the engines may wait in a queue before the controller runs
        launched.start_engines_sync(count)
    client = _connect(launched)
    undo.callback(client.close)
    if not launched.engines:  # after the client, which can miss engines that register while it connects
        launched.start_engines_sync(count, **options)
    if isinstance(launched.engine_set, GpuEngineSetLauncher):
        launched.engine_set.wait_for_engines(client, launched.engine_set.all)
    else:
        client.wait_for_engines(count, timeout=launched.engine_timeout, interactive=False)
    return client


def _connect(launched: Any) -> Any:
    """Return ipyparallel's client once the controller answers. Raise ClusterError if the controller ends."""
    deadline = time.monotonic() + launched.engine_timeout
    while True:
        try:
            return launched.connect_client_sync(timeout=_ANSWER_SECONDS)
        except (RuntimeError, TimeoutError) as error:
            if isinstance(launched.controller, GpuControllerLauncher):
                launched.controller.check("The controller")
            if isinstance(error, RuntimeError):  # the controller has ended
                raise
            if time.monotonic() > deadline:
                seconds = launched.engine_timeout
                raise ClusterError(f"The controller did not answer within {seconds} s.") from None
