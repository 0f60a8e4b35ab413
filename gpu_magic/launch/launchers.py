"""Builds the command line of each launcher: one process per GPU, in the order of the choice.

torchrun (torch 2.13) keeps CUDA_VISIBLE_DEVICES and its order. Accelerate (1.15) replaces the variable with
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
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic.devices.processes import read_python_line
from gpu_magic.errors import LaunchError
from gpu_magic.launch.process import free_ports
from gpu_magic.process.watch import cuda_watch
from gpu_magic.text import counted

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from gpu_magic.devices.model import Device

__all__ = ["Command"]

_PYTHON = re.compile(r"python(\d(\.\d+t?)?)?")  # python3.14t is the build without a GIL
_PACKAGES = {
    "torchrun": "torch",
    "accelerate": "accelerate",
    "accelerate-launch": "accelerate",
    "deepspeed": "deepspeed",
}
_TORCH_LOGS = ("*/attempt_*/{rank}/stdout.log", "*/attempt_*/{rank}/stderr.log")


@dataclass(slots=True)
class Command:
    """One process of a launch: its words as typed, its folder, and its launcher's arguments for the GPUs."""

    words: Sequence[str]  # the launcher and its arguments
    devices: tuple[Device, ...]
    gpus: Sequence[str]  # their entries in CUDA_VISIBLE_DEVICES, in the same order
    variables: Mapping[str, str | None]  # set for the process; None: removed
    folder: str
    script: Sequence[str] = ()  # the words that run a cell's script
    options: Container[str] = ()  # options of the launch, which are errors among a launcher's flags

    start: Sequence[str] = ()  # the launcher, with its flags for the GPUs
    rest: Sequence[str] = ()  # the launcher's flags as typed, and the program
    logging: Sequence[str] = ()  # flags between the two, for files of each rank below `{logs}`
    logging_variables: Mapping[str, str] = field(default_factory=dict)
    ranks: int = 0  # the number of processes, if each writes to its own files
    logs: Sequence[str] = ()  # patterns of the files of rank `{rank}`, below that folder

    @property
    def environment(self) -> dict[str, str]:
        """All environment variables of the process."""
        variables = {**cuda_watch.environment(), **self.variables}
        return {name: value for name, value in variables.items() if value is not None}

    def argv(self, logs: str = "") -> list[str]:
        """Return the command line. With a folder `logs`, each rank writes to files below the folder."""
        return [*self.start, *(word.format(logs=logs) for word in self.logging if logs), *self.rest]

    def tell(self) -> None:
        """Set the launcher's arguments for the GPUs.

        It raises LaunchError if the command cannot run, or names other GPUs or another number of GPUs.
        """
        if not self.words:
            raise LaunchError("No command is named. Try torchrun train.py")
        if any("\0" in word for word in self.words):
            raise LaunchError("A command cannot contain a NUL character.")
        program, *rest = self.words
        first, *more = program.split()[:2] or [""]
        # A whole command in quotes, as after `bash -c`. Path.exists raises for a path that is too long.
        is_two_words = bool(more) and not os.path.exists(Path(self.folder, program))  # noqa: PTH110
        if is_two_words and (_PYTHON.fullmatch(first) or _look_for(first, self.folder)):
            raise LaunchError(f"{program} is one word because of its quotes. Omit them.")
        match [Path(program).name, *rest]:
            case ["accelerate", "launch", *flags]:
                _Accelerate(self, [program, "launch"], flags)
            case ["torchrun" | "accelerate-launch" | "deepspeed" as name, *flags]:
                _LAUNCHERS[name](self, [program], flags)
            case [name, *flags] if _PYTHON.fullmatch(name):
                self._tell_python(program, flags)
            case _:
                # Likely typing errors.
                if re.match(r"[A-Za-z_]\w*=", program):
                    raise LaunchError(
                        f"{program} sets a variable. Try --env {program}, or --gpus to name GPUs"
                    )
                if program == "accelerate" and rest and rest[0].endswith(".py"):
                    raise LaunchError(f"accelerate needs a command. Try accelerate launch {rest[0]}")
                if program.endswith(".py") and not os.access(Path(self.folder, program), os.X_OK):
                    raise LaunchError(
                        f"{program} needs a launcher. Try torchrun {program}, or python {program}"
                    )
                self.start, self.rest = [_find_program(program, self.folder)], [*rest, *self.script]

    def _tell_python(self, program: str, words: Sequence[str]) -> None:
        """Set the words for one process with all GPUs, or for a launcher that Python runs as a module."""
        line = read_python_line(words)
        options, rest = words[: line.options], words[line.options :]
        self.check_flags(program, options)
        if line.kind == "module" and line.name in _LAUNCHERS:
            _LAUNCHERS[line.name](self, [program, *options], rest)
            return
        if self.script and (line.kind or rest):
            what = line.name or ("-c" if line.kind else rest[0])
            raise LaunchError(f"The cell is the script. Omit {what}")
        if not self.script and not line.is_answer:
            if not line.kind:
                raise LaunchError(f"No script is named. Try {program} train.py")
            if line.kind == "script":
                self.check_is_file(line.name)
        self.start, self.rest = [_find_python(program, self.folder)], [*words, *self.script]

    def check_flags(self, launcher: str, flags: Sequence[str]) -> None:
        """Raise LaunchError if an option of the launch is among a launcher's flags."""
        for word in flags:
            if word.partition("=")[0] in self.options:
                raise LaunchError(f"{word} is not an option of {launcher}. Put it before {launcher}")

    def check_is_file(self, typed: str) -> None:
        """Raise LaunchError if a script does not exist."""
        script = Path(self.folder, typed)
        # pathlib raises for a name that no file can have, such as a very long one.
        if not os.path.isfile(script):  # noqa: PTH113
            what = "is a folder" if os.path.isdir(script) else "does not exist"  # noqa: PTH112
            raise LaunchError(f"{typed} {what}: {script.absolute()}.")


