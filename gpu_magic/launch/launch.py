"""`gpu_magic.launch`: prepares commands on GPUs, and starts them."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from numbers import Integral
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from gpu_magic.claims.held import Claims
from gpu_magic.errors import LaunchError
from gpu_magic.gpus.options import Options, check_names, in_signature
from gpu_magic.gpus.request import is_request, normalize_request
from gpu_magic.launch.devices import can_pick, divide, inherit, pick
from gpu_magic.launch.launchers import Command, build
from gpu_magic.launch.process import RunFolder
from gpu_magic.launch.task import Task
from gpu_magic.option_table import Filters
from gpu_magic.process.mask import MASK, NAMES
from gpu_magic.process.session import current
from gpu_magic.public import public

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from gpu_magic.devices.model import Gpu, MigInstance
    from gpu_magic.gpus.wait import Wait
    from gpu_magic.process.session import Session
    from gpu_magic.processes.tasks import BackgroundTask

__all__ = ["Script", "check_count", "launch", "prepare", "tasks"]


class Script(NamedTuple):
    """A cell as the script of a command."""

    name: str  # of the file
    code: str

    def write(self, folder: Path) -> str:
        """Write the script to a folder, and return its path. Tracebacks show its lines while it exists."""
        file = folder / self.name
        try:
            file.write_text(self.code, encoding="utf-8")
        except OSError as error:
            raise LaunchError(f"The script cannot be written: {error}.") from None
        return str(file)


@public
@in_signature(Filters)
def launch(
    command: str | Iterable[str],
    *,
    gpus: str | int | Gpu | MigInstance | Iterable[str | int | Gpu | MigInstance] | None = None,
    count: int | None = None,
    each: bool = False,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    force: bool = False,
    wait: str | float | None = None,
    on_wait: Callable[[str], None] | None = None,
    **options: Unpack[Filters],
) -> Task:
    """Run a command on GPUs, in other processes. The call returns while the command runs.

    The launch sets variables only for the command, so you can launch before or after CUDA starts in this
    process. When the command or this process ends, all processes of the command also end.

    Parameters
    ----------
    command
        A launcher (torchrun, accelerate launch, deepspeed, python) or any other program, with its arguments.
        A text is split as in a shell.
    gpus
        As for `choose`. None: the GPUs of this process, in their order. If no other parameter asks for GPUs
        either, the command gets this process's variables as they are.
    count
        Use only the first `count` GPUs. None: all.
    each
        Start the command once for each GPU. Each process sees only its GPU, and has GPU_MAGIC_INDEX and
        GPU_MAGIC_COUNT in its environment.
    env
        More variables for the command.
    cwd
        The command's working directory. None: that of this process.
    force
        Allow GPUs outside those that the process was given.
    wait
        How long to wait until the GPUs are free, or have `min_free`: "30m", or seconds. The call returns when
        the command runs.
    on_wait
        A function. It is called after each check that finds the GPUs not free. Its argument is a line that
        names their users.
    **options
        The options of [`%gpu_launch`](magics.md#gpu_launch) that filter GPUs: `only_free=True`,
        `min_free="20GB"`. GPUs of this process's other commands are not free.

    Returns
    -------
    Task
        It has `wait()`, `stop()`, `output`, `ranks` and `code`. The output is deleted when
        Python deletes the task.

    Raises
    ------
    ChoiceError, LaunchError
        The command cannot be launched. The message is one line. Nothing has started.

    """
    check_names(options, inspect.signature(launch).parameters)
    check_count("launch", count)
    if env is not None and not isinstance(env, Mapping):
        raise LaunchError(f"env={env!r:.40} has no names with values. Try env={{'OMP_NUM_THREADS': '4'}}")
    if cwd is not None and not isinstance(cwd, str | os.PathLike):
        raise LaunchError(f"cwd={cwd!r:.40} is not a folder. Try cwd='experiments'")
    asked = SimpleNamespace(
        command=_words(command),
        gpus=None if gpus is None else normalize_request(gpus),
        count=count,
        each=each,
        env={str(name): str(value) for name, value in (env or {}).items()},
        cwd=cwd,
        force=force,
        wait=wait,
        dry_run=False,
        **options,
    )
    return prepare(asked, on_wait=lambda waiting: on_wait(str(waiting)) if on_wait else None).start()


def _words(command: object) -> list[str]:
    """Return the words of a command. Raise LaunchError for an open quote, or for other types."""
    if isinstance(command, str):
        try:
            return shlex.split(command)
        except ValueError as error:
            what = f"{command!r:.60} cannot be split into words ({str(error).lower().rstrip('.')})"
            raise LaunchError(f"{what}. Try launch(['python', 'train.py'])") from None
    if not isinstance(command, Iterable) or isinstance(command, bytes | Mapping):
        raise LaunchError(
            f"{command!r:.40} is neither a text nor a list of words. Try launch('python train.py')"
        )
    return [str(word) for word in command]


def check_count(function: str, count: object) -> None:
    """Raise LaunchError if a count is not an integer."""
    if count is not None and (isinstance(count, bool) or not isinstance(count, Integral)):
        raise LaunchError(f"count={count!r:.40} is not a number of GPUs. Try {function}(..., count=2)")


@public
def tasks() -> dict[str, BackgroundTask]:
    """Return the commands and cells in the background, by name, as `%gpu_tasks` lists them.

    >>> gpu_magic.tasks()["eval"].wait()
    0.93
    """
    from gpu_magic.processes.tasks import tasks as started

    return {task.name: task for task in started}


def prepare(
    options: SimpleNamespace,
    *,
    names: Container[str] = (),
    on_wait: Callable[[Wait[Any, Any]], object] = str,
    script: Script | None = None,
) -> Task:
    """Return a task that is ready to start. Its GPUs are claimed, unless it is a dry run.

    `options` are as `read_words` returns them, see `launch`. `names` are the options that can precede the
    command. The command runs `script`, if it is given.

    It raises ChoiceError or LaunchError if the command cannot be launched.
    """
    session, words, typed_variables = current(), options.command, options.env or {}
    _check(session, words, options.gpus, typed_variables)
    if options.dry_run and options.wait is not None:
        raise LaunchError("--wait does not go with --dry-run. Use one of the two.")
    # pathlib raises for `~nobody`, and for a name that no folder can have.
    folder = Path(os.path.expanduser(options.cwd or ".")).absolute()  # noqa: PTH111
    if not os.path.isdir(folder):  # noqa: PTH112
        raise LaunchError(f"{folder} is not a folder.")
    with ExitStack() as undo:
        claims = Claims(shlex.join(words), session.access, is_at_work=lambda: True)
        undo.callback(claims.release)
        held = None if options.dry_run else claims
        limits = Options.of(vars(options))
        # Each of these asks for GPUs. Without them, the command gets this process's variables as they are.
        asks = any(one is not None for one in (options.gpus, options.count, options.wait))
        if asks or options.each or limits.filters:
            how: Any = {"claims": held, "wait": options.wait, "on_wait": on_wait, "is_divided": options.each}
            selection = pick(session, options.gpus, options.count, limits, **how)
        else:
            selection = inherit(session, limits, claims=held)
        files = RunFolder()
        undo.callback(files.remove)
        common: dict[str, str | None] = {}
        if "PYTHONUNBUFFERED" not in os.environ:
            common["PYTHONUNBUFFERED"] = "1"  # output appears at once
        if os.environ.get("MPLBACKEND", "").startswith("module://matplotlib_inline"):
            common["MPLBACKEND"] = None  # ipykernel's backend shows nothing in other processes
        file = ""
        if script:
            file = script.write(files.path)
            # Imports work as in a script in that folder, and as in this process.
            found = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
            common["PYTHONPATH"] = os.pathsep.join(found)
        parts = divide(selection) if options.each else [selection]
        commands = []
        for index, part in enumerate(parts):
            variables = {**part.variables, **common}
            if options.each:
                variables |= {"GPU_MAGIC_INDEX": str(index), "GPU_MAGIC_COUNT": str(len(parts))}
            variables |= typed_variables
            mask = part.mask or part.variables.get(MASK)  # HIP reads CUDA_VISIBLE_DEVICES if its own is empty
            count = len(part.known)
            entries = mask.split(",")[:count] if mask else map(str, range(count))
            gpus = [entry.strip() for entry in entries]
            typed = [*words, file] if file else words
            commands.append(build(Command(part.known, gpus, str(folder), variables, typed, file), names))
        undo.pop_all()
    shown = " ".join(map(_quoted, [*words, *([script.name] if script else [])]))
    return Task(session, shown, commands, files, claims)


def _quoted(word: str) -> str:
    """Quote a word for a shell, in double quotes if that is shorter."""
    double = re.sub(r'([\\"$`])', r"\\\1", word)
    return min(shlex.quote(word), f'"{double}"', key=len)


def _check(session: Session, words: Sequence[str], gpus: str | None, variables: Mapping[str, str]) -> None:
    """Raise LaunchError if a command starts with GPUs or an option, or if a variable is invalid."""
    first = words[0] if words else ""
    if gpus and re.fullmatch(r"[0-9]{1,3}(?:[,-][0-9]{1,3})*", first):
        if gpus.lower() == "auto" and first.isdecimal():
            raise LaunchError(f"A colon goes before the number of GPUs. Try --gpus auto:{first}")
        way = f"{gpus.rstrip(',')},{first}"
        raise LaunchError(f"Separate GPUs by commas.{f' Try --gpus {way}' * can_pick(session, way)}")
    if first and is_request(first) and not shutil.which(first):
        how = f" Try --gpus {first} before the command" * can_pick(session, first)
        raise LaunchError(f"{first} names GPUs, not a program.{how}")
    if first.startswith("-"):
        raise LaunchError(
            f"{first} is where the command should start. Put options before the command and before --"
        )
    for name, value in variables.items():
        if name in NAMES:
            raise LaunchError(f"--env cannot set {name}, which selects the GPUs. Name them with --gpus")
        if not name or "=" in name or "\0" in f"{name}{value}":
            raise LaunchError(f"{name!r} cannot be a variable with the value {value!r}.")
    if any("\0" in word for word in words):
        raise LaunchError("A command cannot contain a NUL character.")
