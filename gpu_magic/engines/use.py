"""Engines on GPUs, and what is called in them: `gpu_magic.cluster` and `gpu_magic.map`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gpu_magic.errors import ClusterError
from gpu_magic.process.session import current
from gpu_magic.public import public

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpu_magic.devices.model import Gpu, MigInstance
    from gpu_magic.engines.cluster import Cluster
    from gpu_magic.engines.start import Client

__all__ = ["cluster", "map"]

Item = TypeVar("Item")
Result = TypeVar("Result")


@public
def cluster(
    gpus: str | int | Gpu | MigInstance | Iterable[str | int | Gpu | MigInstance] | Client | None = None,
    *,
    count: int | None = None,
    force: bool = False,
    profile: str | None = None,
) -> Cluster:
    """Start one IPython engine for each GPU, which sees that GPU alone; return when all have answered.

    It is the cluster that this process uses: `%%px` and `map` run in it. With ipyparallel's own engines, on
    any number of hosts, those of one host divide the GPUs among them that they were given there.

    Parameters
    ----------
    gpus
        As for `choose`; None: those that this process has, in their order. Or a client of ipyparallel's,
        whose engines are used, and go on when the cluster is stopped.
    count
        How many of them, the first ones; None: all. With a profile, how many engines.
    force
        Allow GPUs outside the CUDA_VISIBLE_DEVICES that the process was started with.
    profile
        An IPython profile that says how ipyparallel starts engines: by ssh, Slurm, PBS and others.

    Returns
    -------
    Cluster
        With `client`, ipyparallel's own, `engines`, `restart()` and `stop()`. It ends with this process.

    Raises
    ------
    ChoiceError, ClusterError, LaunchError
        One line that says why there is none; nothing of it is left.

    """
    from gpu_magic.engines.current import check_none
    from gpu_magic.engines.join import join
    from gpu_magic.engines.profile import start_profile
    from gpu_magic.engines.start import is_client, start
    from gpu_magic.engines.starter import Others
    from gpu_magic.gpus.request import normalize_request
    from gpu_magic.launching.launch import check_count

    check_count("cluster", count)
    check_none()
    if profile is not None:
        if gpus is not None or force:
            raise ClusterError("A profile says which engines there are: it goes with -n and nothing else.")
        return _used(start_profile(profile, count))
    if is_client(gpus):
        if count is not None or force:
            raise ClusterError("All engines of a client are used, as they are: it goes with no options.")
        return _used(join(gpus, Others()))
    wanted = None if gpus is None else normalize_request(gpus)
    return _used(start(current(), wanted, count, force=force))


def _used(made: Cluster) -> Cluster:
    """Use a cluster in this process from here on, also for `%%px`; return it."""
    from gpu_magic.engines.current import use
    from gpu_magic.engines.px import add_px  # loads ipyparallel

    use(made)
    add_px(made)
    return made


@public
def map(  # noqa: A001 - it is `gpu_magic.map`; nothing here uses Python's own
    fn: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    gpus: str | int | Gpu | MigInstance | Iterable[str | int | Gpu | MigInstance] = "all",
) -> list[Result]:
    """Call a function with each item in the engines of `cluster()`: each takes the next when it is free.

    >>> losses = gpu_magic.map(train, [0.1, 0.01, 0.001])

    The function, also one of the notebook's or a closure, goes to each engine once, with the names of the
    notebook that it uses; other names are those that `%%px` has defined there. What the calls print is shown
    behind the position of their item. Calls are no ranks: RANK and its like are unset while they run, and a
    process group that `%%px` has started is not seen.

    Parameters
    ----------
    fn
        The function.
    items
        What it is called with. All of them are taken from an iterator before the first call.
    gpus
        As for `choose`: the engines that have these; "all": all engines.

    Returns
    -------
    list
        What it has returned, in the order of the items.

    Raises
    ------
    CallFailed
        A call has failed, or its engine has ended: the first one ends all. Its message has the traceback. An
        engine that has ended, or that does not answer an interrupt, is started anew, without its variables;
        so it is after a KeyboardInterrupt.
    ChoiceError, ClusterError, LaunchError
        No engines run, or not on these GPUs; cloudpickle is not installed; or the function or an item can't
        be handed over, as it can't be pickled or is on a GPU. Nothing has run.

    """
    from gpu_magic.engines.current import current_cluster
    from gpu_magic.engines.with_gpus import engines_with
    from gpu_magic.gpus.request import normalize_request
    from gpu_magic.launching.handover import check_installed

    used = current_cluster()
    check_installed()
    engines = engines_with(used, current(), normalize_request(gpus))
    from gpu_magic.engines.mapping import map_over  # loads ipyparallel, which is there now

    return map_over(used, engines, fn, items)