class _Launcher:
    """Splits and checks a launcher's arguments, and adds the flags for the GPUs.

    Flags are compared as `_dashed` returns them, also abbreviated.
    """

    count = ""  # the flag for the number of processes
    name_gpus = ""  # flags that would replace the GPUs
    no_script = ""  # flags that run something other than a script file
    switches = ""  # flags without a value; the word after any other flag is its value

    def __init__(self, command: Command, launcher: Sequence[str], words: Sequence[str]) -> None:
        place = 0
        while place < len(words) and words[place].startswith("-") and words[place] != "-":
            place += 1 if _is_one_of(words[place], self.switches) or "=" in words[place] else 2
        self.command, self.name = command, " ".join(launcher)
        self.flags, program = list(words[:place]), words[place:]
        command.check_flags(self.name, self.flags)
        if command.script and program:
            raise LaunchError(f"The cell is the script. Omit {shlex.join(program)}")
        for typed in self.typed(self.name_gpus):
            raise LaunchError(
                f"{self.name} {typed} would replace the chosen GPUs. Omit it, and name GPUs with --gpus "
                f"before {self.name}"
            )
        self.flags = list(self._without_count(len(command.gpus)))
        if not (program := [*program, *command.script]):
            raise LaunchError(f"No script is named. Try {self.name} train.py")
        no_script = self.typed(self.no_script)
        if no_script and command.script:
            raise LaunchError(f"The cell is the script. Omit {no_script[0]}")
        if not no_script:
            command.check_is_file(program[0])
        command.rest = [*self.flags, *program]
        command.start = [_find_python(launcher[0], command.folder), *launcher[1:]]
        self.tell(command, len(command.gpus))

    def tell(self, command: Command, gpus: int) -> None:
        """Add the flags for the GPUs, and the flags with which ranks write to files."""

    def typed(self, flags: str) -> list[str]:
        """Return the words of the command that are among these flags, as typed."""
        return [word.partition("=")[0] for word in self.flags if _is_one_of(word, flags)]

    def _without_count(self, gpus: int) -> Iterator[str]:
        """Yield the flags without the number of processes, which must be the number of GPUs."""
        words = iter(self.flags)
        for word in words:
            if not _is_one_of(word, self.count):
                yield word
                continue
            typed, equals, value = word.partition("=")
            value = value if equals else next(words, "")
            if value not in (str(gpus), "auto", "gpu"):
                raise LaunchError(
                    f"{self.name} {typed} {value} contradicts the {counted(gpus, 'GPU')} that it gets, one "
                    f"per process. Omit it, and choose GPUs with -n or --gpus before {self.name}"
                )


class _Torchrun(_Launcher):
    count = "--nproc-per-node"
    no_script = "-m --module --no-python --run-path"
    switches = "--standalone -m --module --no-python --run-path --virtual-local-rank -h --help"

    def tell(self, command: Command, gpus: int) -> None:
        own_meeting = "--standalone --nnodes --rdzv-endpoint --rdzv-backend --master-addr --master-port"
        meeting = [] if self.typed(own_meeting) else ["--standalone"]
        command.start = [*command.start, *meeting, f"--nproc-per-node={gpus}"]
        if not self.typed("--tee -t --redirects -r --log-dir --logs-specs"):
            command.logging = ["--redirects=3", "--log-dir={logs}"]
            command.ranks, command.logs = gpus, _TORCH_LOGS


