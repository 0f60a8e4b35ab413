"""The programs in front of a command that run it, such as `nohup`, `uv run` and `mpirun`."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.errors import LaunchError
from gpu_magic.process.mask import NAMES
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["MODULE_FLAGS", "Front", "check_passes_on", "command_of_shell", "mpi_options", "read_front"]

# Programs that run the command behind them, each with its options that have a value. The second ones look for
# the command in an environment of their own, and all of these but uvx have the word `run` before it.
_WRAPPERS = {
    "env": "-u --unset -C --chdir",
    "ionice": "-c -n -p",
    "nice": "-n",
    "nohup": "",
    "numactl": "-N -m -C -i -p",
    "setsid": "",
    "stdbuf": "-i -o -e",
    "sudo": "-u --user -g --group -h --host -p --prompt -C -D -R -T -r -t -U",
    "taskset": "",
    "time": "-f -o",
    "timeout": "-s -k",
}
_ENVIRONMENTS = {
    "conda": "-n --name -p --prefix --cwd",
    "mamba": "-n --name -p --prefix --cwd",
    "micromamba": "-n --name -p --prefix -r --root-prefix --cwd",
    "hatch": "-e --env",
    "pdm": "-p --project",
    "pipenv": "",
    "pipx": "--spec --python --pip-args --index-url -i",
    "pixi": "-e --environment --manifest-path",
    "poetry": "-C --directory -P --project",
    "rye": "",
    "uv": "--with --with-editable --with-requirements -p --python --project --directory --env-file --extra "
    "--group --package --index --default-index",
    "uvx": "--from --with --with-editable --with-requirements -p --python --index --default-index",
}
MODULE_FLAGS = ("-m", "--module")  # of `uv run`: a module comes in place of a command
_WITH_A_WORD = ("taskset", "timeout")  # a mask or a time comes before the command
# They start several processes, with the variables of the launch (Open MPI 5.0, MPICH 5.0).
_MPI = re.compile(r"(mpirun|mpiexec|orterun|prterun)(\.\w+)?")
_MPI_COUNTS = frozenset(
    "-n -np --np -c -N -npernode --npernode -ppn -perhost --map-by -map-by -H -host --host -hosts -hostfile "
    "--hostfile -machinefile --machinefile -f -configfile --app :".split()
)
_CONTAINERS, _SHELLS = ("docker", "podman"), ("bash", "dash", "sh", "zsh")
# Options that pass variables on: of sudo, and of containers from a file or all.
_SUDO_PASSES = re.compile(r"--preserve-env(=.*)?|-[A-Za-z]*E[A-Za-z]*")
_CONTAINER_PASSES = re.compile(r"--env-(file|host)(=.*)?")


class Front(NamedTuple):
    """What stands in front of a command."""

    place: int  # of the command, or of the MPI program that runs it
    is_elsewhere: bool  # whether a program in front finds the command in an environment of its own
    is_mpi: bool


def read_front(words: Sequence[str]) -> Front:
    """Return what stands in front of a command.

    It raises LaunchError if a program in front would change a variable that names GPUs.
    """
    place, is_elsewhere = 0, False
    while place < len(words) and (name := Path(words[place]).name) in _WRAPPERS | _ENVIRONMENTS:
        before, place = place, _after_wrapper(words, place, name)
        options = words[before + 1 : place]
        if name == "env":
            _check_variables(options)
        if name == "sudo" and not any(map(_SUDO_PASSES.fullmatch, options)):
            raise LaunchError(
                "sudo removes the variables that name the chosen GPUs. Omit sudo, or type sudo -E"
            )
        is_elsewhere |= name in _ENVIRONMENTS
    name = Path(words[place]).name if words[place:] else ""
    if name == "srun":  # Slurm sets the variables for each step of a job
        raise LaunchError(
            "srun gives its tasks the GPUs of the job, not the chosen ones. Omit srun, or start it without "
            "gpu_magic"
        )
    return Front(place, is_elsewhere, bool(_MPI.fullmatch(name)))


def mpi_options(words: Sequence[str], gpus: int) -> list[str]:
    """Return what to add to the words of `mpirun` in front of Python: a process for each GPU, or nothing.

    It raises LaunchError if they change a variable that names GPUs.
    """
    for option, following in pairwise([*words, ""]):
        name, equals, _ = following.partition("=")
        if name in NAMES and (option in ("-env", "-genv") or (option == "-x" and equals)):
            raise _replaces(f"{words[0]} {option} {following}")
    counts = (word.partition("=")[0] for word in words)
    return [] if _MPI_COUNTS.intersection(counts) else ["-n", str(gpus)]


def check_passes_on(words: Sequence[str], variables: Mapping[str, str | None]) -> None:
    """Raise LaunchError if a container would start without these variables."""
    if not words or Path(words[0]).name not in _CONTAINERS or words[1:2] not in (["run"], ["exec"]):
        return
    if any(map(_CONTAINER_PASSES.fullmatch, words)):
        return
    passed = {*words, *(word.removeprefix("--env=").removeprefix("-e").removeprefix("=") for word in words)}
    if replaced := next((word for word in passed if word.partition("=")[0] in NAMES and "=" in word), ""):
        raise _replaces(f"{words[0]} -e {replaced}")
    names = [name for name, value in variables.items() if value is not None and name not in passed]
    if names:
        added = [word for name in names for word in ("-e", name)]
        raise LaunchError(f"{words[0]} does not pass {listed(names)} on.", [[*words[:2], *added, *words[2:]]])


def command_of_shell(words: Sequence[str]) -> list[str]:
    """Return the command that a shell runs by `-c`, as words. Empty if the text needs a shell."""
    if Path(words[0]).name not in _SHELLS:
        return []
    texts = [text for flag, text in pairwise(words) if re.fullmatch("-[a-z]*c", flag)]
    if not texts or re.search(r"[;<>|&$`*?\n]", texts[0]):
        return []
    try:
        found = shlex.split(texts[0])
    except ValueError:  # quotes that do not end
        return []
    return ["env", *found] if "=" in "".join(found[:1]) else found


def _after_wrapper(words: Sequence[str], place: int, name: str) -> int:
    """Return the place of the command that the program at a place runs. The words' end if it runs none."""
    with_value = (_WRAPPERS | _ENVIRONMENTS)[name].split()
    is_run = name in _WRAPPERS or name == "uvx"
    has_word = name not in _WITH_A_WORD
    place += 1
    while place < len(words):
        word = words[place]
        if name == "uv" and is_run and word in MODULE_FLAGS:
            break
        if word.startswith("-"):
            place += word in with_value
        elif not is_run:
            if word != "run" and (name, word) != ("uv", "tool"):
                return len(words)
            is_run = word == "run"
        elif not has_word:
            has_word = True
        elif name != "env" or "=" not in word:
            break
        place += 1
    return place


def _check_variables(words: Sequence[str]) -> None:
    """Raise LaunchError if these words of `env` change a variable that names GPUs."""
    for word, following in pairwise([*words, ""]):
        unset = following if word in ("-u", "--unset") else word.removeprefix("--unset=").removeprefix("-u")
        name = word.partition("=")[0] if "=" in word and not word.startswith("-") else unset
        if name in NAMES or word in ("-", "-i", "--ignore-environment"):
            shown = f"{word} {following}" if unset is following else word
            raise _replaces(f"env {shown}")


def _replaces(what: str) -> LaunchError:
    return LaunchError(f"{what} would replace the chosen GPUs. Omit it, and name GPUs with --gpus")
