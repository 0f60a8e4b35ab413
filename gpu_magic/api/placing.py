"""Where objects live, and how they move."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar, overload

from gpu_magic.errors import PlacementError
from gpu_magic.public import public
from gpu_magic.text import with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpu_magic.display.by_engine import ByEngine
    from gpu_magic.display.memory import Devices, Freed, Where
    from gpu_magic.engines.cluster import Cluster
    from gpu_magic.placement.budget import Budget
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["devices_by_name", "devices_of", "gpu_free", "to_cpu", "to_gpu", "where"]

Result = TypeVar("Result")


@overload
def devices_of(*things: object) -> Devices: ...


@overload
def devices_of(*things: str, cluster: Cluster) -> ByEngine[Where]: ...


@public
def devices_of(*things: Any, cluster: Cluster | None = None) -> Devices | ByEngine[Where]:
    """Return on which devices variables live, in every framework, and how many bytes they take there.

    Parameters
    ----------
    things
        Tensors and arrays, models, optimizers, and containers of them, however nested. What shares memory
        (views, tied weights) is counted once.
    cluster
        Return it of the variables in each engine of this cluster. Then `things` are names, as after `%where`;
        without any, all variables there that hold arrays.

    Returns
    -------
    Devices
        A mapping from a device's name (`"cuda:0"`, `"cpu"`) to bytes, which shows itself with the physical
        GPUs. With `cluster`, a mapping from each engine to its answer; its `notes` say which did not
        answer.

    """
    if cluster is None:
        return devices_by_name({"": things})[""]
    return _by_engine(cluster, where, list(things))


def where(names: Sequence[str]) -> Where:
    """Return where variables of this process's IPython shell live.

    Parameters
    ----------
    names
        Their names, or other expressions; without any, all variables that hold arrays.

    Raises
    ------
    PlacementError
        There is no such variable.

    """
    from gpu_magic.display.memory import Where
    from gpu_magic.moving.names import evaluated, variables_of
    from gpu_magic.placement.budget import Budget

    shell = _shell()
    if names:
        return Where(devices_by_name({name: evaluated(shell, name) for name in names}))
    budget = Budget()
    found = devices_by_name(variables_of(shell.user_ns, shell.user_ns_hidden), budget)
    return Where({name: devices for name, devices in found.items() if devices}, budget.unfinished)


def devices_by_name(variables: Mapping[str, object], budget: Budget | None = None) -> dict[str, Devices]:
    """Return `devices_of` for each of several variables; the machine is read once for all of them.

    Parameters
    ----------
    variables
        The variables.
    budget
        How much of them may be looked at. None: all of it.

    """
    from gpu_magic.display.memory import Devices
    from gpu_magic.placement.holdings import memory_by_device
    from gpu_magic.process.physical import LazySnapshot, labels

    machine = LazySnapshot()
    memory = {}
    for name, value in variables.items():
        with budget.variable(name) if budget is not None else nullcontext():
            memory[name] = memory_by_device([value], budget)
    return {name: Devices(on_devices, labels(on_devices, machine)) for name, on_devices in memory.items()}


@public
def to_gpu(
    thing: Any, device: str | int | None = None, *, numpy: str | None = None, or_cpu: bool = False
) -> Any:
    """Move a variable to a device, with all that it holds and all that ties that together, or nothing of it.

    >>> model, optimizer, batch = gpu_magic.to_gpu((model, optimizer, batch), 1)

    Parameters
    ----------
    thing
        A tensor or array of PyTorch, TensorFlow, JAX or CuPy; a PyTorch module or optimizer; an object with a
        `.to(device)`; lists, tuples, dicts, dataclasses and the like of these, to any depth. What hangs
        together is moved together: tied weights stay tied, views stay views.
    device
        As for `on_gpu`; None is the GPU of the `on_gpu` block around, or else `cuda:0`.
    numpy
        Make NumPy's arrays those of "torch", "jax" or "cupy"; None leaves them.
    or_cpu
        Where the device can't be used, move to the CPU and print that in a line.

    Returns
    -------
    Any
        What was moved. Modules, optimizers, parameters, lists, dicts and objects that can be changed are the
        same ones, changed in place; tensors, arrays and tuples are new.

    Raises
    ------
    PlacementError
        It can't be moved, does not fit, or a copy failed. All is as it was.

    """
    from gpu_magic.frameworks import device_of
    from gpu_magic.moving.move import carry_out
    from gpu_magic.moving.or_cpu import planned
    from gpu_magic.moving.plan import Plan
    from gpu_magic.process.physical import LazySnapshot
    from gpu_magic.selection.normalize import can_name_device, normalize_device

    if isinstance(thing, str):
        raise PlacementError(f"to_gpu moves a variable, and {thing!r:.40} is a string: remove the quotes.")
    if thing is None:
        raise PlacementError("to_gpu moves a variable, and this one is None.")
    if not can_name_device(device) and device_of(device) is None:
        raise PlacementError(
            f"to_gpu moves one thing, followed by the device, not {with_article(type(device).__name__)}: "
            "to_gpu((model, optimizer), 1) moves several."
        )
    machine = LazySnapshot()

    def make(destination: LogicalDevice) -> Plan:
        plan = Plan(destination, numpy, machine)
        plan.add("", thing)
        plan.check()
        if or_cpu:
            plan.check_converted()
        return plan

    text = None if device is None else normalize_device(device, device_of)
    return carry_out(planned(text, machine, make, or_cpu=or_cpu))[0]


@public
def to_cpu(thing: Any, *, numpy: str | None = None) -> Any:
    """Move a variable to the CPU: see `to_gpu`. CuPy's arrays become NumPy's."""
    return to_gpu(thing, "cpu", numpy=numpy)


@overload
def gpu_free(*, dry_run: bool = False, cluster: None = None) -> Freed: ...


@overload
def gpu_free(*, dry_run: bool = False, cluster: Cluster) -> ByEngine[Freed]: ...


@public
def gpu_free(*, dry_run: bool = False, cluster: Cluster | None = None) -> Freed | ByEngine[Freed]:
    """Give memory back: what only IPython's history keeps, garbage, and what frameworks keep unused.

    In IPython, the last error's traceback and the outputs that hold GPU memory are dropped. Then garbage is
    collected, and the cache of each framework that is imported is emptied.

    Parameters
    ----------
    dry_run
        Find out what would be dropped, and drop nothing.
    cluster
        Free memory in each engine of this cluster that runs nothing, and return what became of it by engine.

    Returns
    -------
    Freed
        What each GPU had in use before and after, what was dropped, and which variables hold the rest. It
        shows itself as text.

    """
    if cluster is not None:
        return _by_engine(cluster, _free, dry_run)
    return _free(dry_run)


def _free(dry_run: bool) -> Freed:
    from gpu_magic.display.memory import Freed
    from gpu_magic.moving.free import free
    from gpu_magic.moving.history import History

    shell = _shell()
    return Freed.of(free(History(shell) if shell is not None else None, dry_run=dry_run))


def _shell() -> Any:
    """Return this process's IPython shell; None where there is none."""
    ipython = sys.modules.get("IPython.core.getipython")
    return ipython.get_ipython() if ipython is not None else None


def _by_engine(cluster: Cluster, function: Callable[..., Result], *given: object) -> ByEngine[Result]:
    """Call a function of this module in the engines that run nothing."""
    from gpu_magic.display.by_engine import ByEngine
    from gpu_magic.engines.cluster import check_cluster

    check_cluster(cluster)
    answers = cluster.ask(function, *given)
    results = {cluster.engines[number]: answer for number, answer in answers.results.items()}
    return ByEngine(results, cluster.unanswered(answers))