class _Accelerate(_Launcher):
    count = "--num-processes"
    name_gpus = "--gpu-ids"
    no_script = "-m --module --no-python"
    switches = """
    -h --help -q --quiet --cpu --multi-gpu --tpu --use-deepspeed --use-fsdp --use-megatron-lm
    --use-parallelism-config --same-network -m --module --no-python --tpu-cluster --no-tpu-cluster
    --tpu-use-sudo --downcast-bf16 --debug --enable-cpu-affinity --dynamo-use-fullgraph
    --dynamo-use-dynamic --dynamo-use-regional-compilation --fp8-use-autocast-during-eval
    --fp8-override-linear-precision --fp8-enable-fsdp-float8-all-gather
    """

    def tell(self, command: Command, gpus: int) -> None:
        # These flags override a saved configuration, which keeps its other values.
        saved = self._configuration()
        given = {
            "--num_processes": str(gpus),
            "--num_machines": "1",
            "--gpu_ids": "all",  # all visible GPUs
            "--main_process_port": "0",  # a free port
            "--mixed_precision": "" if saved else "no",  # the default, but without a message about it
            "--dynamo_backend": "" if saved else "no",
        }
        kind = re.search(r"distributed_type\W+(FSDP|DEEPSPEED|MEGATRON_LM)\b", saved)
        kinds = "--multi-gpu --cpu --tpu --use-deepspeed --use-fsdp --use-megatron-lm"
        is_several = gpus > 1 and not kind and not self.typed(kinds)
        values = [
            f"{flag}={value}" for flag, value in given.items() if value and not self.typed(_dashed(flag))
        ]
        command.start = [*command.start, *(["--multi_gpu"] if is_several else []), *values]
        if gpus > 1 and not self.typed("--tee --log-dir"):
            # Accelerate runs torchrun, but has no flag for torchrun's --redirects.
            command.logging, command.logging_variables = ["--log_dir={logs}"], {"PET_REDIRECTS": "3"}
            command.ranks, command.logs = gpus, _TORCH_LOGS

    def _configuration(self) -> str:
        """Return the text of Accelerate's configuration file: the named file, or the default file."""
        variables = self.command.environment
        home = variables.get("HF_HOME") or f"{variables.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
        place = f"{home}/accelerate/default_config.yaml"
        for word, following in pairwise([*self.flags, ""]):
            if _dashed(word) == "--config-file":
                place = word.partition("=")[2] or following
        try:
            # pathlib raises for `~nobody`.
            return Path(self.command.folder, os.path.expanduser(place)).read_text(errors="replace")  # noqa: PTH111
        except (OSError, ValueError):
            return ""


class _DeepSpeed(_Launcher):
    count = "--num-gpus"
    name_gpus = "--include --exclude --hostfile --num-nodes -H -i -e"
    no_script = "--module --no-python"
    switches = "-h --help --module --no-python --no-local-rank --bind-cores-to-rank -q --quiet"

    def tell(self, command: Command, gpus: int) -> None:
        beside = Path(command.start[0]).with_name("python")
        python = str(beside) if os.access(beside, os.X_OK) else sys.executable
        numbers = [int(gpu) if gpu.isdigit() else gpu for gpu in command.gpus]
        world = base64.urlsafe_b64encode(json.dumps({"localhost": numbers}).encode()).decode()
        command.start = [python, "-m", "deepspeed.launcher.launch", f"--world_info={world}"]
        command.start += [] if self.typed("--master-addr") else ["--master_addr=127.0.0.1"]
        command.start += [] if self.typed("--master-port") else [f"--master_port={free_ports(1)[0]}"]
        if not self.typed("--enable-each-rank-log"):
            command.logging = ["--enable_each_rank_log={logs}"]
            command.ranks, command.logs = gpus, ["*_rank{rank}.log"]


_LAUNCHERS = {
    "torchrun": _Torchrun,
    "accelerate-launch": _Accelerate,
    "deepspeed": _DeepSpeed,
    # As modules.
    "torch.distributed.run": _Torchrun,
    "torch.distributed.launch": _Torchrun,
    "accelerate.commands.launch": _Accelerate,
}


def _dashed(flag: str) -> str:
    """Return a flag's name with dashes, because launchers accept `--gpu_ids=0` and `--gpu-ids 0`."""
    return flag.partition("=")[0].replace("_", "-")


def _is_one_of(word: str, flags: str) -> bool:
    """Return whether a word is one of these flags, or an abbreviation of one, as argparse accepts them."""
    typed = _dashed(word)
    is_long = typed.startswith("--") and typed != "--"
    return any(flag == typed or (is_long and flag.startswith(typed)) for flag in flags.split())


def _find_python(name: str, folder: str) -> str:
    """Return the path of a program. `python` is this interpreter."""
    return sys.executable if name in ("python", "python3") else _find_program(name, folder)


def _look_for(name: str, folder: str) -> str:
    """Return the path of a program: below a folder, beside this Python or on PATH. Empty if not found."""
    beside = Path(folder, name) if os.sep in name else Path(sys.executable).parent / name
    if name and os.access(beside, os.X_OK) and not beside.is_dir():
        return str(beside)
    return "" if os.sep in name else shutil.which(name) or ""


def _find_program(name: str, folder: str) -> str:
    """Return the path of a program. Raise LaunchError if it does not exist."""
    if found := _look_for(name, folder):
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
