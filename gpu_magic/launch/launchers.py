"""Builds the command line of each launcher: one process per GPU, in the order of the choice.

torchrun keeps CUDA_VISIBLE_DEVICES and its order. For a flag that is not typed, it reads a variable `PET_…`
(torch 2.8 to 2.15, torch/distributed/argparse_util.py). Accelerate (1.15) replaces CUDA_VISIBLE_DEVICES with
`--gpu_ids`, also from a saved configuration. DeepSpeed's runner (0.19.8) sorts GPUs, numbers them as
nvidia-smi does and reads no UUIDs. The per-machine launcher that the runner starts has none of these
limits, so gpu_magic starts that launcher directly.
"""

from __future__ import annotations

import base64
import difflib
import json
import os
import re
import shlex
import shutil
import sys
from contextlib import contextmanager
from importlib.machinery import PathFinder
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.processes import read_python_line
from gpu_magic.errors import LaunchError
from gpu_magic.launch.fronts import (
    MODULE_FLAGS,
    check_passes_on,
    command_of_shell,
    mpi_options,
    read_front,
)
from gpu_magic.launch.process import free_ports
from gpu_magic.option_table import OPTIONS, Kind
from gpu_magic.process.mask import NAMES
from gpu_magic.process.watch import cuda_watch
from gpu_magic.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from gpu_magic.devices.model import Device
    from gpu_magic.devices.processes import PythonLine

__all__ = ["Command", "build"]

_PYTHON = re.compile(r"python(\d(\.\d+t?)?)?")  # python3.14t is the build without a GIL
_PACKAGES = {
    "torchrun": "torch",
    "accelerate": "accelerate",
    "accelerate-launch": "accelerate",
    "deepspeed": "deepspeed",
}
# The same launchers for `python -m`.
_MODULES = {
    "torchrun": "torch.distributed.run",
    "accelerate": "accelerate.commands.launch",
    "accelerate-launch": "accelerate.commands.launch",
    "deepspeed": "deepspeed.launcher.runner",
}


class RankFiles(NamedTuple):
    """How each rank of a launcher writes to its own files, below a folder `{logs}`."""

    patterns: Sequence[str]  # the files of rank `{rank}`, below that folder
    flags: Sequence[str] = ()
    variables: Mapping[str, str] = {}


class Command(NamedTuple):
    """One process of a launch."""

    devices: tuple[Device, ...]
    gpus: Sequence[str]  # their entries in CUDA_VISIBLE_DEVICES, in the same order
    folder: str
    variables: Mapping[str, str | None]  # set for the process; None: removed
    rest: Sequence[str]  # the words as typed; after `build`, those after `start`
    script: str = ""  # the path of a cell's script, which is the last word
    start: Sequence[str] = ()  # the program, with the flags that the launch adds
    rank_files: RankFiles | None = None  # None: all ranks write to the launcher's output
    is_elsewhere: bool = False  # a program in front of it, such as `uv run`, finds the launcher
    note: str = ""  # what the user should know of the program

    @property
    def environment(self) -> dict[str, str]:
        """All environment variables of the process."""
        variables = {**cuda_watch.environment(), **self.variables}
        return {name: value for name, value in variables.items() if value is not None}

    @property
    def typed(self) -> Sequence[str]:
        """The words to launch, without a cell's script."""
        return self.rest[:-1] if self.script else self.rest

    @property
    def words(self) -> list[str]:
        """The command line."""
        return [*self.start, *self.rest]

    def with_rank_files(self, logs: str) -> Command:
        """Return the same command, but its ranks write to files below a folder."""
        if not self.rank_files:
            return self
        flags = (flag.format(logs=logs) for flag in self.rank_files.flags)
        added = {name: value.format(logs=logs) for name, value in self.rank_files.variables.items()}
        return self._replace(start=[*self.start, *flags], variables={**self.variables, **added})


