"""Prepares a command: picks its GPUs, and finds out how its launcher is told of them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic.claims.held import Claims
from gpu_magic.errors import LaunchError
from gpu_magic.gpus.request import is_request
from gpu_magic.launching.devices import Free, divide, pick
from gpu_magic.launching.launchers import Command, plan_command
from gpu_magic.launching.prepared import Prepared, Process
from gpu_magic.launching.run_folder import RunFolder
from gpu_magic.process.mask import NAMES

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from gpu_magic.gpus.select import Selection
    from gpu_magic.launching.script import Script
    from gpu_magic.process.session import Session

__all__ = ["prepare"]

# With --each, the number of a process, and how many there are.
_INDEX, _COUNT = "GPU_MAGIC_INDEX", "GPU_MAGIC_COUNT"


def prepare(
    session: Session,
    words: Sequence[str],
    gpus: str | None,
    count: int | None,
    *,
    each: bool,
    force: bool,
    free: Free | None = None,
    dry_run: bool = False,
    variables: Mapping[str, str],
    folder: str | None,
    script: Script | None = None,
    options: Container[str] = (),
) -> Prepared:
    """Return a command with its GPUs, which are claimed for it, ready to be launched; nothing is started.

    Parameters
    ----------
    session
        This process's.
    words
        The launcher, and what follows it.
    gpus
        As typed after `%gpus`; None: those that this process has, in their order.
    count
        How many of these, the first ones; None: all.
    each
        Start the command once for each GPU, which it sees alone.
    force
        Allow GPUs outside what this process was started with.
    free
        Which of them are free enough, and how long to wait for them; None: all are.
    dry_run
        Claim no GPU, as the command is not going to be launched.
    variables
        More variables for the command.
    folder
        Where it is to be run; None: where this process is.
    script
        A script that is written for it, and named at the end of its line.
    options
        The names of options that stand before the launcher, where this is typed: `--gpus`.

    Raises
    ------
    ChoiceError, LaunchError
        One line that says why it can't be launched.

    """
    _check_first(words, gpus)
    if dry_run and free and free.wait is not None:
        raise LaunchError("--wait goes not with --dry-run: use one of the two.")
    for name in set(NAMES) & set(variables):
        raise LaunchError(f"{name} says which GPUs the command gets: name them with --gpus instead.")
    for name, value in variables.items():
        if not name or "=" in name or "\0" in f"{name}{value}":
            raise LaunchError(f"{name!r} can't be a variable with the value {value!r}.")
    # pathlib raises for `~nobody`, and for a name that no folder can have.
    where = Path(os.path.expanduser(folder or ".")).absolute()  # noqa: PTH111
    if not os.path.isdir(where):  # noqa: PTH112
        raise LaunchError(f"{where} is not a folder.")
    with ExitStack() as undo:
        claims = Claims(shlex.join(words), session.access)
        undo.callback(claims.release)
        selection = pick(session, gpus, count, force=force, claims=None if dry_run else claims, free=free)
        files = RunFolder()
        undo.callback(files.remove)
        in_cell = script.write(files.path, each=each) if script else []
        if script:
            # As for a script there, and for this process.
            found = [str(where), *filter(None, [os.environ.get("PYTHONPATH")])]
            variables = {"PYTHONPATH": os.pathsep.join(found), **variables}
        parts = divide(selection) if each else [selection]
        processes = []
        for index, part in enumerate(parts):
            own = {_INDEX: str(index), _COUNT: str(len(parts))} if each else {}
            set_for_it = _variables(part, {**own, **variables})
            all_of_them = {**os.environ, **set_for_it}
            environment = {name: value for name, value in all_of_them.items() if value is not None}
            entries = (part.mask or "").split(",")
            plan = plan_command(Command(words, entries, str(where), environment, in_cell, options))
            devices = part.devices if isinstance(part.devices, tuple) else ()
            processes.append(Process(plan, set_for_it, environment, devices))
        undo.pop_all()
    typed = " ".join(map(_quoted, [*words, *([script.name] if script else [])]))
    return Prepared(typed, tuple(processes), str(where), files, claims)


def _quoted(word: str) -> str:
    """Return a word as one types it in a shell: in double quotes where that is shorter."""
    double = re.sub(r'([\\"$`])', r"\\\1", word)
    return min(shlex.quote(word), f'"{double}"', key=len)


def _check_first(words: Sequence[str], gpus: str | None) -> None:
    """Raise LaunchError where GPUs, or an option of the launch, stand where a command begins."""
    first = words[0] if words else ""
    if gpus and re.fullmatch(r"[0-9]{1,3}(?:[,-][0-9]{1,3})*", first):
        raise LaunchError(f"GPUs are separated by commas; try --gpus {gpus.rstrip(',')},{first}.")
    if first and is_request(first) and not shutil.which(first):
        raise LaunchError(f"{first} names GPUs, and no program: write --gpus {first} before the command.")
    if first.startswith("-"):
        raise LaunchError(f"{first} stands where the command begins: options go before that, and before --.")


def _variables(selection: Selection, given: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that are set for a command; None: removed."""
    found = dict(selection.variables)
    if "PYTHONUNBUFFERED" not in os.environ:
        found["PYTHONUNBUFFERED"] = "1"  # what is written is seen at once
    if os.environ.get("MPLBACKEND", "").startswith("module://matplotlib_inline"):
        found["MPLBACKEND"] = None  # ipykernel's own, which shows nothing elsewhere
    return found | dict(given)
