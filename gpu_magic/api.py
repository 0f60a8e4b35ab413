"""What can be called from Python: all that the magics do."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar, overload

from gpu_magic.display.gpus import Gpus
from gpu_magic.errors import (
    ChoiceError,
    ClusterError,
    CudaInitializedError,
    CudaInitializedWarning,
    PlacementError,
)
from gpu_magic.process.session import current
from gpu_magic.process.view import ask_guard, take_snapshot
from gpu_magic.text import with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpu_magic.devices.model import Gpu, MigInstance
    from gpu_magic.display.choice import Choice
    from gpu_magic.display.hosts import ByEngine, HostGpus
    from gpu_magic.display.memory import Devices, Freed, Where
    from gpu_magic.engines.cluster import Cluster
    from gpu_magic.engines.start import Client
    from gpu_magic.launching.task import Task
    from gpu_magic.placement.budget import Budget
    from gpu_magic.placement.on_gpu import OnGpu
    from gpu_magic.process.guard import Guard
    from gpu_magic.process.task import BackgroundTask
    from gpu_magic.selection.options import By, Order
    from gpu_magic.selection.target import LogicalDevice
    from gpu_magic.widget.panel import Panel

__all__ = [
    "attach_cluster",
    "choose",
    "cluster",
    "devices_of",
    "gpu_free",
    "gpus",
    "guard",
    "launch",
    "map",
    "on_gpu",
    "panel",
    "tasks",
    "to_cpu",
    "to_gpu",
]


Item = TypeVar("Item")
Result = TypeVar("Result")


@overload
def gpus() -> Gpus: ...


@overload
def gpus(*, cluster: Cluster) -> HostGpus: ...


def gpus(*, cluster: Cluster | None = None) -> Gpus | HostGpus:
    """Return the machine's GPUs: an `Inventory` that shows itself as a table.

    Parameters
    ----------
    cluster
        Return those of all hosts of this cluster, by host.

    Returns
    -------
    Gpus
        One `Gpu` for each physical GPU, in nvidia-smi's order, with figures of now (bytes, percent, degrees
        Celsius, watts; UNKNOWN where the driver gives none), and what this process can see of them.

    """
    if cluster is None:
        return Gpus.of(take_snapshot(current()))
    from gpu_magic.display.hosts import HostGpus
    from gpu_magic.engines.hosts import read_hosts

    return HostGpus(read_hosts(cluster))


def guard() -> Guard:
    """Ask the CUDA driver whether a choice can still take effect in this process.

    Returns
    -------
    Guard
        Its `state`, and if it is too late: since when, by what, and what the process keeps.

    """
    return ask_guard(current())


def choose(
    wanted: str | int | Gpu | MigInstance | Iterable[str | int | Gpu | MigInstance],
    *,
    by: By | None = None,
    order: Order | None = None,
    dry_run: bool = False,
    force: bool = False,
    growth: bool = False,
    memory_limit: str | int | None = None,
    in_process: bool = False,
    restart: bool = False,
    strict: bool = False,
) -> Choice:
    """Choose the GPUs that CUDA will see in this process, before a framework starts it.

    Parameters
    ----------
    wanted
        As after `%gpus`: `"1,3"`, `"0-2,5"`, `"GPU-8f3a"`, `"auto:2"`, `"all"`, `"none"`, `"reset"`; or a
        number, or one of `gpus()`; or several. The order is kept: the first is `cuda:0`.
    by
        Write CUDA_VISIBLE_DEVICES by "index" or "uuid"; None follows what the process was started with.
    order
        CUDA_DEVICE_ORDER: "pci" or "fastest"; None follows what the process was started with. With
        "fastest", `all` and `auto:2` are in CUDA's own order, where that can be known.
    dry_run
        Decide, and change nothing.
    force
        Allow GPUs outside the CUDA_VISIBLE_DEVICES that the process was started with.
    growth
        Have TensorFlow and JAX take memory as they need it, and not most of a GPU at once.
    memory_limit
        The most of each GPU's memory that TensorFlow, JAX and PyTorch take: "8GB" (10 to the 9th bytes each),
        "8GiB" (2 to the 30th), or a number of bytes.
    in_process
        Once CUDA has started: have the imported frameworks use these from here on, among those
        that the process has. It goes with no other option but `dry_run`.
    restart
        Where it is too late: restart the kernel; the next `%load_ext gpu_magic` in it applies the choice.
    strict
        Raise where it is too late, instead of warning.

    Returns
    -------
    Choice
        What `cuda:0`, `cuda:1`, … are now.

    Raises
    ------
    ChoiceError
        For GPUs that can't be chosen; nothing was changed.
    CudaInitializedError
        With `strict`, where CUDA was initialized with other GPUs; nothing was changed.
    KernelRestarting
        With `restart`, where it is too late and the kernel is about to be restarted for it.

    Warns
    -----
    CudaInitializedWarning
        The same without `strict`.

    """
    from gpu_magic.display.choice import Choice
    from gpu_magic.process.choosing import apply, narrow
    from gpu_magic.process.outcome import Refused
    from gpu_magic.selection.normalize import normalize_request
    from gpu_magic.selection.options import Options

    if in_process and restart:
        raise ChoiceError("An in-process choice needs no restart: use one of the two.")
    options = Options(by, order, force, growth, memory_limit)
    outcome = (narrow if in_process else apply)(
        current(), normalize_request(wanted), options, dry_run=dry_run
    )
    if restart and isinstance(outcome, Refused):
        from gpu_magic.widget.restart_widget import restart_with_choice

        restart_with_choice(outcome)
    choice = Choice(outcome)
    if choice.refusal and strict:
        raise CudaInitializedError(choice.refusal)
    if choice.refusal:
        # Without a registry Python shows it at every call, and not only at the first from a line.
        caller = sys._getframe(1)  # noqa: SLF001
        where, line, module = caller.f_code.co_filename, caller.f_lineno, caller.f_globals.get("__name__", "")
        warnings.warn_explicit(choice.refusal, CudaInitializedWarning, where, line, module=module)
    return choice


def on_gpu(
    wanted: str | int | Gpu | MigInstance | Iterable[str | int],
    *,
    only: str | Iterable[str] | None = None,
    or_cpu: bool = False,
    mirror: bool = False,
) -> OnGpu:
    """Run a block, or a function, on one GPU in every framework that it uses.

    >>> with gpu_magic.on_gpu(0):
    ...     model = torch.nn.Linear(4, 2)

    >>> @gpu_magic.on_gpu("cuda:1")
    ... def train(): ...

    Parameters
    ----------
    wanted
        As after `%%on_gpu`: `0`, `"cuda:0"`, `"/GPU:0"`, `"smi:3"`, `"GPU-8f3a"`, `"cpu"`, `"cpu:2"`; a
        framework's own object (`torch.device("cuda:1")`, `jax.devices()[1]`); one of `gpus()`.
    only
        The frameworks to tell: `"torch"`, `"torch,tensorflow"` or `["torch"]`; None for all.
    or_cpu
        Where it can't be used, run on the CPU and say so.
    mirror
        With several devices: the scope of a `tf.distribute.MirroredStrategy` over exactly these.

    Returns
    -------
    OnGpu
        A context manager, which can be used several times and within itself, and a decorator for functions.
        `as device` is the device as the framework calls it that the code uses, PyTorch before the others:
        `torch.device("cuda:1")`, `"/GPU:1"`, an object of JAX or CuPy.

    Raises
    ------
    PlacementError
        For what names no device; at the block's beginning, where a framework that the code uses can't run
        there, and the block has not run; at its end, for one that the block itself was the first to import.

    """
    from gpu_magic.frameworks import device_of
    from gpu_magic.placement.on_gpu import OnGpu, read_only
    from gpu_magic.selection.normalize import normalize_device

    if only is not None and not isinstance(only, str | Iterable):
        raise PlacementError(f"only={only!r:.40} names no frameworks; try only='torch'.")
    names = only if only is None or isinstance(only, str) else ",".join(str(name) for name in only)
    caller = sys._getframe(1)  # noqa: SLF001 - what the block will use stands in its own code
    return OnGpu(
        normalize_device(wanted, device_of),
        only=None if names is None else read_only(names),
        or_cpu=or_cpu,
        mirror=mirror,
        code=caller.f_code,
        namespace=caller.f_globals,  # no copy and no locals: a block can be kept, and would keep those
    )


@overload
def devices_of(*things: object) -> Devices: ...


@overload
def devices_of(*things: str, cluster: Cluster) -> ByEngine[Where]: ...


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
        GPUs.

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
    from gpu_magic.placement.physical import LazySnapshot, labels

    machine = LazySnapshot()
    memory = {}
    for name, value in variables.items():
        with budget.variable(name) if budget is not None else nullcontext():
            memory[name] = memory_by_device([value], budget)
    return {name: Devices(on_devices, labels(on_devices, machine)) for name, on_devices in memory.items()}


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
    from gpu_magic.placement.physical import LazySnapshot
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


def to_cpu(thing: Any, *, numpy: str | None = None) -> Any:
    """Move a variable to the CPU: see `to_gpu`. CuPy's arrays become NumPy's."""
    return to_gpu(thing, "cpu", numpy=numpy)


@overload
def gpu_free(*, dry_run: bool = False, cluster: None = None) -> Freed: ...


@overload
def gpu_free(*, dry_run: bool = False, cluster: Cluster) -> ByEngine[Freed]: ...


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
    from gpu_magic.display.hosts import ByEngine

    answers = cluster.ask(function, *given)
    results = {cluster.engines[number]: answer for number, answer in answers.results.items()}
    return ByEngine(results, cluster.unanswered(answers))


def panel() -> Panel:
    """Return a live panel of the GPUs, to choose them by clicking: the last line of a cell shows it.

    Returns
    -------
    Panel
        A widget. All panels of a process show the same, and are read by one thread, while a page shows one.

    """
    from gpu_magic.widget.panel import Panel

    return Panel()


def launch(
    command: str | Iterable[str],
    *,
    gpus: str | int | Gpu | MigInstance | Iterable[str | int | Gpu | MigInstance] | None = None,
    count: int | None = None,
    each: bool = False,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    force: bool = False,
) -> Task:
    """Run a command on GPUs, in processes of its own; return while it runs.

    Only the command's environment has these GPUs, so it does not matter whether CUDA has started here. All
    that the command starts ends with it, and with this process.

    Parameters
    ----------
    command
        A launcher (torchrun, accelerate launch, deepspeed, python) or any other program, and what follows it;
        a text is divided as a shell does.
    gpus
        As for `choose`; None: those that this process has, in their order.
    count
        How many of them, the first ones; None: all.
    each
        Start the command once for each GPU, which it has alone, with GPU_MAGIC_INDEX and GPU_MAGIC_COUNT in
        its environment.
    env
        More variables for the command.
    cwd
        Where it is run; None: where this process is.
    force
        Allow GPUs outside the CUDA_VISIBLE_DEVICES that the process was started with.

    Returns
    -------
    Task
        With `wait()`, `stop()`, `output`, `ranks` and `code`. What it has written goes with it.

    Raises
    ------
    ChoiceError, LaunchError
        One line that says why it can't be launched; nothing was started.

    """
    from gpu_magic.launching.prepare import prepare
    from gpu_magic.launching.task import Task
    from gpu_magic.selection.normalize import normalize_request

    words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    wanted = None if gpus is None else normalize_request(gpus)
    prepared = prepare(
        current(),
        words,
        wanted,
        count,
        each=each,
        force=force,
        variables={str(name): str(value) for name, value in (env or {}).items()},
        folder=cwd,
    )
    return Task("launch", prepared, current())


def cluster(
    gpus: str | int | Gpu | MigInstance | Iterable[str | int | Gpu | MigInstance] | Client | None = None,
    *,
    count: int | None = None,
    force: bool = False,
    keep: bool = False,
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
    keep
        Let them go on when this process ends; another one can attach them.
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
    from gpu_magic.selection.normalize import normalize_request

    check_none()
    if profile is not None:
        if gpus is not None or force or keep:
            raise ClusterError("A profile says which engines there are: it goes with -n and nothing else.")
        return _used(start_profile(profile, count))
    if is_client(gpus):
        if count is not None or force or keep:
            raise ClusterError("All engines of a client are used, as they are: it goes with no options.")
        return _used(join(gpus, Others()))
    wanted = None if gpus is None else normalize_request(gpus)
    return _used(start(current(), wanted, count, force=force, keep=keep))


def attach_cluster(name: str = "") -> Cluster:
    """Use the engines that another process has started with `cluster(keep=True)`, and that have outlived it.

    Parameters
    ----------
    name
        Which, where there are several: the error says what they are called.

    Raises
    ------
    ClusterError
        There are none, or several; or this process uses a cluster already.

    """
    from gpu_magic.engines.current import check_none
    from gpu_magic.engines.start import attach

    check_none()
    return _used(attach(current(), name))


def _used(made: Cluster) -> Cluster:
    """Use a cluster in this process from here on, also for `%%px`; return it."""
    from gpu_magic.engines.current import use
    from gpu_magic.engines.px import add_px  # loads ipyparallel

    use(made)
    add_px(made)
    return made


def tasks() -> dict[str, BackgroundTask]:
    """Return what was started in the background, commands and cells, by name: what `%gpu_tasks` lists.

    >>> gpu_magic.tasks()["eval"].wait()
    0.93
    """
    from gpu_magic.process.tasks import tasks as started

    return {task.name: task for task in started}


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
    behind the position of their item.

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
        No engines run, or not on these GPUs; cloudpickle is not installed; or the function or an item can't be
        handed over, as it can't be pickled or is on a GPU. Nothing has run.

    """
    from gpu_magic.engines.current import current_cluster
    from gpu_magic.engines.with_gpus import engines_with
    from gpu_magic.launching.handover import check_installed
    from gpu_magic.selection.normalize import normalize_request

    used = current_cluster()
    check_installed()
    engines = engines_with(used, current(), normalize_request(gpus))
    from gpu_magic.engines.mapping import map_over  # loads ipyparallel, which is there now

    return map_over(used, engines, fn, items)