class _Launcher(NamedTuple):
    """A launcher's flags. They are named with dashes, and are found as `_is_one_of` says."""

    processes: str  # how many processes
    gpus: str  # would replace the chosen GPUs
    no_script: str  # run something other than a script file; have no value
    switches: str  # other flags without a value, after which a program without `.py` can follow
    logs: str  # where ranks write
    files: RankFiles
    add: Callable[[Command, Sequence[str]], Command]  # adds what the launcher needs for the GPUs


def build(command: Command, options: Container[str]) -> Command:
    """Return a command with the program's path, and with what a launcher needs for the GPUs.

    `options` are the options of the launch, which are errors among a launcher's flags.

    It raises LaunchError if the command cannot run, or names other GPUs or another number of GPUs.
    """
    if not command.rest:
        raise LaunchError("No command is named.", [["torchrun", "train.py"]])
    _check_assignment(command, options)
    if found := _build_behind(command, options):
        return found
    _check_passes_on(command, command.variables)
    program, *words = command.rest
    first, *more = program.split()[:2] or [""]
    # A whole command in quotes, as after `bash -c`.
    is_program = _PYTHON.fullmatch(first) or _look_for(first, command.folder)
    if more and is_program and not _is_file(command.folder, program):
        raise LaunchError(f"{program} is one word because of its quotes. Omit them.")
    match [Path(program).name, *words]:
        case ["accelerate", "launch", *flags]:
            return _with_launcher(_ACCELERATE, command, [program, "launch"], flags, options)
        case ["torchrun" | "accelerate-launch" | "deepspeed" as name, *flags]:
            return _with_launcher(_LAUNCHERS[name], command, [program], flags, options)
        case [flag, module, *flags] if flag in MODULE_FLAGS and module in _LAUNCHERS:
            return _with_launcher(_LAUNCHERS[module], command, [flag, module], flags, options)
        case [name, *_] if _PYTHON.fullmatch(name):
            line = read_python_line(words)
            flags, rest = words[: line.options], words[line.options :]
            _check_flags(program, flags, options)
            if line.kind == "module" and line.name in _LAUNCHERS:
                return _with_launcher(_LAUNCHERS[line.name], command, [program, *flags], rest, options)
            _check_python(command, program, line)
        case _:
            _check_typing(command)
    path = _find_program(program, command.folder)
    return command._replace(start=[path], rest=words, note=_note_on_python(program, path))


def _check_assignment(command: Command, options: Container[str]) -> None:
    """Raise LaunchError if a command starts as a shell's that sets a variable."""
    program = command.rest[0]
    name, equals, _ = program.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name):
        return
    what = f"{program} sets a variable."
    if name in NAMES:
        raise LaunchError(f"{what} Try --gpus to name GPUs")
    if f"--{name}" in options and OPTIONS["%gpu_launch"][f"--{name}"].kind not in (Kind.FLAG, Kind.PAIRS):
        raise LaunchError(f"{what} Try --{program}")
    raise LaunchError(what, [["env", *command.typed]])


def _check_typing(command: Command) -> None:
    """Raise LaunchError if a command lacks its launcher, or a part of it."""
    program, *words = command.rest
    arguments = [] if command.script else words
    if program == "accelerate" and words and words[0].endswith(".py"):
        raise LaunchError("accelerate needs a command.", [["accelerate", "launch", *arguments]])
    if program.endswith(".py") and not os.access(Path(command.folder, program), os.X_OK):
        script = [] if command.script else [program]
        what = "is not the script, because the cell is" if command.script else "needs a launcher"
        ways = [[name, *script, *arguments] for name in ("torchrun", "python")]
        raise LaunchError(f"{program} {what}.", ways)


