"""Engines on GPUs, and calls in them: `gpu_magic.cluster` and `gpu_magic.map`."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from gpu_magic.cluster.cluster import Cluster, current_cluster, running_cluster, use
from gpu_magic.errors import ClusterError
from gpu_magic.gpus.request import normalize_request
from gpu_magic.launch.launch import check_count
from gpu_magic.public import public

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpu_magic.devices.model import Gpu, MigInstance

    Client = Any  # ipyparallel's, which has no types

__all__ = ["cluster", "map"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_log = logging.getLogger("gpu_magic.cluster")


@public
def cluster(
    gpus: str | int | Gpu | MigInstance | Iterable[str | int | Gpu | MigInstance] | Client | None = None,
    *,
    count: int | None = None,
    force: bool = False,
    profile: str | None = None,
) -> Cluster:
    """Start one IPython engine for each GPU. The call returns when all engines have answered.

    Each engine sees only its GPU. `%%px` and `map` use this cluster. With a profile or a client, engines can
    run on several hosts. The engines of one host divide the GPUs that they were given there.

    Parameters
    ----------
    gpus
        As for `choose`. None: the GPUs of this process, in their order. Or a client of ipyparallel: the
        cluster uses the client's engines. `stop()` does not end them.
    count
        Use only the first `count` GPUs. None: all. With a profile: how many engines.
    force
        Allow GPUs outside those that the process was given.
    profile
        An IPython profile. It sets how ipyparallel starts engines, for example by ssh, Slurm or PBS.

    Returns
    -------
    Cluster
        It has ipyparallel's `client`, the `engines`, `restart()` and `stop()`. It ends with this process.

    Raises
    ------
    ChoiceError, ClusterError, LaunchError
        The engines cannot start. The message is one line. No engine is left.

    """
    check_count("cluster", count)
    if running_cluster():
        raise ClusterError("Engines already run. To end them: %gpu_cluster stop")
    try:
        ipyparallel = import_module("ipyparallel")
    except ImportError:
        raise ClusterError(
            "Engines need ipyparallel, which is not installed: pip install ipyparallel cloudpickle"
        ) from None
    if profile is not None:
        if gpus is not None or force:
            raise ClusterError("--profile goes only with -n.")
        from gpu_magic.cluster.start import start_profile

        made = start_profile(profile, count)
    elif isinstance(gpus, ipyparallel.Client):
        if count is not None or force:
            raise ClusterError("A client goes with no options: all its engines are used.")
        from gpu_magic.cluster.join import join

        made = Cluster(gpus, join(gpus))
    else:
        from gpu_magic.cluster.start import start_here

        made = start_here(None if gpus is None else normalize_request(gpus), count, force=force)
    use(made)
    from gpu_magic.cluster.px import add_px  # loads ipyparallel's magics, and IPython

    add_px(made)
    _log.info("Started %s", made)
    return made


@public
def map(  # noqa: A001 - it is `gpu_magic.map`; this module does not use the built-in
    fn: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    gpus: str | int | Gpu | MigInstance | Iterable[str | int | Gpu | MigInstance] = "all",
) -> list[Result]:
    """Call a function with each item in the engines of `cluster()`. A free engine gets the next item.

    >>> losses = gpu_magic.map(train, [0.1, 0.01, 0.001])

    Each engine gets the function once, with the variables of the notebook that the function uses. You can
    define the function in the notebook, also as a closure. If the notebook lacks a variable, the function
    uses the variable that `%%px` has set in the engine. Each printed line starts with the position of its
    item. Calls are not ranks. RANK and similar variables are unset. A call does not see a process group that
    `%%px` has started. A busy engine gets its first item when its work ends.

    Parameters
    ----------
    fn
        The function.
    items
        The arguments, one for each call. An iterator is read to its end before the first call.
    gpus
        Use the engines that have these GPUs: numbers or UUIDs, as for `choose`. "all": all engines.

    Returns
    -------
    list
        The results, in the order of the items.

    Raises
    ------
    CallFailed
        A call failed, or its engine ended. The first failure ends all calls. The message has the traceback.
        An engine that has ended, or does not respond to an interrupt, restarts without its variables, also
        after a KeyboardInterrupt.
    ChoiceError, ClusterError, LaunchError
        No engine runs, or none on these GPUs. Or cloudpickle is not installed. Or the function or an item
        cannot be sent, because it cannot be pickled or is on a GPU. No call has run.

    """
    current_cluster()
    from gpu_magic.cluster.map import map_over  # loads ipyparallel, which is installed if engines run

    return map_over(fn, items, normalize_request(gpus))
