"""Start commands on GPUs, and see what runs in the background."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import TYPE_CHECKING

from gpu_magic.errors import LaunchError
from gpu_magic.process.session import current
from gpu_magic.public import public

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_magic.devices.model import Gpu, MigInstance
    from gpu_magic.launching.task import Task
    from gpu_magic.process.tasks import BackgroundTask

__all__ = ["check_count", "launch", "tasks"]


@public
def launch(
    command: str | Iterable[str],
    *,
    gpus: str | int | Gpu | MigInstance | Iterable[str | int | Gpu | MigInstance] | None = None,
    count: int | None = None,
    each: bool = False,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    force: bool = False,
    only_free: bool = False,
    min_free: str | int | None = None,
    wait: str | float | None = None,
    on_wait: Callable[[str], None] | None = None,
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
    only_free
        Only GPUs that nobody else uses or has claimed; other commands of this process count, too.
    min_free
        With `auto`: GPUs with so much free memory, "20GB" or bytes.
    wait
        How long to wait until they are free, or have that memory: "30m", or seconds. The call returns once
        the command runs.
    on_wait
        Is called with a line that says who holds them, each time that they were looked at in vain.

    Returns
    -------
    Task
        With `wait()`, `stop()`, `output`, `ranks` and `code`. What it has written goes with it.

    Raises
    ------
    ChoiceError, LaunchError
        One line that says why it can't be launched; nothing was started.

    """
    from gpu_magic.gpus.request import normalize_request
    from gpu_magic.launching.devices import Free
    from gpu_magic.launching.prepare import prepare
    from gpu_magic.launching.task import Task

    words, variables = _words(command), _variables(env)
    check_count("launch", count)
    if cwd is not None and not isinstance(cwd, str | os.PathLike):
        raise LaunchError(f"cwd={cwd!r:.40} is not a folder; try cwd='experiments'.")
    wanted = None if gpus is None else normalize_request(gpus)
    say = on_wait or (lambda _: None)
    prepared = prepare(
        current(),
        words,
        wanted,
        count,
        each=each,
        force=force,
        free=Free(only_free, min_free, wait, lambda waiting: say(str(waiting))),
        variables=variables,
        folder=None if cwd is None else os.fspath(cwd),
    )
    return Task("launch", prepared, current())


def _words(command: object) -> list[str]:
    """Return the words of a command.

    Raises
    ------
    LaunchError
        It has none, or an open quote.

    """
    if isinstance(command, str):
        try:
            return shlex.split(command)
        except ValueError as error:
            what = f"{command!r:.60} can't be divided into words ({str(error).lower().rstrip('.')})"
            raise LaunchError(f"{what}: give them as a list, launch(['python', 'train.py']).") from None
    if not isinstance(command, Iterable) or isinstance(command, bytes | Mapping):
        raise LaunchError(
            f"A command is a text or a list of words, and not {command!r:.40}; try launch('python train.py')."
        )
    return [str(word) for word in command]


def _variables(env: object) -> dict[str, str]:
    """Return the variables for a command.

    Raises
    ------
    LaunchError
        These are no names with values.

    """
    if env is not None and not isinstance(env, Mapping):
        raise LaunchError(f"env={env!r:.40} has no names with values; try env={{'OMP_NUM_THREADS': '4'}}.")
    return {str(name): str(value) for name, value in (env or {}).items()}


def check_count(function: str, count: object) -> None:
    """Raise LaunchError where a count is no whole number."""
    if count is not None and (isinstance(count, bool) or not isinstance(count, Integral)):
        raise LaunchError(f"count={count!r:.40} is not a number of GPUs; try {function}(..., count=2).")


@public
def tasks() -> dict[str, BackgroundTask]:
    """Return what was started in the background, commands and cells, by name: what `%gpu_tasks` lists.

    >>> gpu_magic.tasks()["eval"].wait()
    0.93
    """
    from gpu_magic.process.tasks import tasks as started

    return {task.name: task for task in started}