def _build_behind(command: Command, options: Container[str]) -> Command | None:
    """Return a launcher's or Python's command behind programs that run it, such as `uv run`.

    None: it is another command. It raises LaunchError if a program would replace the chosen GPUs.
    """
    words, gpus = list(command.rest), len(command.gpus)
    front = read_front(words)
    place, is_elsewhere, added = front.place, front.is_elsewhere, list[str]()
    if behind := words[place:]:
        inner = command_of_shell(behind)
        hidden = inner[read_front(inner).place :]
        if hidden and _is_launcher(hidden):
            shell, launcher = Path(behind[0]).name, Path(hidden[0]).name
            raise LaunchError(f"{shell} -c hides {launcher}.", [[*words[:place], *inner]])
    if front.is_mpi:
        place += 1
        while place < len(words) and not _is_python(words[place]) and not _is_launcher(words[place:]):
            place += 1
        added = mpi_options(words[front.place : place], gpus)
    elif behind and (found_at := _find_launcher(behind, command.folder)):
        place, is_elsewhere = place + found_at, True
    if not 0 < place < len(words):
        return None
    if not _is_launcher(words[place:]):
        if is_elsewhere or not _is_python(words[place]):
            return None
    elif front.is_mpi:
        launcher, mpi = Path(words[place]).name, words[front.place]
        raise LaunchError(
            f"{mpi} would start {launcher} several times. Omit {mpi}, because {launcher} starts the processes"
        )
    path = _find_program(words[0], command.folder)
    with _behind(words[:place]):
        found = build(command._replace(rest=words[place:], is_elsewhere=is_elsewhere), options)
    _check_passes_on(command, found.variables)
    return found._replace(start=[path, *words[1:place], *added, *found.start])


def _check_passes_on(command: Command, variables: Mapping[str, str | None]) -> None:
    """Raise LaunchError if a container, possibly behind other programs, would start without variables."""
    place = read_front(command.rest).place
    with _behind(command.typed[:place]):
        check_passes_on(command.typed[place:], variables)


@contextmanager
def _behind(words: Sequence[str]) -> Iterator[None]:
    """Add words in front of the commands that an error suggests."""
    try:
        yield
    except LaunchError as error:
        raise error.in_front(words) from None


def _find_launcher(words: Sequence[str], folder: str) -> int:
    """Return the place of a launcher with a script behind an unknown program, such as a profiler. 0: none.

    The name of a launcher can also be the value of an option: `run --launcher torchrun`.
    """
    if _is_python(words[0]) or _is_launcher(words):
        return 0
    place = next((place for place in range(1, len(words)) if _is_launcher(words[place:])), 0)
    may_be_value = words[place - 1].startswith("-") and words[place - 1] != "--"
    has_script = any(word.endswith(".py") and _is_file(folder, word) for word in words[place:])
    return place if has_script and not may_be_value else 0


def _is_python(word: str) -> bool:
    return bool(_PYTHON.fullmatch(Path(word).name))


def _is_launcher(words: Sequence[str]) -> bool:
    """Return whether a command line begins with a launcher."""
    name, after = Path(words[0]).name, words[1:]
    if name == "accelerate":
        return after[:1] == ["launch"]
    if name in MODULE_FLAGS:
        return bool(after) and after[0] in _LAUNCHERS
    line = read_python_line(after) if _PYTHON.fullmatch(name) else None
    return name in _PACKAGES or (line is not None and line.kind == "module" and line.name in _LAUNCHERS)


def _check_python(command: Command, program: str, line: PythonLine) -> None:
    """Raise LaunchError unless Python runs a cell's script, an existing script, or something else."""
    if command.script and (line.kind != "script" or line.name != command.script):
        what = line.name or ("-c" if line.kind == "code" else command.rest[1])
        raise LaunchError(f"The cell is the script. Omit {what}")
    if not line.kind and not line.is_answer:
        flags = command.rest[1 : 1 + line.options]
        raise LaunchError("No script is named.", [[program, *flags, "train.py"]])
    if line.kind == "script":
        _check_script(command.folder, line.name)


def _with_launcher(
    launcher: _Launcher, command: Command, start: Sequence[str], words: Sequence[str], options: Container[str]
) -> Command:
    """Check a launcher's flags, and return the command with what the launcher needs for the GPUs."""
    name, gpus = " ".join(start), len(command.gpus)
    flags, program = _divide(words, f"{launcher.no_script} {launcher.switches}")
    _check_flags(name, flags, options)
    if command.script and program[:-1]:
        raise LaunchError(f"The cell is the script. Omit {shlex.join(program[:-1])}")
    for typed in _typed(launcher.gpus, flags):
        raise LaunchError(
            f"{name} {typed} would replace the chosen GPUs. Omit it, and name GPUs with --gpus before {name}"
        )
    flags = list(_without_count(launcher.processes, flags, name, gpus))
    if not program:
        raise LaunchError("No script is named.", [[*start, *flags, "train.py"]])
    no_script = _typed(launcher.no_script, flags)
    if no_script and command.script:
        raise LaunchError(f"The cell is the script. Omit {no_script[0]}")
    if not no_script:
        _check_script(command.folder, program[0])
    program_path = start[0] if command.is_elsewhere else _find_program(start[0], command.folder)
    files = None if _typed(launcher.logs, flags) else launcher.files
    note = "" if command.is_elsewhere else _note_on_python(start[0], program_path)
    found = command._replace(
        start=[program_path, *start[1:]], rest=[*flags, *program], rank_files=files, note=note
    )
    return launcher.add(found, flags)


def _divide(words: Sequence[str], switches: str) -> tuple[Sequence[str], Sequence[str]]:
    """Divide a launcher's words into its flags with their values, and the program with its arguments.

    The word after a flag is its value, unless the flag is a switch, or the word is a Python file or a flag.
    """
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] != "-":
        flag, after = words[place], "".join(words[place + 1 : place + 2])
        is_whole = "=" in flag or _is_one_of(flag, switches)
        place += 1 if is_whole or after.endswith(".py") or re.match(r"-\D", after) else 2
    return words[:place], words[place:]


def _without_count(count: str, flags: Sequence[str], name: str, gpus: int) -> Iterator[str]:
    """Yield the flags without the number of processes, which must be the number of GPUs."""
    words = iter(flags)
    for word in words:
        if not _is_one_of(word, count):
            yield word
            continue
        typed, equals, value = word.partition("=")
        value = value if equals else next(words, "")
        if value not in (str(gpus), "auto", "gpu"):
            raise LaunchError(
                f"{name} {typed} {value} contradicts the {counted(gpus, 'GPU')} that it gets, one per "
                f"process. Omit it, and choose GPUs with -n or --gpus before {name}"
            )


def _typed(these: str, flags: Sequence[str]) -> list[str]:
    """Return the words among the flags that are one of these, as typed, without values."""
    return [word.partition("=")[0] for word in flags if _is_one_of(word, these)]


def _is_one_of(word: str, these: str) -> bool:
    """Return whether a word is one of these flags, or an abbreviation of one, as argparse accepts them."""
    typed = word.partition("=")[0].replace("_", "-")  # launchers accept `--gpu_ids` and `--gpu-ids`
    is_long = typed.startswith("--") and typed != "--"
    return any(flag == typed or (is_long and flag.startswith(typed)) for flag in these.split())


def _check_flags(launcher: str, flags: Sequence[str], options: Container[str]) -> None:
    """Raise LaunchError if an option of the launch is among a launcher's flags."""
    for word in flags:
        if word.partition("=")[0] in options:
            raise LaunchError(f"{word} is not an option of {launcher}. Put it before {launcher}")


def _check_script(folder: str, name: str) -> None:
    """Raise LaunchError if a script does not exist."""
    if not _is_file(folder, name):
        raise LaunchError(f"There is no script {Path(folder, name)}")


def _is_file(folder: str, name: str) -> bool:
    """Return whether a file exists. A name that no file can have, such as a very long one, is no error."""
    return os.path.isfile(Path(folder, name))  # noqa: PTH113 - pathlib raises for such a name


def _add_torchrun(command: Command, flags: Sequence[str]) -> Command:
    # Typed flags come before these variables.
    variables = {"PET_NPROC_PER_NODE": str(len(command.gpus))}
    if not _typed("--nnodes --rdzv-endpoint --rdzv-backend --master-addr --master-port", flags):
        variables["PET_STANDALONE"] = "1"  # a free port: the default since torch 2.12
    return command._replace(variables={**command.variables, **variables})


def _add_accelerate(command: Command, flags: Sequence[str]) -> Command:
    gpus, saved = len(command.gpus), _accelerate_configuration(command, flags)
    # These flags override a saved configuration, which keeps its other values.
    values = {
        "--num_processes": str(gpus),
        "--num_machines": "1",
        "--gpu_ids": "all",  # all visible GPUs
        "--main_process_port": "0",  # a free port
    }
    if not saved:  # the defaults, but without messages about them
        values |= {"--mixed_precision": "no", "--dynamo_backend": "no"}
    added = [f"{flag}={value}" for flag, value in values.items() if not _typed(flag.replace("_", "-"), flags)]
    kind = re.search(r"distributed_type\W+(FSDP|DEEPSPEED|MEGATRON_LM)\b", saved)
    if gpus > 1 and not kind and not _typed(_ACCELERATE_KINDS, flags):
        added.insert(0, "--multi_gpu")
    # With one GPU, Accelerate runs the script without torchrun.
    return command._replace(
        start=[*command.start, *added], rank_files=command.rank_files if gpus > 1 else None
    )


def _accelerate_configuration(command: Command, flags: Sequence[str]) -> str:
    """Return the text of Accelerate's configuration file: the named file, or the default file."""
    variables = command.environment
    home = variables.get("HF_HOME") or f"{variables.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    place = f"{home}/accelerate/default_config.yaml"
    for word, following in pairwise([*flags, ""]):
        if _is_one_of(word, "--config-file"):
            place = word.partition("=")[2] or following
    try:
        return Path(command.folder, os.path.expanduser(place)).read_text(errors="replace")  # noqa: PTH111
    except (OSError, ValueError):
        return ""


def _add_deepspeed(command: Command, flags: Sequence[str]) -> Command:
    beside = Path(command.start[0]).with_name("python")
    python = str(beside) if command.is_elsewhere or os.access(beside, os.X_OK) else sys.executable
    numbers = [int(gpu) if gpu.isdigit() else gpu for gpu in command.gpus]
    world = base64.urlsafe_b64encode(json.dumps({"localhost": numbers}).encode()).decode()
    start = [python, "-m", "deepspeed.launcher.launch", f"--world_info={world}"]
    start += [] if _typed("--master-addr", flags) else ["--master_addr=127.0.0.1"]
    start += [] if _typed("--master-port", flags) else [f"--master_port={free_ports(1)[0]}"]
    return command._replace(start=start)


_TORCH_FILES = ("*/attempt_*/{rank}/stdout.log", "*/attempt_*/{rank}/stderr.log")
_ACCELERATE_KINDS = "--multi-gpu --cpu --tpu --use-deepspeed --use-fsdp --use-megatron-lm"
_TORCHRUN = _Launcher(
    processes="--nproc-per-node",
    gpus="",
    no_script="-m --module --no-python --run-path",
    switches="--standalone --virtual-local-rank",
    logs="--tee -t --redirects -r --log-dir --logs-specs",
    files=RankFiles(_TORCH_FILES, variables={"PET_REDIRECTS": "3", "PET_LOG_DIR": "{logs}"}),
    add=_add_torchrun,
)
_ACCELERATE = _Launcher(
    processes="--num-processes",
    gpus="--gpu-ids",
    no_script="-m --module --no-python",
    switches=_ACCELERATE_KINDS,
    logs="--tee --log-dir",
    # Accelerate runs torchrun. Its --log_dir hides PET_LOG_DIR, and it has no flag for --redirects.
    files=RankFiles(_TORCH_FILES, ["--log_dir={logs}"], {"PET_REDIRECTS": "3"}),
    add=_add_accelerate,
)
_DEEPSPEED = _Launcher(
    processes="--num-gpus",
    gpus="--include --exclude --hostfile --num-nodes -H -i -e",
    no_script="--module --no-python",
    switches="--no-local-rank --bind-cores-to-rank",
    logs="--enable-each-rank-log",
    files=RankFiles(["*_rank{rank}.log"], ["--enable_each_rank_log={logs}"]),
    add=_add_deepspeed,
)
_LAUNCHERS = {
    "torchrun": _TORCHRUN,
    "accelerate-launch": _ACCELERATE,
    "deepspeed": _DEEPSPEED,
    # As modules.
    "torch.distributed.run": _TORCHRUN,
    "torch.distributed.launch": _TORCHRUN,
    "accelerate.commands.launch": _ACCELERATE,
    "deepspeed.launcher.runner": _DEEPSPEED,
}


def _look_for(name: str, folder: str) -> str:
    """Return the path of a program: below a folder, beside this Python or on PATH. Empty if not found."""
    beside = Path(folder, name) if os.sep in name else Path(sys.executable).parent / name
    if name and os.access(beside, os.X_OK) and not beside.is_dir():
        return str(beside)
    return "" if os.sep in name else shutil.which(name) or ""


def _find_program(name: str, folder: str) -> str:
    """Return the path of a program; `python` is this interpreter. Raise LaunchError if it does not exist."""
    if found := sys.executable if name in ("python", "python3") else _look_for(name, folder):
        return found
    if os.sep in name:
        raise LaunchError(f"{name} does not exist or is not executable.")
    if not name:
        raise LaunchError("The program's name is empty.")
    if name in _PACKAGES:
        raise LaunchError(f"{name} is not installed here: pip install {_PACKAGES[name]}")
    close = difflib.get_close_matches(name, [*_PACKAGES, "python"], n=1, cutoff=0.7)
    hint = f". Did you mean {close[0]}?" if close else ", or it is not on PATH."
    raise LaunchError(f"There is no program {name} here{hint}")


def _note_on_python(typed: str, path: str) -> str:
    """Return a note if a program on PATH or a script runs another Python. Else an empty text.

    It raises LaunchError if that Python does not exist, as after a virtual environment was moved.
    """
    name, is_script = Path(typed).name, typed.endswith(".py")
    python = "" if typed in ("python", "python3") else _python_of(path)
    module, advice = _MODULES.get(name, ""), ""
    if is_script or (module and PathFinder.find_spec(_PACKAGES[name])):
        advice = f" To use this Python: python {typed if is_script else f'-m {module}'}"
    elif module:
        advice = f" To have {name} in this Python: pip install {_PACKAGES[name]}"
    if python and not os.path.exists(python):  # noqa: PTH110 - a name that no file can have is no error
        raise LaunchError(f"{path} needs {python}, which does not exist.{advice}")
    is_meant = os.sep in typed and not is_script
    if not python or is_meant or Path(python).parent.samefile(Path(sys.executable).parent):
        return ""
    return f"{typed} runs {python}, not this Python.{advice}"


def _python_of(script: str) -> str:
    """Return the path of the Python that the first line of a script names. Empty: there is none."""
    try:
        with open(script, "rb") as file:  # noqa: PTH123
            first, second, *_ = [*file.read(1024).decode(errors="replace").split("\n", 2), "", ""]
    except OSError:
        return ""
    words = first[2:].split() if first.startswith("#!") else []
    if match := re.match(r"""'''exec' ([^"\s]+|"[^"]+") """, second):  # pip's form of a long or spaced path
        words = [match[1].strip('"')]
    if words and Path(words[0]).name == "env":
        names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        words = [path for name in names[:1] if (path := shutil.which(name))]
    return words[0] if words and _is_python(words[0]) else ""
